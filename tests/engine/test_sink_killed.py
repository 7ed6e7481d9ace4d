"""kill -9 of a run between a sink's write and Spark's commit: the epoch comes again, and is in every sink once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import psycopg
import pytest

from millrace.engine.stopping import epochs, in_flight
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import millrace, start
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

# While `armed` is there, the last of the sinks waits until the others hold the epoch, and kills the process. The
# commit is written after all of them.
SHOP = """\
import os
import signal
import time
from pathlib import Path

import millrace as mr
import psycopg

app = mr.App("shop")
views = app.topic("views", "url string, user long", partitions=2)


def kill(rows, epoch):
    armed = Path("armed")
    while armed.exists():
        with psycopg.connect(os.environ["MILLRACE_DATABASES_TARGET_URL"]) as connection:
            held = connection.execute("SELECT epoch FROM millrace_ledger WHERE flow LIKE %s", ["{prefix}%"]).fetchall()
        if (epoch.number,) in held and Path(f"out/epoch={epoch.number}").exists():
            armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)


@app.stream(views, key="url", emit="updates")
def counts(p):
    return p.groupBy("url").count()


counts.to(mr.postgres("{table}", key="url", database="target"), mr.files("out", format="json"), mr.function(kill))
"""


@pytest.mark.turn(1, 2)
def test_killed_between_the_write_and_the_commit(project: Project, postgres: str, until: Callable[..., None]) -> None:
    folder, prefix = project.settings.folder, project.settings.prefix
    table = f"counts_{prefix}"
    (folder / "shop.py").write_text(SHOP.replace("{prefix}", prefix).replace("{table}", table))
    (folder / "millrace.toml").write_text(
        f'prefix = "{prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        '[run]\napp = "shop:app"\n[spark]\nmaster = "local[2]"\n'
        f'[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    )
    env = {"MILLRACE_DATABASES_TARGET_URL": postgres}
    project.log.topics.create("views", partitions=2)

    def write(count: int) -> None:
        project.write("views", [json.dumps({"url": f"/{n % 7}", "user": n}).encode() for n in range(count)])

    def counted() -> dict[str, int]:
        with psycopg.connect(postgres) as connection:
            return dict(connection.execute(f"SELECT url, count FROM {table}").fetchall())  # type: ignore[call-overload]

    write(70)
    (folder / "armed").touch()
    with start("run", cwd=folder, env=env) as command:
        until(lambda: command.poll() is not None, "the kill")
        assert command.returncode == -signal.SIGKILL
    checkpoint = project.settings.checkpoints / project.settings.named("shop") / "counts" / "checkpoint"
    assert in_flight(checkpoint)
    assert sum(counted().values()) == 70

    write(140)
    done = millrace("run", "--once", cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert counted() == {f"/{n}": 30 for n in range(7)}
    # Each key that changed is in an epoch's files once.
    by_epoch: dict[int, list[str]] = {}
    for path in (folder / "out").glob("epoch=*/*.json"):
        lines = [] if path.name.startswith("_") else path.read_text().splitlines()
        by_epoch.setdefault(int(path.parent.name[6:]), []).extend(json.loads(line)["url"] for line in lines)
    assert set(by_epoch) == set(epochs(checkpoint / "commits"))
    assert all(len(urls) == len(set(urls)) for urls in by_epoch.values())
