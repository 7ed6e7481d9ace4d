"""Rows that are left out although they are not late are seen: of a model that skips them, of a table without a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.testing import Play
from tests.flow.test_score import Ml

pytestmark = pytest.mark.spark


def test_what_is_left_out_is_counted(play: Callable[..., Play], spark: SparkSession) -> None:
    ml = Ml(spark)
    invalid: Any = "skip"
    model = ml.pipeline(
        ml.indexer(invalid, "item", "place", ["a", "b"]),
        ml.assembler(invalid, ["amount", "tax", "place"], "features"),
        ml.linear([2.0, 1.0, 10.0], 0.5, False),
    )
    app = mr.App("shop")
    lately: Any = {"time": "at", "lateness": "5 seconds"}
    prices = app.topic("prices", "item string, shop int, price long, at timestamp", **lately)
    orders = app.topic("orders", "id long, item string, shop int, amount double, tax double, at timestamp", **lately)

    @app.stream(orders, key="id")
    def scored(o: DataFrame) -> DataFrame:
        return mr.score(model, o)

    @app.stream(orders, prices, key="id")
    def priced(o: DataFrame, p: DataFrame) -> DataFrame:
        return mr.as_of(o, p, on=["item", "shop"], emit="updates", late=mr.late.drop())

    p = play(app)
    p.feed(
        prices,
        """
        | item | shop | price | at       |
        | a    | 1    | 10    | 10:00:00 |
        |      | 1    | 20    | 10:00:00 |
        | a    |      | 30    | 10:00:00 |
        |      |      | 40    | 10:00:00 |
    """,
    )
    p.feed(
        orders,
        """
        | id | item | shop | amount | tax  | at       |
        | 1  | a    | 1    | 1.0    | 0.0  | 10:00:01 |
        | 2  | c    | 1    | 1.0    | 0.0  | 10:00:01 |
        | 3  | b    |      | 1.0    |      | 10:00:01 |
        | 4  | b    | 1    |        |      | 10:00:01 |
    """,
    )
    p.expect(scored, [{"id": 1, "prediction": 2.5}])
    p.expect(priced, [{"id": 1, "price": 10}, *({"id": n, "price": None} for n in (2, 3, 4))])
    # A row is left out once, however many of its columns are null.
    assert {name: sum(each.left_out for each in p.progress if each.flow == name) for name in ("scored", "priced")} == {
        "scored": 3,
        "priced": 3,
    }
    assert p.late() == 0
