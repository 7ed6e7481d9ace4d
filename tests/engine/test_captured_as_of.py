"""As-of joins with a captured table of a real database: what a row was when the event happened, by the times of its
commits, epoch by epoch and then in real time with the same state."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run
from millrace.flow import App
from tests.command import until
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]


def app_of(shop: Shop, mode: Any) -> App:
    app = App(f"app-{shop.name}")
    db = app.capture(shop.name, ["items"])
    sales = app.topic(
        f"{shop.name}-sales", "id long, item int, at timestamp", time="at", lateness="1 hour", ahead="2 hours"
    )

    @app.stream(sales, db.items, key="id", name=f"{shop.name}-priced", mode=mode)
    def priced(sales: DataFrame, items: DataFrame) -> DataFrame:
        return mr.as_of(sales, items, on="item", emit="updates", late=mr.late.drop(), lateness="1 hour")

    return app


@pytest.mark.turn(0, 2)
def test_events_have_the_price_of_their_time(shop: Shop, spark: SparkSession) -> None:
    log = shop.captures.log
    shop.run("CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2))", "INSERT INTO items VALUES (7, 10)")
    log.topics.create(f"{shop.name}-sales", partitions=2)

    def now() -> datetime:
        """Of the database: a moment between two commits."""
        (found,) = shop.run("SELECT clock_timestamp()")
        return found[0]

    def sell(number: int, at: datetime) -> None:
        sold = {"id": number, "item": 7, "at": at.isoformat()}
        log.write(f"{shop.name}-sales", sold, key=str(number))

    def come(run: Run, expected: dict[int, Any]) -> None:
        def there() -> bool:
            run.poll()
            if not log.topics.exists(f"{shop.name}-priced"):
                return False
            rows = [record.json() for record in log.read(f"{shop.name}-priced")]
            return {row["id"]: row["price"] for row in rows} == expected

        until(there, f"{expected}", 120)

    with Run(app_of(shop, "microbatch"), shop.settings, spark=spark) as run:
        until(lambda: run.poll() or run.flows, "the snapshot to be read")  # what was before it nobody knows
        first = now()
        shop.run("UPDATE items SET price = 20 WHERE id = 7")
        second = now()
        shop.run("DELETE FROM items WHERE id = 7")
        sell(1, first)
        sell(2, second)
        sell(3, now())
        come(run, {1: 10.0, 2: 20.0, 3: None})
        run.stop()
    with Run(app_of(shop, "realtime"), shop.settings, spark=spark) as run:
        shop.run("INSERT INTO items VALUES (7, 30)")
        sell(4, second)
        sell(5, now())
        come(run, {1: 10.0, 2: 20.0, 3: None, 4: 20.0, 5: 30.0})
        run.stop()
