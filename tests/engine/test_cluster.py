"""A run on a real cluster: a master and two workers. One is killed between an epoch's computation and its writing, the
other in the middle of an epoch, and then the driver. Every event has its effect once: in a topic that is written
exactly once, and in PostgreSQL.

                 worker 0 ─ executor ─ tasks ─┐
    driver ──┬───                             ├── checkpoint: a folder that all of them see
             └── worker 1 ─ executor ─ tasks ─┘
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from millrace.engine.stopping import epochs, in_flight
from millrace.testing.plugin import JAVA_OPTIONS
from tests import cluster
from tests.command import millrace, start
from tests.engine.conftest import Project
from tests.engine.test_delivery_kills import held_back
from tests.engine.test_process import machines

pytestmark = [pytest.mark.spark, pytest.mark.server]

KEYS = 7
MS_APART = 10  # in event time: a minute has 6,000 events
TICK_S, A_TICK = 0.05, 20
FLOWS = ("told", "counted")

# `telling` is a module of its own: executors do not see the folder, so it has to be sent to them.
APP = """\
import contextlib
import os
import signal
from pathlib import Path

import millrace as mr
from pyspark.sql import functions as F
from telling import tell

app = mr.App("clustered")
events = app.topic("events", "id long, key string, at timestamp", time="at", lateness="1 minute")


@app.stream(events, key="key", delivery="exactly once")
def told(e):
    found = mr.lookback(e, by="key", n=mr.count(over="1 day"), late=mr.late.drop())
    return found.select("id", "key", "n", F.udf(tell)("key").alias("said"))


@app.stream(events, key="key")
def counted(e):
    return mr.window(e, "1 minute", by="key", n=mr.count(), emit="updates", late=mr.late.drop())


def cut(rows, epoch):
    armed = Path("armed")
    if armed.exists():
        for pid in armed.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        armed.unlink()
    rows.collect()


counted.to(mr.postgres("{table}", key=["key", "window_start"], database="target"), mr.function(cut))
"""
TELLING = """\
def tell(key):
    return f"it is {key}"
"""


@dataclass
class Feed:
    """Writes events without an end: the n-th has id n, in the order of time. A key's events are in one partition."""

    project: Project
    count: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with self.project.log.writer("events") as writer:
            while not self._ended.wait(TICK_S):
                for _ in range(A_TICK):
                    ms = self.count * MS_APART
                    at = f"2026-01-01T00:{ms // 60_000:02}:{ms // 1_000 % 60:02}.{ms % 1_000:03}Z"
                    row = {"id": self.count, "key": f"k{self.count % KEYS}", "at": at}
                    writer.write(json.dumps(row).encode(), partition=self.count % KEYS % 2)
                    self.count += 1

    def end(self) -> None:
        self._ended.set()


@contextmanager
def feeding(project: Project) -> Iterator[Feed]:
    feed = Feed(project)
    thread = threading.Thread(target=feed.run)
    thread.start()
    try:
        yield feed
    finally:
        feed.end()
        thread.join()


def laid_out(project: Project, master: str, shared: Path, table: str, **options: str) -> Path:
    folder = project.settings.folder / "app"
    folder.mkdir()
    (folder / "clustered.py").write_text(APP.replace("{table}", table))
    (folder / "telling.py").write_text(TELLING)
    own = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        **options,
    }
    (folder / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        f'[run]\napp = "clustered:app"\n[spark]\nmaster = "{master}"\ncheckpoints = "{shared}"\n[spark.options]\n'
        + "".join(f'"{name}" = "{value}"\n' for name, value in own.items())
    )
    project.log.topics.create("events", partitions=2)
    return folder


def faults(told: list[dict[str, Any]], count: int) -> list[str]:
    """What the topic holds, against the events: each once, and each knows how many of its key came before."""
    times = Counter(row["id"] for row in told)
    found = [f"{number} is there {times[number]} times" for number in range(count) if times[number] != 1]
    found += [f"{number} was never sent" for number in times if not 0 <= number < count]
    expected = [(f"k{row['id'] % KEYS}", row["id"] // KEYS + 1, f"it is k{row['id'] % KEYS}") for row in told]
    given = [(row["key"], row["n"], row["said"]) for row in told]
    return found + [f"{one}, not {other}" for one, other in zip(given, expected, strict=True) if one != other]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda rows: rows, None),
        (lambda rows: rows[:50] + rows[51:], "50 is there 0 times"),
        (lambda rows: [*rows, rows[3]], "3 is there 2 times"),
        (lambda rows: [*rows, {**rows[0], "id": 100, "key": "k2", "n": 15, "said": "it is k2"}], "100 was never sent"),
        (lambda rows: [{**row, "n": row["n"] - (row["id"] > 90)} for row in rows], "('k0', 13, 'it is k0'), not"),
    ],
)
def test_the_judge_sees_what_is_lost_doubled_or_forgotten(change: Callable[..., Any], fault: str | None) -> None:
    keys = [(number, f"k{number % KEYS}") for number in range(100)]
    rows = [{"id": number, "key": key, "n": number // KEYS + 1, "said": f"it is {key}"} for number, key in keys]
    found = faults(change(rows), 100)
    assert found[0].startswith(fault) if fault else not found, found


def minutes(url: str, table: str) -> dict[tuple[str, int], int]:
    query = f"SELECT key, extract(minute FROM window_start AT TIME ZONE 'UTC')::int, n FROM {table}"
    with psycopg.connect(url) as connection:
        rows = connection.execute(query).fetchall()  # type: ignore[call-overload]
    return {(key, minute): n for key, minute, n in rows}


@pytest.mark.turn(2, 3)
def test_a_worker_and_the_driver_are_killed(project: Project, postgres: str, until: Callable[..., None]) -> None:
    table, shared = f"clustered_{project.settings.prefix}", project.settings.folder / "shared"
    env = {"MILLRACE_DATABASES_TARGET_URL": postgres}
    checkpoints = {name: shared / project.settings.named("clustered") / name / "checkpoint" for name in FLOWS}

    def last(name: str) -> int:
        return max(epochs(checkpoints[name] / "commits"), default=-1)

    def come(more: int, what: str) -> None:
        wanted = {name: last(name) + more for name in FLOWS}
        until(lambda: all(last(name) >= number for name, number in wanted.items()), what)

    with cluster.started(project.settings.folder / "cluster", workers=2) as spark:
        folder = laid_out(project, spark.url, shared, table)
        armed = folder / "armed"
        with feeding(project) as feed:
            with start("run", cwd=folder, env=env) as command:
                come(3, "the first epochs")
                assert all(spark.executors(number) for number in (0, 1)), "both are to have work"
                armed.write_text(" ".join(str(each.pid) for each in (spark.workers[0], *spark.executors(0))))
                until(lambda: not armed.exists(), "the kill between computation and writing")
                come(2, "epochs without worker 0")
                spark.work(0)
                until(lambda: bool(spark.executors(0)), "an executor of worker 0")
                until(lambda: in_flight(checkpoints["told"]), "an epoch on its way")
                spark.kill(1)
                come(2, "epochs without worker 1")
                until(lambda: in_flight(checkpoints["told"]), "an epoch on its way")
                for each in (psutil.Process(command.pid), *machines(folder)):
                    each.kill()
            spark.work(1)
            spark.await_workers()
        done = millrace("run", "--once", cwd=folder, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: not any(spark.executors(number) for number in (0, 1)), "the executors' end")
    assert feed.count > 1_000
    assert faults([record.json() for record in project.log.read("told")], feed.count) == []
    assert held_back(project, "told") == 0
    expected = Counter((f"k{number % KEYS}", number * MS_APART // 60_000) for number in range(feed.count))
    assert minutes(postgres, table) == expected
    assert not any(project.log.topics.exists(f"{name}.dead") for name in ("events", f"postgres.{table}"))


@pytest.mark.turn(1, 3)
def test_what_a_cluster_cannot_do_is_refused(project: Project, postgres: str) -> None:
    """Speculation, by the flow that writes exactly once; a checkpoint that an executor does not see, by the other."""
    shared = project.settings.folder / "shared"
    shared.mkdir()
    prefix = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    hide = f'mount -t tmpfs none "{shared}" && exec "$0" "$@"'
    if not shutil.which("unshare") or subprocess.run([*prefix, hide, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody make mount namespaces")
    with cluster.started(project.settings.folder / "cluster", workers=1, prefix=(*prefix, hide)) as spark:
        folder = laid_out(project, spark.url, shared, "unseen", **{"spark.speculation": "true"})
        with feeding(project):
            done = millrace("run", cwd=folder, env={"MILLRACE_DATABASES_TARGET_URL": postgres})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "MR-SPECULATION-REFUSED" in done.stderr
    assert "MR-CHECKPOINTS-UNSHARED" in done.stderr
    assert "127.0.0.1 does not see the checkpoint of flow 'counted'" in done.stderr
