"""Lookups in real time: whoever starts reads what is there first, so that events meet no table of which rows lack."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.items import Items

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.usefixtures("whole_epochs")]

ROWS = 3_000


def app_of() -> mr.App:
    app = mr.App("now")
    items = app.table("items", "id long, name string", key="id")
    sales = app.topic("sales", "id long, item long, at timestamp", time="at", lateness="10 seconds", ahead=None)

    @app.stream(sales, items, key="id", mode="realtime", epoch="10 minutes")
    def named(sales: DataFrame, items: DataFrame) -> DataFrame:
        return mr.lookup(sales, items, on="item").select("id", "name")

    return app


@pytest.mark.turn(1, 2)
def test_the_first_events_of_a_start_find_every_row(project: Project, spark: SparkSession) -> None:
    items, sold = Items(project), 0
    project.log.topics.create("sales", partitions=1)

    def sell(*wanted: int) -> dict[int, Any]:
        """What these are to find, as the table is now."""
        nonlocal sold
        found = {sold + place: items.rows.get(item) for place, item in enumerate(wanted)}
        rows = [{"id": sold + place, "item": item, "at": "2026-01-01T00:00:00Z"} for place, item in enumerate(wanted)]
        project.write("sales", [json.dumps(row).encode() for row in rows], 0)
        sold += len(wanted)
        return found

    def told() -> list[tuple[int, Any]]:
        there = project.log.topics.exists("named")
        return (
            [(row["id"], row["name"]) for row in (each.json() for each in project.log.read("named"))] if there else []
        )

    def come(run: Run, wanted: dict[int, Any]) -> None:
        def there() -> bool:
            run.poll()
            return wanted.keys() <= {number for number, _ in told()}

        until(there, f"events {list(wanted)}", 120)
        assert {number: name for number, name in told() if number in wanted} == wanted

    def in_real_time(run: Run) -> None:
        until(lambda: run.poll() is not None and run.flows["named"].slots > 0, "real time", 120)
        assert not run.done

    # The newest rows are those that real time would read last.
    items.put(*((key, f"n{key}") for key in range(ROWS)))
    first = sell(*range(ROWS - 20, ROWS + 2))
    with Run(app_of(), project.settings, spark=spark) as run:
        come(run, first)
        in_real_time(run)
        items.put((1, "one"), (2, None), (ROWS, "new"))
        # From now on changes and events come as they come: it is asked until the change is there.
        for key, name in ((1, "one"), (2, None), (ROWS, "new")):
            until(lambda key=key, name=name: _finds(run, sell, told, key) == name, f"{key} is {name}", 120)  # type: ignore[misc]
    # And what has come while nobody ran.
    items.put(*((key, f"m{key}") for key in range(ROWS)))
    later = sell(0, 1, 2, ROWS - 1, ROWS)
    with Run(app_of(), project.settings, spark=spark) as run:
        come(run, later)
        in_real_time(run)
        come(run, sell(5, 6))
    assert len(told()) == len(set(told())), "nothing is told again after a stop"


def _finds(run: Run, sell: Any, told: Any, item: int) -> Any:
    """What an event that is written now finds."""
    (number,) = sell(item)

    def there() -> bool:
        run.poll()
        return any(each == number for each, _ in told())

    until(there, f"event {number}", 120)
    return next(name for each, name in told() if each == number)
