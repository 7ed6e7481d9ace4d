"""A stream's topic at most once: an epoch that is done again is not written again."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine.stopping import epochs
from millrace.engine.topic_sink import BEGUN
from millrace.flow import App
from millrace.sinks.ledger import Epoch, FileLedger
from millrace.testing.checkpoints import forget_commit
from tests.engine.conftest import Project
from tests.engine.items import once

pytestmark = [pytest.mark.spark, pytest.mark.server]


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
