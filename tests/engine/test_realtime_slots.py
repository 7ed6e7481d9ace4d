"""The slots that flows in real time take: too few are an error with the number, and nobody else's are taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run, realtime
from millrace.errors import SlotsTooFew
from millrace.flow import App
from tests.engine.conftest import Project
from tests.engine.test_realtime import EPOCH, EVENTS, app_of, topic_of

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.usefixtures("whole_epochs")]


def test_too_few_slots_are_told_with_the_number(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=16)
    with (
        pytest.raises(SlotsTooFew, match=r"needs 16 slots .* 'local\[\*\]'.* at least \d+"),
        Run(app_of(), project.settings, spark=spark, only=["doubled"]),
    ):
        pass


def test_slots_of_another_run_on_the_same_spark_are_taken(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=2)
    other = App("other")
    wide = other.topic("wide", EVENTS, time="at", lateness="1 minute", partitions=14, ahead=None)

    @other.stream(wide, key="id", mode="realtime", epoch=EPOCH)
    def copied(rows: DataFrame) -> DataFrame:
        return rows

    with (
        Run(app_of(), project.settings, spark=spark, only=["doubled"]),
        pytest.raises(SlotsTooFew, match=r"needs 14 slots .* 2 are taken"),
        Run(other, project.settings, spark=spark),
    ):
        pass
    assert not realtime._taken, "it has let them go"


def test_every_step_with_a_key_needs_slots_too(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=10)
    shuffled = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    app = App("now")
    steps: list[Callable[[DataFrame], DataFrame]] = [
        lambda rows: mr.dedup(rows, on="key", late=mr.late.drop()),
        lambda rows: mr.lookback(rows, by="key", n=mr.count(over="1 hour"), late=mr.late.drop()),
        lambda rows: rows.dropDuplicates(["id", "at"]),
        lambda rows: mr.latest(rows, by="key", ttl="1 day", late=mr.late.drop()),
    ]

    @app.stream(topic_of(app), mode="realtime", key="key")
    def chain(events: DataFrame) -> DataFrame:
        for step in steps:
            events = step(events)
        return events

    needed = 10 + len(steps) * shuffled
    with (
        pytest.raises(SlotsTooFew, match=f"needs {needed} slots .* 0 are taken"),
        Run(app, project.settings, spark=spark),
    ):
        pass
