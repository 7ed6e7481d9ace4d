"""A stream's topic at most once: neither an epoch nor a task that is done again is written again."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine.stopping import epochs
from millrace.engine.topic_sink import BEGUN
from millrace.flow import App
from millrace.sinks.ledger import Epoch, FileLedger
from millrace.testing.checkpoints import forget_commit
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import millrace
from tests.engine.conftest import Project
from tests.engine.items import once

pytestmark = [pytest.mark.spark, pytest.mark.server]

LAST = 200


def test_at_most_once_an_epoch_that_is_done_again_is_not_written_and_its_state_is(
    spark: SparkSession, project: Project
) -> None:
    app = App("seldom")
    events = app.topic("events", "id long, key string, at timestamp", time="at", lateness="0 seconds", ahead=None)

    @app.stream(events, key="id", delivery="at most once")
    def plain(events: DataFrame) -> DataFrame:
        return events.select("id")

    @app.stream(events, key="id", delivery="at most once")
    def counted(events: DataFrame) -> DataFrame:
        return mr.lookback(events, by="key", n=mr.count(over="1 hour"), late=mr.late.drop()).select("id", "n")

    def write(first: int) -> None:
        rows = [{"id": n, "key": "a", "at": f"2026-01-01T00:00:{n:02}Z"} for n in range(first, first + 3)]
        project.write("events", [json.dumps(row).encode() for row in rows])

    def told(topic: str) -> list[tuple[int, ...]]:
        return sorted(tuple(record.json().values()) for record in project.log.read(topic))

    project.log.topics.create("events", partitions=1)
    write(0)
    once(spark, project.settings, app)
    folder = project.settings.checkpoints / project.settings.named("seldom")
    for flow in ("plain", "counted"):
        forget_commit(folder / flow / "checkpoint")
    write(3)
    once(spark, project.settings, app)
    assert told("plain") == [(n,) for n in range(6)]
    first = told("counted")
    assert {n for n, _ in first} == set(range(6))
    assert all(n == place + 1 for place, n in first), first

    # One of which nothing was written counts as done: that is what it costs.
    write(6)
    checkpoint = folder / "plain" / "checkpoint"
    FileLedger(checkpoint / BEGUN).write(Epoch("plain", epochs(checkpoint / "commits")[-1] + 1, ""))
    once(spark, project.settings, app)
    assert told("plain") == [(n,) for n in range(6)]
    assert all(n == place + 1 for place, n in told("counted"))


# A task that fails when it has written most of its rows, since a compacted topic takes none without a key, and one
# whose worker is killed by who receives its posts; Spark does them again.
KEYLESS = """\
import millrace as mr

app = mr.App("keyless")
events = app.topic("events", "id long")
events.to(mr.webhook("hook", concurrency=1), delivery="at most once")


@app.stream(events, key="name", delivery="at most once")
def seldom(e):
    return e.selectExpr("id", "IF(id = 2500, NULL, id) AS name", "repeat('x', 1000) AS text")
"""


class Killing(http.server.BaseHTTPRequestHandler):
    """Takes posts, and kills whoever has posted the row `LAST`."""

    protocol_version = "HTTP/1.1"
    taken: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["row"]["id"])
        if self.taken[-1] == LAST:
            there = [each for each in psutil.net_connections("tcp") if each.laddr[:2] == self.client_address]
            os.kill(there[0].pid, signal.SIGKILL)
            self.close_connection = True
            return
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def killing() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Killing) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.turn(1, 2)
def test_at_most_once_a_task_that_is_done_again_writes_nothing(project: Project, tmp_path: Path, killing: int) -> None:
    (tmp_path / "keyless.py").write_text(KEYLESS)
    (tmp_path / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        '[run]\napp = "keyless:app"\n[spark]\nmaster = "local[2,2]"\n'
        f'[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
        f'[sinks.hook]\nurl = "http://127.0.0.1:{killing}"\n'
    )
    project.log.topics.create("events", partitions=1)
    project.log.topics.create("seldom", partitions=1, config={"cleanup.policy": "compact"})
    project.write("events", [b'{"id": %d}' % number for number in range(3_000)])
    done = millrace("run", "--once", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a task is done again, and at most once was asked for" in done.stderr
    told = Counter(record.json()["id"] for record in project.log.read("seldom"))
    assert set(range(2_000)) <= set(told)
    assert set(told.values()) == {1}
    assert Killing.taken[: LAST + 1] == [*range(LAST + 1)]
    assert set(Counter(Killing.taken).values()) == {1}
