"""Event time on a real Kafka: partitions that lag, are silent or have wrong clocks; late rows aside; all counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.engine import Progress, Run
from millrace.errors import LateSideKeepsState, LateSideTaken, LateSideTwice, OptionInvalid, TimeUnknown
from millrace.flow import App, Topic
from tests.command import until
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

SCHEMA = "user string, at timestamp, until timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def write(project: Project, partition: int, *rows: dict[str, Any] | bytes) -> None:
    values = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    project.write("views", values, partition=partition)


def views_at(*seconds: float) -> list[dict[str, Any]]:
    return [{"user": "u", "at": at(second)} for second in seconds]


def counting(views: Topic, app: App, **given: Any) -> None:
    given = {"emit": "final", "late": mr.late.drop(), **given}

    @app.stream(views, name="counts")
    def counts(p: DataFrame) -> DataFrame:
        return mr.window(p, "1 minute", views=mr.count(), **given)


def once(spark: SparkSession, project: Project, app: App) -> list[Progress]:
    heard = []
    with Run(app, project.settings, once=True, spark=spark) as run:
        while not run.done:
            heard += run.poll()
        heard += run.stop()
    return heard


def found(project: Project, topic: str = "counts") -> list[tuple[float, int]]:
    """Minute and count of each result, in the order in which they were told."""
    rows = [record.json() for record in project.log.read(topic)]
    starts = [datetime.fromisoformat(row["window_start"].replace("Z", "+00:00")) for row in rows]
    return [((start - START) / timedelta(minutes=1), row["views"]) for start, row in zip(starts, rows, strict=True)]


def test_the_slowest_partition_is_waited_for_and_a_silent_one_is_not(spark: SparkSession, project: Project) -> None:
    app = App("shop")
    views = app.topic("views", SCHEMA, time="at", lateness="10 seconds", idle="2 seconds", partitions=3)
    counting(views, app)
    project.log.topics.create("views", partitions=3)
    write(project, 0, *views_at(10, 130, 200))
    write(project, 1, *views_at(20, 65))
    with Run(app, project.settings, spark=spark) as run:
        flow = run.flows["counts"]
        # Partition 2 has nothing to say and is given up after a while; partition 1 is at 65 s, which closes nothing.
        until(lambda: watermark(run, flow) == START + timedelta(seconds=190), "silence", 60)
        until(lambda: found(project) == [(0, 2), (1, 1), (2, 1)], "windows to close", 60)
    assert not [each for each in once(spark, project, app) if each.late]


def watermark(run: Run, flow: Any) -> datetime | None:
    run.poll()
    text = (flow.query.lastProgress or {}).get("eventTime", {}).get("watermark")
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def test_a_lagging_partition_is_not_late_in_any_order_of_runs(spark: SparkSession, project: Project) -> None:
    app = App("shop")
    views = app.topic("views", SCHEMA, time="at", lateness="10 seconds", idle="1 hour", partitions=2)
    counting(views, app)
    project.log.topics.create("views", partitions=2)
    heard = []
    for second in (0, 60, 120, 180):
        write(project, 0, *views_at(second + 600, second + 640))
        write(project, 1, *views_at(second, second + 30))
        heard += once(spark, project, app)
    assert sum(each.rows_in for each in heard) == 16
    assert not any(each.late for each in heard)
    assert found(project) == [(0, 2), (1, 2), (2, 2)]  # up to 210 - 10 seconds
    watermarks = [each.watermark for each in heard if each.watermark]
    assert watermarks == sorted(watermarks)
    assert watermarks[-1] == START + timedelta(seconds=200)


def test_every_row_is_on_time_late_or_dead(spark: SparkSession, project: Project) -> None:
    app = App("shop")
    views = app.topic("views", SCHEMA, time="at", lateness="0 seconds", partitions=1)
    counting(views, app, late=mr.late.side("late_views", allow="30 seconds"))
    project.log.topics.create("views", partitions=1)
    ahead = {"user": "u", "at": (datetime.now(UTC) + timedelta(days=800)).isoformat()}
    heard = []
    for rows in (
        views_at(10, 61),
        [*views_at(20, 95), b"junk"],  # 20 s is late for minute 0 and still allowed
        [*views_at(30, 62), ahead],  # minute 0 ended more than 30 s ago
        views_at(200),
    ):
        write(project, 0, *rows)
        heard += once(spark, project, app)
    sums = {word: sum(getattr(each, word) for each in heard) for word in ("rows_in", "dead", "late", "refused")}
    assert sums == {"rows_in": 9, "dead": 2, "late": 2, "refused": 1}
    assert found(project) == [(0, 1), (0, 2), (1, 3)]
    on_time = 5  # 10, 61, 95, 62 and 200, which is still open
    assert sums["rows_in"] == on_time + sums["late"] + sums["dead"]
    (record,) = project.log.read("late_views")
    refused = record.json()
    assert refused["row"] == {"user": "u", "at": "2026-01-01T00:00:30.000000Z", "until": None}
    assert refused["window_start"] == "2026-01-01T00:00:00.000000Z"
    assert refused["late_ms"] == 35_000
    reasons = [letter.reason for letter in project.log.dead.list("views")]
    assert reasons[1] == "its time 'at' is more than 1 hour after its arrival: a clock is wrong"


def test_a_source_that_marks_what_is_complete(spark: SparkSession, project: Project) -> None:
    app = App("shop")
    views = app.topic("views", SCHEMA, time="at", lateness=mr.marked("until"), partitions=2)
    # With names that the operator uses itself.
    counting(views, app, by=F.lit("k").alias("kind"), start=mr.min("at"), row=mr.count())
    project.log.topics.create("views", partitions=2)
    write(project, 0, *views_at(10, 500, 20), {"until": at(59)}, *views_at(59.5))
    write(project, 1, *views_at(15), {"until": at(90)})
    once(spark, project, app)
    assert found(project) == []
    with project.log.writer("views") as writer:  # as `topic write --complete until=…` does after a file
        writer.complete("until", START + timedelta(seconds=60))
    write(project, 0, *views_at(70))
    heard = once(spark, project, app)
    assert found(project) == [(0, 4)]
    assert not any(each.late or each.dead for each in heard)
    write(project, 0, {"until": (datetime.now(UTC) + timedelta(days=800)).isoformat()}, *views_at(80))
    heard = once(spark, project, app)
    assert (sum(each.dead for each in heard), sum(each.late for each in heard)) == (1, 0)


@pytest.mark.parametrize("how", ["once", "live"])
def test_an_input_without_a_record_holds_nothing_back(spark: SparkSession, project: Project, how: str) -> None:
    app = App("shop")
    given: Any = {"time": "at", "lateness": "0 seconds", "idle": "1 second", "partitions": 1}
    views, clicks = app.topic("views", SCHEMA, **given), app.topic("clicks", SCHEMA, **given)

    @app.stream(views, clicks)
    def unpaired(v: DataFrame, c: DataFrame) -> DataFrame:
        return mr.join(v, c, on="user", within=("0 s", "10 s"), how="left").where("right_at is null").select("at")

    project.log.topics.create("views", partitions=1)
    write(project, 0, *views_at(1, 2, 60))
    if how == "once":
        once(spark, project, app)
    else:
        with Run(app, project.settings, spark=spark) as run:
            until(lambda: run.poll() is not None and len(out(project)) == 2, "what has no pair", 60)
        # After a restart that input still has nothing to say.
        write(project, 0, *views_at(100))
        with Run(app, project.settings, spark=spark) as run:
            until(lambda: run.poll() is not None and len(out(project)) == 3, "what has no pair", 60)
    assert [row["at"][17:19] for row in out(project)][:2] == ["01", "02"]


def out(project: Project) -> list[Any]:
    return [record.json() for record in project.log.read("unpaired")] if project.log.topics.exists("unpaired") else []


def test_the_lag_follows_the_delays(spark: SparkSession, project: Project) -> None:
    app = App("shop")
    lateness = mr.adaptive(0.9, max="1 hour", margin="5 seconds")
    views = app.topic("views", SCHEMA, time="at", lateness=lateness, ahead=None, partitions=1)
    counting(views, app)
    project.log.topics.create("views", partitions=1)
    newest = datetime.now(UTC).replace(microsecond=0)
    with project.log.writer("views") as writer:
        for number in range(600):
            row = {"user": "u", "at": (newest - timedelta(seconds=number % 60)).isoformat()}
            writer.write(json.dumps(row).encode(), partition=0, time=newest)
    last = once(spark, project, app)[-1]
    assert last.watermark is not None
    lag = newest - last.watermark
    assert timedelta(seconds=53 + 5) <= lag <= timedelta(seconds=53 * 1.1 + 5 + 1)  # within the width of a bucket


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (lambda p: mr.window(p, "1 minute", n=mr.count(), late=mr.late.drop()), OptionInvalid, '"final"'),
        (lambda p: mr.window(p, "1 minute", n=mr.count(), emit="final"), OptionInvalid, "mr.late.drop"),
        (lambda p: mr.window(p, "1 minute", emit="final", late=mr.late.drop()), OptionInvalid, "mr.count"),
        (lambda p: windowed(p, every="2 minutes"), OptionInvalid, "belong to none"),
        (lambda p: windowed(p, zone="Europe/Berlin"), OptionInvalid, "whole days"),
        (lambda p: windowed(p, n=mr.sum("user")), OptionInvalid, "of numbers"),
        (lambda p: windowed(p.select("user")), TimeUnknown, "time column"),
        (lambda p: windowed(p, late=mr.late.side("views")), LateSideTaken, "also reads"),
        (lambda p: windowed(windowed(p, late=mr.late.side("a")), late=mr.late.side("b")), TimeUnknown, "time"),
        (lambda p: windowed(p, late=mr.late.side("a")).groupBy().count(), LateSideKeepsState, "second stream"),
        (
            lambda p: windowed(p, late=mr.late.side("a")).union(windowed(p, late=mr.late.side("b"))),
            LateSideTwice,
            "two streams",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    spark: SparkSession, project: Project, body: Any, error: type[Exception], says: str
) -> None:
    app = App("shop")
    views = app.topic("views", SCHEMA, time="at", lateness="0 seconds")
    app.stream(views, name="counts")(lambda p: body(p))
    with pytest.raises(error, match=says), Run(app, project.settings, once=True, spark=spark):
        pass


def windowed(p: DataFrame, **given: Any) -> DataFrame:
    return mr.window(p, "1 minute", **{"n": mr.count(), "emit": "final", "late": mr.late.drop(), **given})


def test_names(spark: SparkSession, project: Project) -> None:
    rows: Sequence[Any] = [("a", START)]
    batch = spark.createDataFrame(rows, "user string, at timestamp")
    assert windowed(batch, time="at", by="user").columns == ["user", "window_start", "window_end", "n"]
