"""Patterns in whole flows, through a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

import millrace as mr
from millrace.testing import Play

pytestmark = pytest.mark.spark

Begin = Callable[..., Play]


def test_a_card_that_is_tried_with_small_amounts_and_an_order_that_nobody_pays(play: Begin) -> None:
    app = mr.App("shop")
    payments = app.topic("payments", "card string, amount double, at timestamp", time="at", lateness="10 seconds")
    events = app.topic("events", "customer long, what string, at timestamp", time="at", lateness="10 seconds")

    @app.stream(payments, key="card")
    def tested(p: DataFrame) -> DataFrame:
        small_then_large = {"small": "amount < 2", "large": "amount > 500"}
        measures = {"tries": mr.count("small"), "big": mr.last("large.amount")}
        return mr.match(
            p, by="card", pattern="small{3,} large", define=small_then_large, within="10 minutes",
            measures=measures, late=mr.late.drop(),
        )  # fmt: skip

    @app.stream(events, key="customer")
    def unpaid(e: DataFrame) -> DataFrame:
        is_a = {name: f"what = '{name}'" for name in ("order", "payment")}
        late = mr.late.side("late_events")
        return mr.match(e, by="customer", pattern="order !payment", define=is_a, within="1 hour", late=late)

    p = play(app)
    # 10:00:40 came last but happened before the large one.
    amounts = {"10:00:10": 1, "10:00:20": 1.5, "10:00:50": 900, "10:00:40": 0.5}
    p.feed(payments, [{"card": "c", "amount": amount, "at": at} for at, amount in amounts.items()])
    p.expect(tested)  # a smaller one might still come in between
    p.feed(payments, [{"card": "d", "amount": 1, "at": "10:01:01"}], crash="before write")
    p.restart()
    p.expect(tested, [{"card": "c", "match_start": "10:00:10", "match_end": "10:00:50", "tries": 3, "big": 900.0}])

    def happened(customer: int, what: str, at: str) -> dict[str, object]:
        return {"customer": customer, "what": what, "at": at}

    p.feed(events, [happened(1, "order", "10:00"), happened(2, "order", "10:05"), happened(1, "payment", "10:59:59")])
    p.feed(events, [happened(2, "visit", "11:05:09")], crash="after commit")
    p.expect(unpaid)
    p.feed(events, [happened(2, "payment", "11:05:10")])  # an hour after the order, and the watermark is at 11:05
    p.feed(events, [])
    p.expect(unpaid, [{"customer": 2, "match_start": "10:05", "match_end": "10:05"}])
    p.feed(events, [happened(1, "payment", "10:30")])
    p.expect("late_events", [{"late_ms": 35 * 60_000}])
    assert p.late(unpaid) == 1
