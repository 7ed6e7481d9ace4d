"""Sinks in a play: what they would be given is seen, over crashes, and no server is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr
from millrace.testing import Play

pytestmark = pytest.mark.spark


def test_what_sinks_are_given(play: Callable[..., Play]) -> None:
    app = mr.App("shop")
    orders = app.table("orders", "id long, amount long", key="id")
    views = app.topic("views", "url string, user long")

    @app.stream(views, key="url", emit="updates")
    def counts(p: DataFrame) -> DataFrame:
        return p.groupBy("url").agg(F.count("user").alias("views"))

    orders.to(mr.postgres("orders"), mr.files("orders"))
    counts.to(mr.postgres("counts", key="url"))
    views.to(mr.terminal())
    with play(app) as shop:
        shop.feed(views, [{"url": "/a", "user": 1}, {"url": "/a", "user": 2}])
        shop.expect("postgres.counts", [{"url": "/a", "views": 2, "__diff": 1}])
        shop.expect("terminal", [{"user": 1}, {"user": 2}])
        shop.feed(orders, [{"id": 1, "amount": 5}, {"id": 2, "amount": 6}])
        shop.crash()
        shop.feed(orders, [{"id": 1, "amount": 7}])
        shop.delete(orders, [{"id": 2}])
        given: list[dict[str, Any]] = shop.rows("postgres.orders")
        assert [(row["id"], row["amount"], row["__diff"]) for row in given if row["id"] == 1] == [(1, 5, 1), (1, 7, 1)]
        assert [(row["id"], row["__diff"]) for row in given if row["id"] == 2] == [(2, 1), (2, -1)]
        assert len(shop.rows("files.orders")) == 5


def test_an_epoch_that_is_done_again_is_given_once(play: Callable[..., Play]) -> None:
    app = mr.App("shop")
    views = app.topic("views", "url string, user long")

    @app.stream(views, key="url", emit="updates")
    def counts(p: DataFrame) -> DataFrame:
        return p.groupBy("url").agg(F.count("user").alias("views"))

    counts.to(mr.postgres("counts", key="url"))
    with play(app) as shop:
        shop.feed(views, [{"url": "/a", "user": 1}], crash="before write")
        shop.feed(views, [{"url": "/a", "user": 2}])
        assert shop.rows("postgres.counts")[-1]["views"] == 2
