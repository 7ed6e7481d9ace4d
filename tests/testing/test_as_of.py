"""Whole flows that join as of the event's time: with a topic as the table, and with a captured one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

import millrace as mr
from millrace.testing import Play

pytestmark = pytest.mark.spark

Begin = Callable[..., Play]


@pytest.mark.turn(2, 3)
def test_prices_and_customers_are_those_of_the_orders_time(play: Begin) -> None:
    app = mr.App("shop")
    db = app.capture("shop", ["customers"])
    # A topic that was silent since midnight would not be waited for.
    lately = {"time": "at", "lateness": "5 seconds", "idle": "1 day"}
    prices = app.topic("prices", "item long, price long, at timestamp", **lately)
    orders = app.topic("orders", "id long, item long, customer long, at timestamp", **lately)

    @app.stream(orders, prices, key="id")
    def priced(o: DataFrame, p: DataFrame) -> DataFrame:
        return mr.as_of(o, p, on="item", emit="final", late=mr.late.side("too_late"), deleted="price < 0")

    @app.stream(orders, db.customers, key="id")
    def placed(o: DataFrame, c: DataFrame) -> DataFrame:
        late = mr.late.allow("1 minute")
        return mr.as_of(o, c, on="customer", emit="updates", late=late, lateness="5 seconds", prefix="customer_")

    p = play(app)
    p.table(db.customers, "id long, city string", key="id")
    p.feed(prices, [{"item": 1, "price": 10, "at": "10:00:00"}, {"item": 1, "price": 20, "at": "10:01:00"}])
    p.feed(db.customers, [{"id": 7, "city": "Ulm"}])  # at 10:01:00
    p.feed(
        orders,
        """
        | id | item | customer | at       |
        | 1  | 1    | 7        | 10:00:30 |
        | 2  | 1    | 7        | 10:01:00 |
        | 3  | 2    | 8        | 10:01:01 |
    """,
    )
    # Only the first is known to be complete. The customer had not come by then.
    p.expect(priced, [{"id": 1, "price": 10, "table_at": "10:00:00"}])
    p.expect(placed, [{"id": 1, "city": None}, {"id": 2, "city": "Ulm"}, {"id": 3, "city": None}])

    # A change that comes after the event, and happened before it.
    p.feed(orders, [{"id": 4, "item": 1, "customer": 7, "at": "10:02:00", "arrival": "10:01:40"}])
    p.expect(placed, [{"id": 4, "city": "Ulm", "corrected": False, "replaces": None}])
    p.feed(db.customers, [{"id": 7, "city": "Bonn"}], crash="after write")
    p.restart()
    told = {"id": 4, "city": "Bonn", "corrected": True, "replaces": '{"city": "Ulm"}'}
    p.expect(placed, [told, told])  # the epoch comes again, the same

    p.feed(prices, [{"item": 1, "price": -1, "at": "10:01:50"}, {"item": 2, "price": 5, "at": "10:03:00"}])
    p.feed(orders, [{"id": 5, "item": 2, "customer": 9, "at": "10:03:00"}], crash="after write")
    p.restart()
    # Told by an epoch that only moves time on, which came after the one that was done again.
    p.expect(priced, [{"id": 2, "price": 20}, {"id": 3, "price": None}, {"id": 4, "price": None}])
    p.feed(orders, [{"id": 6, "item": 1, "customer": 7, "at": "10:02:54"}])
    (refused,) = p.rows("too_late")
    assert (refused["row"]["id"], refused["late_ms"]) == (6, 1_000)
    assert p.late(priced) == 1
