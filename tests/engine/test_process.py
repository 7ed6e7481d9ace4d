"""`millrace run` as a process: killed, stopped, started twice. Nothing is lost, and the terminal stays readable."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from millrace.engine.stopping import in_flight
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import millrace, start
from tests.engine.conftest import Project
from tests.engine.test_run import checkpoint, counted, events, is_whole, last_counts, with_junk

pytestmark = [pytest.mark.spark, pytest.mark.server]

SHOP = """\
import millrace as mr
from pyspark.sql import functions as F

app = mr.App("shop")
views = app.topic("views", "url string, user long, at timestamp", time="at", lateness="1 hour")


@app.stream(views, key="url", emit="updates")
def counts(p):
    counted = p.groupBy(F.window("at", "1 minute"), "url").count()
    return counted.select("url", F.col("window.start").alias("since"), "count")
"""

FAILING = """\
import millrace as mr
from pyspark.sql import functions as F

app = mr.App("failing")
views = app.topic("views", "url string, user long, at timestamp")


def inverse(user):
    return str(1 / user)


@app.stream(views)
def inverses(p):
    return p.select(F.udf(inverse)("user").alias("inverse"))
"""

FOREIGN = re.compile(r"WARN|ERROR|java\.|Exception|\bat org\.|log4j|incubator|Traceback|py4j|Setting default")
LIMIT_S = 150


@pytest.fixture
def folder(project: Project) -> Path:
    folder = project.settings.folder
    (folder / "shop.py").write_text(SHOP)
    (folder / "failing.py").write_text(FAILING)
    (folder / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        '[run]\napp = "shop:app"\n[spark]\nmaster = "local[2]"\n'
        f'[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    )
    project.log.topics.create("views", partitions=2)
    return folder


def ended(command: subprocess.Popen[str]) -> str:
    """Waits for the end and gives everything that was said."""
    output, _ = command.communicate(timeout=LIMIT_S)
    assert not FOREIGN.search(output), output
    return output


def machines(folder: Path) -> list[psutil.Process]:
    """The JVMs that work in this folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if str(folder) in line and "SparkSubmit" in line:
            found.append(process)
    return found


@pytest.mark.turn(0, 2)
def test_killed_stopped_and_interrupted_it_goes_on_and_loses_nothing(
    project: Project, folder: Path, until: Callable[..., None]
) -> None:
    made = events(5, 1200)
    parts = [with_junk(made[place : place + 300]) for place in range(0, 1200, 300)]
    folders = checkpoint(project, "counts")

    def write(part: int) -> None:
        project.write("views", parts[part][0])

    def has(count: int) -> Callable[[], bool]:
        return lambda: project.log.topics.exists("counts") and last_counts(project) == counted(made[:count])

    with start("run", cwd=folder) as first:
        write(0)
        until(has(300), "the first part", LIMIT_S)

        # A second run is refused by name, before Spark is even started.
        second = millrace("run", cwd=folder)
        assert second.returncode == 1
        assert "MR-FLOW-LOCKED" in second.stderr
        assert f"process {first.pid} on {socket.gethostname()}" in second.stderr
        assert "starting" not in second.stderr
        assert first.poll() is None

        # Killed while an epoch is on its way: its offsets are written, its commit is not.
        write(1)
        until(lambda: in_flight(folders), "an epoch", LIMIT_S)
        first.send_signal(signal.SIGKILL)
        first.wait()

    # At once again: the killed run's JVM may still be there, and is waited for.
    write(2)
    with start("run", cwd=folder) as again:
        until(has(900), "all of three parts", LIMIT_S)
        again.send_signal(signal.SIGTERM)
        assert "stopping after this epoch" in ended(again)
        assert again.returncode == 0
    assert is_whole(folders)

    write(3)
    with start("run", "--show", "counts", cwd=folder) as third:
        until(has(1200), "all counts", LIMIT_S)
        os.killpg(third.pid, signal.SIGINT)  # as a terminal does it: to the whole group
        output = ended(third)
        assert third.returncode == 0
    assert is_whole(folders)
    assert 'counts  {"url":' in output
    assert "dead" in output

    plan = millrace("plan", cwd=folder)
    assert (plan.returncode, plan.stdout.split()[-2:]) == (0, ["counts", "same"]), plan.stdout + plan.stderr
    (folder / "shop.py").write_text(SHOP.replace('"1 minute"', '"2 minutes"'))
    plan = millrace("plan", cwd=folder)
    assert plan.returncode == 1
    assert "needs a new checkpoint" in plan.stdout
    assert "MR-STATE-CHANGED" in plan.stdout
    assert not FOREIGN.search(plan.stdout + plan.stderr)

    letters = {(letter.record.partition, letter.record.offset): letter for letter in project.log.dead.list("views")}
    junk = Counter(value for _, junk in parts for value in junk)
    assert Counter(letter.record.value for letter in letters.values()) == junk
    until(lambda: not machines(folder), "no JVM is left")


def test_an_exception_in_a_worker_is_one_sentence_with_the_users_line(project: Project, folder: Path) -> None:
    project.write("views", [b'{"user":0}'])
    done = millrace("run", "failing:app", "--once", cwd=folder)
    assert done.returncode == 1
    error = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(error) == 1
    assert "MR-BODY-FAILED" in error[0]
    assert "(ZeroDivisionError: division by zero)" in error[0]
    assert error[0].endswith("(at failing.py:9)")
    log = Path(re.search(r"details are in (\S+)", error[0])[1])  # type: ignore[index]
    assert "ZeroDivisionError" in log.read_text()
    assert not FOREIGN.search(done.stdout + done.stderr.replace(error[0], ""))
    assert not machines(folder)


def test_a_killed_jvm_is_one_sentence(project: Project, folder: Path, until: Callable[..., None]) -> None:
    project.write("views", [b'{"user":1}'])
    with start("run", "failing:app", cwd=folder) as command:
        until(lambda: project.log.topics.exists("inverses") and list(project.log.read("inverses")), "it ran", LIMIT_S)
        machines(folder)[0].kill()
        output = ended(command)
    assert command.returncode == 2
    assert "error: MR-SESSION-GONE" in output
