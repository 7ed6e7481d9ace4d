"""`millrace run --from lake`: history that Kafka no longer has, and then the topic, with no gap and no repeat."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.config import Lake, Secret
from millrace.engine import Run
from millrace.engine.replay import Replay
from millrace.errors import ArchiveMissing, ReplayInvalid
from millrace.flow import App
from millrace.lakehouse import Catalog
from millrace.lakehouse.archive import archive
from tests.engine.conftest import Project
from tests.engine.items import Items, once
from tests.log.making import forget_before
from tests.rotation import todays

pytestmark = [pytest.mark.spark, pytest.mark.server]

PARTITIONS = 2


START = datetime(2026, 1, 1, tzinfo=UTC)


def made() -> App:
    app = App("shop")
    payments = app.topic(
        "payments", "id long, amount long, at timestamp", time="at", lateness="1 hour", partitions=PARTITIONS
    )

    @app.stream(payments, key="id")
    def doubled(p: DataFrame) -> DataFrame:
        return p.selectExpr("id", "amount * 2 AS amount")

    @app.stream(payments, key="kind")
    def per_minute(p: DataFrame) -> DataFrame:
        kinds = p.withColumn("kind", F.col("id") % 3)
        sums = {"n": mr.count(), "total": mr.sum("amount")}
        return mr.window(kinds, "1 minute", by="kind", **sums, emit="updates", late=mr.late.side("late_payments"))

    items = app.table("items", "id long, name string", key="id")

    @app.stream(payments, items, key="id")
    def named(p: DataFrame, i: DataFrame) -> DataFrame:
        return mr.lookup(p.withColumn("item", F.col("id") % 3), i, on="item").select("id", "name")

    # What only a sink reads is not replayed, and needs no archive.
    app.topic("visits", "id long").to(mr.files("visits"))
    return app


def put(project: Project, first: int, end: int) -> None:
    """A payment every ten seconds, in both partitions, two of three in the first."""
    for partition in range(PARTITIONS):
        mine = [n for n in range(first, end) if (n % 3 == 0) == (partition == 1)]
        rows = [{"id": n, "amount": n, "at": (START + timedelta(seconds=10 * n)).isoformat()} for n in mine]
        project.write("payments", [json.dumps(row).encode() for row in rows], partition)


def got(project: Project, topic: str) -> list[tuple[int, int]]:
    return [(row["id"], row["amount"]) for row in (record.json() for record in project.log.read(topic))]


def names(project: Project) -> dict[int, str]:
    return {row["id"]: row["name"] for row in (each.json() for each in project.log.read("named.again"))}


def windows(project: Project, topic: str) -> dict[tuple[int, int], tuple[int, int]]:
    """What was said last of each window: by kind and minute how many and how much."""
    found = {}
    for row in (record.json() for record in project.log.read(topic)):
        begun = datetime.fromisoformat(row["window_start"].replace("Z", "+00:00"))
        found[row["kind"], (begun - START) // timedelta(minutes=1)] = (row["n"], row["total"])
    return found


def wanted(end: int) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for n in range(end):
        count, total = found.get((n % 3, n // 6), (0, 0))
        found[n % 3, n // 6] = (count + 1, total + n)
    return found


@pytest.mark.parametrize("kind", todays(("delta", "iceberg"), 1))
def test_history_from_the_lake_and_on_from_the_topic(
    kind: str, project: Project, spark: SparkSession, postgres: str
) -> None:
    catalog = Secret("lake.catalog", postgres.rpartition("/")[0] + "/millrace")
    settings = replace(project.settings, lake=Lake(catalog=catalog))
    project.log.topics.create("payments", partitions=PARTITIONS)
    Items(project).put((0, "none"), (1, "one"), (2, "two"), (1, "uno"))
    put(project, 0, 50)
    with contextlib.closing(Catalog(settings).table("payments", kind)) as table:
        assert archive(project.log, "payments", table, most=20) == 50
    put(project, 50, 80)
    forget_before(project.log, "payments", 30)
    replay = Replay("again", lake=True)
    once(spark, settings, made(), replay=replay)
    assert sorted(got(project, "doubled.again")) == [(n, 2 * n) for n in range(80)]
    assert windows(project, "per_minute.again") == wanted(80)
    assert names(project) == {n: ("none", "uno", "two")[n % 3] for n in range(80)}
    # More comes, and it is run again: it goes on behind what it has.
    put(project, 80, 90)
    # What is restored grows no more, so it ends whether or not somebody says so.
    with Run(made(), settings, spark=spark, traffic=False, replay=replay) as run:
        assert run.once
        while not run.done:
            run.poll()
        run.stop()
    assert sorted(got(project, "doubled.again")) == [(n, 2 * n) for n in range(90)]
    assert windows(project, "per_minute.again") == wanted(90)
    assert not project.log.topics.exists("doubled")
    late = "late_payments.again"
    assert not project.log.topics.exists(late) or not list(project.log.read(late))

    with pytest.raises(ReplayInvalid, match="was begun with `--from lake`"):
        once(spark, settings, made(), replay=Replay("again"))
    other: Any = App("shop")
    clicks = other.topic("clicks", "id long")
    other.stream(clicks, key="id", name="copied")(lambda c: c)
    project.log.topics.create("clicks", partitions=1)
    with pytest.raises(ArchiveMissing, match=r"no archive of topic 'clicks'.*`millrace lake archive clicks`"):
        once(spark, settings, other, replay=replay)
    tables = App("shop")
    items = tables.table("items", "id long", key="id")
    tables.stream(items, key="id", name="kept")(lambda rows: rows)
    with pytest.raises(ReplayInvalid, match="no topic whose records go, and tables keep every row"):
        once(spark, settings, tables, replay=replay)
