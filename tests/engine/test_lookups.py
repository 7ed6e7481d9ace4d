"""Events looked up in a captured table: with the rows that were there long before, and as they change."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.capture import status
from millrace.engine import Run
from millrace.engine.changes import answers
from millrace.engine.definition import CHECKPOINT, folder_of
from millrace.engine.epochs import offsets
from millrace.engine.stopping import epochs
from millrace.errors import RowUnreadable
from millrace.flow import App
from tests.command import until
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(10, 2))"
FAR = 5_000_000_000
SALES = "id long, item long, at timestamp"


def app_of(shop: Shop, how: Any = "left") -> App:
    app = App(f"app-{shop.name}")
    db = app.capture(shop.name, ["items"])
    sales = app.topic(f"{shop.name}-sales", SALES, time="at", lateness="10 seconds", idle="1 second", ahead=None)

    @app.stream(sales, db.items, key="id", name=f"{shop.name}-named")
    def named(sales: DataFrame, items: DataFrame) -> DataFrame:
        return mr.lookup(sales, items, on="item", how=how, prefix="item_").drop("at")

    @app.stream(sales, db.items, name=f"{shop.name}-counted")
    def counted(sales: DataFrame, items: DataFrame) -> DataFrame:
        found = mr.lookup(sales, items, on="item", prefix="item_")
        return mr.window(
            found, "1 minute", by="price", sales=mr.count(), emit="final", late=mr.late.side(f"{shop.name}-late")
        )

    return app


class Sales:
    """Writes events and reads what became of them."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.log, self.count = shop, shop.captures.log, 0

    def sell(self, *items: int | None, minute: int = 0) -> list[int]:
        first = self.count
        self.count += len(items)
        with self.log.writer(f"{self.shop.name}-sales") as writer:
            for number, item in enumerate(items, first):
                at = f"2026-01-01T00:{minute:02}:00Z"
                writer.write(json.dumps({"id": number, "item": item, "at": at}), partition=number % 2)
        return list(range(first, self.count))

    def named(self) -> dict[int, dict[str, Any]]:
        topic = f"{self.shop.name}-named"
        if not self.log.topics.exists(topic):
            return {}
        return {row.pop("id"): row for row in (record.json() for record in self.log.read(topic))}

    def captured(self, text: str) -> None:
        """Waits until a change is in the topic."""
        topic = f"{self.shop.name}.public.items"
        until(
            lambda: any(text in (record.value or b"").decode() for record in self.log.read(topic)), f"{text} captured"
        )


def hold_snapshot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """As if a snapshot took until it is let go."""
    unread, held = status.unread, [True]
    monkeypatch.setattr(status, "unread", lambda *given: ("public.items",) if held else unread(*given))
    return held.clear


def come(run: Run, sales: Sales, numbers: list[int], column: str = "name") -> list[dict[str, Any]]:
    """What became of these events, once all have come with this column, and are counted as the table is now."""
    counted = folder_of(sales.shop.settings, f"app-{sales.shop.name}", f"{sales.shop.name}-counted") / CHECKPOINT

    def are_counted() -> bool:
        if f"{sales.shop.name}-counted" not in run.standings:
            return True
        done = epochs(counted / "commits")
        read = [each.get(f"{sales.shop.name}-sales") for each in offsets(counted, done[-1]) or []] if done else []
        return sales.count in [sum(each.values()) for each in read if each]

    def there() -> bool:
        run.poll()
        found = sales.named()
        return all(column in found.get(number, {}) for number in numbers) and are_counted()

    until(there, f"events {numbers}", 120)
    return [sales.named()[number] for number in numbers]


@pytest.mark.turn(1, 2)
def test_events_find_the_rows_of_a_table_as_it_is(
    shop: Shop, spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run(ITEMS, "INSERT INTO items SELECT n, 'n' || n, n FROM generate_series(1, 3000) n")
    app, sales = app_of(shop), Sales(shop)
    shop.captures.log.topics.create(f"{shop.name}-sales", partitions=2)
    first = sales.sell(3000, 1, None, 4000)
    # The capture is made by the run: events wait for the snapshot.
    caplog.set_level(logging.WARNING, "millrace.engine")
    let_go = hold_snapshot(monkeypatch)
    with Run(app, shop.settings, spark=spark) as run:
        until(lambda: "waits until all rows" in caplog.text, "the flow waits")
        run.poll()
        assert not sales.named()
        let_go()
        assert [row["name"] for row in come(run, sales, first)] == ["n3000", "n1", None, None]
        assert not status.unread(shop.captures, shop.name)
        shop.run("UPDATE items SET name = 'one' WHERE id = 1", "DELETE FROM items WHERE id = 3000")
        shop.run("INSERT INTO items VALUES (4000, 'new', 4)")
        sales.captured('"new"')
        later = sales.sell(3000, 1, 4000, minute=1)
        assert [row["name"] for row in come(run, sales, later)] == [None, "one", "new"]

        # Columns come and go; rows from before have the default.
        shop.run(
            "ALTER TABLE items ADD COLUMN stock int DEFAULT 7",
            "ALTER TABLE items RENAME COLUMN name TO title",
            "UPDATE items SET price = 8 WHERE id = 1",
        )
        sales.captured('"stock"')
        assert come(run, sales, sales.sell(1, 2, 5, 4001, minute=9), "title") == [
            {"item": 1, "title": "one", "price": 8.0, "stock": 7},
            {"item": 2, "title": "n2", "price": 2.0, "stock": 7},
            {"item": 5, "title": "n5", "price": 5.0, "stock": 7},
            {"item": 4001, "title": None, "price": None, "stock": None},
        ]
        run.stop()

    # A restart goes on with the state; a window behind it counted what was found, and its minutes have closed.
    shop.run("UPDATE items SET title = 'away' WHERE id = 2")
    sales.captured('"away"')
    last = sales.sell(2, minute=10)
    late = sales.sell(1, minute=1)
    with Run(app, shop.settings, spark=spark, once=True) as run:
        while not run.done:
            run.poll()
        run.stop()
    assert [sales.named()[number]["title"] for number in last] == ["away"]
    (refused,) = (record.json() for record in sales.log.read(f"{shop.name}-late"))
    assert (refused["row"]["id"], refused["row"]["price"]) == (late[0], 8.0)
    told = [record.json() for record in sales.log.read(f"{shop.name}-counted")]
    assert {(row["window_start"][14:16], row["price"]): row["sales"] for row in told} == {
        ("00", 3000.0): 1, ("00", 1.0): 1, ("00", None): 2, ("01", None): 1, ("01", 1.0): 1, ("01", 4.0): 1,
    }  # fmt: skip


@pytest.mark.turn(0, 2)
def test_the_same_state_may_be_asked_otherwise(shop: Shop, spark: SparkSession) -> None:
    shop.run(ITEMS, "INSERT INTO items VALUES (1, 'one', 1)")
    app, inner, sales = app_of(shop), app_of(shop, "inner"), Sales(shop)
    only = [f"{shop.name}-named"]
    shop.captures.log.topics.create(f"{shop.name}-sales", partitions=2)
    with Run(app, shop.settings, spark=spark, only=only) as run:
        come(run, sales, sales.sell(1, 2))
        # Nor is a wider key.
        shop.run("ALTER TABLE items ALTER COLUMN id TYPE bigint", f"INSERT INTO items VALUES ({FAR}, 'far', 1)")
        sales.captured('"far"')
        assert come(run, sales, sales.sell(FAR))[0]["name"] == "far"
    assert [answer.verdict for answer in answers(app.graph(), shop.settings, spark)] == ["same", "new"]
    assert [answer.verdict for answer in answers(inner.graph(), shop.settings, spark)] == ["compatible", "new"]
    left_out, found = sales.sell(2, 1)

    def asked_and_broken() -> None:
        with Run(inner, shop.settings, spark=spark, only=only) as run:
            come(run, sales, [found])
            assert left_out not in sales.named()
            shop.captures.log.write(f"{shop.name}.public.items", {"no": "envelope"}, key='{"id":9}')
            come(run, sales, [found + 1])

    with pytest.raises(RowUnreadable, match="not Debezium's envelope"):
        asked_and_broken()
