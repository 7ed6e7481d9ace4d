"""What flows keep while they run: each operator by its name and line, its keys in words; and how many partial matches
there are, through a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import definition
from millrace.engine.state import State
from millrace.errors import StateKeyAbsent, StateKeyUnfit
from millrace.testing import Play

pytestmark = pytest.mark.spark


def test_the_state_of_flows_that_run(spark: SparkSession, play: Callable[..., Play]) -> None:
    app = mr.App("shop")
    views = app.topic("views", "user long, url string, at timestamp", time="at", lateness="10 seconds")

    @app.stream(views)
    def busiest(v: DataFrame) -> DataFrame:
        given: Any = {"emit": "updates", "late": mr.late.drop()}
        pages = mr.window(v, "1 minute", by=["url", "user"], views=mr.count(), newest=mr.max("at"), **given)
        return mr.top(pages.drop("window_end"), 2, by="url", order="-views", emit="updates")

    @app.stream(views)
    def left(v: DataFrame) -> DataFrame:
        is_a = {name: f"url = '/{name}'" for name in ("cart", "paid")}
        return mr.match(v, by="user", pattern="cart !paid", define=is_a, within="1 hour", late=mr.late.drop())

    def viewed(user: int | None, url: str, at: str) -> dict[str, object]:
        return {"user": user, "url": url, "at": at}

    def partial() -> int | None:
        return [each.partial_matches for each in p.progress if each.flow == "left"][-1]

    p = play(app)
    p.feed(views, [viewed(1, "/cart", "10:00:01"), viewed(2, "/cart", "10:00:02"), viewed(None, "/", "10:00:20")])
    p.feed(views, [viewed(1, "/", "10:00:30"), viewed(1, "/", "10:00:31")], crash="after write")
    p.feed(views, [viewed(2, "/paid", "10:00:32"), viewed(1, "/", "10:01:00")])
    # The carts of users 1 and 2; that of 2 was paid. What is not a cart begins nothing.
    assert partial() == 1
    assert {each.partial_matches for each in p.progress if each.flow == "busiest"} == {None}

    def state(flow: str) -> State:
        return State(spark, definition.folder_of(p._settings, "shop", flow), flow)

    top, window = state("busiest").sizes()
    assert (top.operator, top.key, top.keys, top.timers) == ("top", "url", 3, 0)
    assert (window.operator, window.key, window.keys, window.timers) == ("window", "url, user", 5, 5)
    assert window.where is not None
    assert window.where.partition(":")[0].endswith("test_state.py")
    assert window.next_timer is not None
    assert window.next_timer.isoformat().endswith("T10:01:00+00:00")

    found, more = state("busiest").shown(["/", "1"], 20)
    assert not more
    (pane,) = [each for each in found if each.operator == "window"]
    assert pane.key == {"url": "/", "user": 1}
    assert [(e["slice_start"][-14:-6], e["views"], e["newest"][-14:-6]) for e in pane.entries] == [
        ("10:00:00", 2, "10:00:31"),
        ("10:01:00", 1, "10:01:00"),
    ]
    # Each change of a window's result is a row, and of the same url and user there are several.
    (best,) = [each for each in state("busiest").shown(["/"], 20)[0] if each.operator == "top"]
    assert [(entry["rank"], entry["views"]) for entry in best.entries] == [(1, 2), (2, 1)]
    assert best.entries[0]["user"] == 1
    (cart,), _ = state("left").shown(["1"], 20)
    assert [entry["waits_for"] for entry in cart.entries] == ["the end without paid"]
    nobody, _ = state("busiest").shown(["/", "null"], 20)
    assert [each.key for each in nobody if each.operator == "window"] == [{"url": "/", "user": None}]
    with pytest.raises(StateKeyAbsent, match="keeps nothing for the key 7"):
        state("left").shown(["7"], 20)
    with pytest.raises(StateKeyUnfit, match="user is a bigint"):
        state("left").shown(["seven"], 20)
