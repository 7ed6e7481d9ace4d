"""As-of joins in real time: an event leaves at once, and again when a change comes that it should have seen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run
from tests.command import until
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.usefixtures("whole_epochs")]


@pytest.mark.turn(2, 3)
def test_events_are_told_at_once_and_corrected_over_a_restart(project: Project, spark: SparkSession) -> None:
    app = mr.App("now")
    lately: Any = {"time": "at", "lateness": "1 minute", "ahead": None}
    prices = app.topic("prices", "item long, price long, at timestamp", **lately)
    orders = app.topic("orders", "id long, item long, at timestamp", **lately)

    @app.stream(orders, prices, key="id", mode="realtime", epoch="10 minutes")
    def priced(o: DataFrame, p: DataFrame) -> DataFrame:
        return mr.as_of(o, p, on="item", emit="updates", late=mr.late.drop())

    def write(topic: str, second: int, **row: int) -> None:
        at = f"2026-01-01T00:00:{second:02}Z"
        project.write(topic, [json.dumps({**row, "at": at}).encode()], 0)

    def told() -> list[tuple[Any, ...]]:
        rows = [record.json() for record in project.log.read("priced")] if project.log.topics.exists("priced") else []
        return [(row["id"], row["price"], row["corrected"], (row["replaces"] or {}).get("price")) for row in rows]

    def come(run: Run, expected: dict[int, int | None]) -> None:
        """What was told last: whether an order or a price is read first is chance."""

        def there() -> bool:
            run.poll()
            return {row[0]: row[1] for row in told()} == expected

        until(there, f"{expected}", 120)

    for topic in ("prices", "orders"):
        project.log.topics.create(topic, partitions=1)
    with Run(app, project.settings, spark=spark) as run:
        write("orders", 10, id=1, item=7)
        come(run, {1: None})
        write("prices", 5, item=7, price=10)
        come(run, {1: 10})
        assert told() == [(1, None, False, None), (1, 10, True, None)]
        write("prices", 20, item=7, price=30)  # after it
        write("orders", 30, id=2, item=7)
        come(run, {1: 10, 2: 30})
        run.stop()
    first = told()
    with Run(app, project.settings, spark=spark) as run:
        write("prices", 8, item=7, price=20)
        come(run, {1: 20, 2: 30})
        assert told() == [*first, (1, 20, True, 10)]
        run.stop()
