"""Point-in-time training sets: what a batch makes of the history in the lake is what the live flow told, row by row."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.flow import App
from tests.engine.conftest import Project
from tests.engine.items import once

pytestmark = [pytest.mark.spark, pytest.mark.server]

START = datetime(2026, 1, 1, 10, tzinfo=UTC)
LATENESS: Any = "1 hour"
ITEMS = 6
TOLD: dict[str, Any] = {"emit": "updates", "late": mr.late.drop()}


def priced(s: DataFrame, p: DataFrame) -> DataFrame:
    return mr.as_of(s, p, on="item", order="n", **TOLD)


def made() -> App:
    app = App("train")
    timed: dict[str, Any] = {"time": "at", "lateness": LATENESS}
    sales = app.topic("sales", "id long, item long, at timestamp", **timed)
    prices = app.topic("prices", "item long, price long, n long, at timestamp", **timed)
    items = app.table("items", "id long, name string", key="id")
    app.stream(sales, prices, key="id")(priced)

    @app.stream(sales, items, key="id")
    def named(s: DataFrame, i: DataFrame) -> DataFrame:
        return mr.as_of(s, i, on="item", lateness=LATENESS, **TOLD)

    @app.stream(items.changes, key="id")
    def item_changes(c: DataFrame) -> DataFrame:
        return c.selectExpr("coalesce(after.id, before.id) AS id", "after.name", "op = 'd' AS gone", "at", "offset")

    sales.to(mr.lake("sales"))
    prices.to(mr.lake("prices"))
    item_changes.to(mr.lake("item_changes"))
    return app


def moment(draw: random.Random) -> datetime:
    """Few of them, so that several changes of an item have the same."""
    return START + timedelta(minutes=1 + draw.randrange(40))


def put(project: Project, draw: random.Random, part: int) -> None:
    """Sales and changes in any order of their times. What a log has of an item's row is in the order of its commits."""
    rows = [{"item": draw.randrange(ITEMS), "at": moment(draw).isoformat()} for _ in range(120)]
    priced_at = [{**row, "price": draw.randrange(1_000), "n": 120 * part + n} for n, row in enumerate(rows)]
    project.write("prices", [json.dumps(row).encode() for row in priced_at])
    sold = [{"id": 120 * part + n, "item": draw.randrange(ITEMS + 1)} for n in range(120)]
    at = [(moment(draw) + timedelta(seconds=draw.randrange(2))).isoformat() for _ in sold]
    project.write("sales", [json.dumps({**row, "at": at[n]}).encode() for n, row in enumerate(sold)])
    commits = [20 * part, *sorted(20 * part + draw.randrange(20) for _ in range(59))]
    with project.log.writer("items") as writer:
        for number, minute in enumerate(commits):
            # Each item at first, and then each twice in a row, often in the same minute.
            key = number % ITEMS if number < ITEMS else number // 2 % ITEMS
            gone = number >= ITEMS and draw.random() < 0.2
            row = {"id": key, "name": f"{part}-{number}"}
            time_us = int((START + timedelta(minutes=minute)).timestamp() * 1_000_000)
            value = {
                "op": "d" if gone else "c",
                "before": {"id": key, "name": None} if gone else None,
                "after": None if gone else row,
                "source": {"ts_us": time_us, "lsn": number},
            }
            writer.write(value, key=json.dumps({"id": key}), partition=key % 2)


@pytest.mark.turn(1, 2)
def test_the_lakes_history_gives_what_the_live_flow_told_last(project: Project, spark: SparkSession) -> None:
    draw = random.Random(datetime.now(UTC).toordinal())
    for topic in ("sales", "prices", "items"):
        project.log.topics.create(topic, partitions=2 if topic == "items" else 1)
    for part in range(2):
        put(project, draw, part)
        once(spark, project.settings, made())

    def live(topic: str, column: str) -> dict[int, Any]:
        return {row["id"]: row[column] for row in (record.json() for record in project.log.read(topic))}

    def batch(rows: DataFrame, column: str) -> dict[int, Any]:
        return {row["id"]: row[column] for row in rows.collect()}

    past = App("past")
    sales, prices, changes = (
        mr.now(past.lake(table), spark, project.settings) for table in ("sales", "prices", "item_changes")
    )
    found = batch(priced(sales, prices), "price")
    assert len(found) == 240
    assert found == live("priced", "price")
    of: dict[str, Any] = {"on": "item", "key": "id", "deleted": "gone", "since": START, **TOLD}
    named = mr.as_of(sales, changes, order="offset", **of)
    assert batch(named, "name") == live("named", "name")
    assert None in batch(named, "name").values()
    # Changes of one moment are many here: by another order another one would count for some.
    backwards = changes.withColumn("offset", -F.col("offset"))
    assert batch(mr.as_of(sales, backwards, order="offset", **of), "name") != live("named", "name")
