"""`.to(…)`: what goes where, with which guarantee, and what is refused where it is said."""

from __future__ import annotations

from typing import Any

import pytest

import millrace as mr
from millrace.engine.plan import flows_of
from millrace.errors import GuaranteeMissing, NameInvalid, NameTaken, OptionInvalid, SinkRealTime
from millrace.flow import App


def passes(p: Any) -> Any:
    return p


def shop() -> tuple[App, Any, Any, Any]:
    app = App("shop")
    db = app.capture("shop", tables=["orders", "customers"])
    views = app.topic("views", "url string, user long")
    counts = app.stream(views, key="url", name="counts", emit="updates")(passes)
    return app, db, views, counts


def test_sinks_are_written_by_the_flow_of_what_they_are_of() -> None:
    app, db, views, counts = shop()
    large = app.stream(db.orders, name="large")(passes)
    db.orders.to(mr.postgres("orders", database="reports"), mr.files("lake/orders"))
    db.customers.to(mr.postgres("customers"))
    large.to(mr.files("large"))
    counts.to(mr.terminal())
    views.to(mr.function(lambda rows, epoch: None, name="seen"))  # noqa: ARG005
    flows = {flow.name: [each.name for each in flow.sinks] for flow in flows_of(app.graph())}
    assert flows == {
        "shop.orders": ["postgres.orders", "files.lake-orders", "files.large"],
        "shop.customers": ["postgres.customers"],
        "counts": ["terminal"],
        "views": ["seen"],
    }
    parts = {flow.name: flow.parts for flow in flows_of(app.graph())}
    assert parts["shop.orders"] == ("large",)
    assert parts["shop.customers"] == ("shop.customers",)


def test_streams_that_are_written_together_keep_what_each_asked_for() -> None:
    def kept(*asked: Any) -> str:
        app = App("together")
        items = app.table("items", "id long", key="id")
        for number, each in enumerate(asked):
            app.stream(items, name=f"stream{number}", delivery=each)(passes)
        (flow,) = flows_of(app.graph())
        return flow.delivery

    for each in ("exactly once", "at least once", "at most once"):
        assert kept(each, each) == each
    assert kept("at most once", "at least once") == "exactly once", "lost by the one, doubled by the other"
    assert kept("exactly once", "at most once", "at least once") == "exactly once"


def test_the_graph_shows_each_sink_with_its_guarantee() -> None:
    app, db, views, counts = shop()
    db.orders.to(mr.postgres("orders"), delivery="exactly once")
    counts.to(mr.postgres("counts", key="url"), delivery="at least once")
    views.to(mr.terminal(), delivery="at most once")
    text = app.graph().text()
    lines = [" ".join(line.split()[:-1]) for line in text.splitlines() if line.strip().startswith("sink")]
    assert sorted(lines) == [
        "sink postgres.counts counts -> postgres; at least once",
        "sink postgres.orders shop.orders -> postgres; exactly once",
        "sink terminal views -> terminal; at most once",
    ]
    drawn = app.graph().mermaid()
    assert '>"postgres.orders"]' in drawn
    assert '-->|"exactly once"|' in drawn
    assert '-->|"at most once"|' in drawn


def test_a_guarantee_can_be_demanded() -> None:
    _, db, _, counts = shop()
    with pytest.raises(
        GuaranteeMissing, match="'terminal' writes at least once, and exactly once was demanded"
    ) as caught:
        counts.to(mr.terminal(), delivery="exactly once")
    assert str(caught.value.where).startswith("tests/flow/test_deliveries.py:")
    db.orders.to(mr.postgres("orders"), delivery="exactly once per key")
    with pytest.raises(OptionInvalid, match="choose from 'exactly once'"):
        counts.to(mr.terminal(), delivery="twice")


def test_what_is_refused() -> None:
    app, _, views, counts = shop()
    with pytest.raises(OptionInvalid, match="give a sink"):
        counts.to("postgres")
    fast = app.stream(views, name="fast", mode="realtime")(passes)
    with pytest.raises(SinkRealTime, match="let another stream read its topic"):
        fast.to(mr.terminal())
    for table in ("", "a.b.c", "a.", 5):
        with pytest.raises(OptionInvalid, match="name a table"):
            mr.postgres(table)  # type: ignore[arg-type]
    for key in ([], "", ["id", ""]):
        with pytest.raises(OptionInvalid, match="name a column"):
            mr.postgres("orders", key=key)
    with pytest.raises(OptionInvalid, match="choose from parquet, json"):
        mr.files("out", format="csv")  # type: ignore[arg-type]
    counts.to(mr.terminal(name="no name"))
    with pytest.raises(NameInvalid, match="a sink cannot be named 'no name'"):
        app.graph()


def test_names_of_sinks_are_their_own() -> None:
    app, db, views, counts = shop()
    db.orders.to(mr.postgres("orders"))
    counts.to(mr.postgres("orders"))
    with pytest.raises(NameTaken, match=r"'postgres.orders' is already the name of a sink"):
        app.graph()
    app, _, views, _ = shop()
    views.to(mr.terminal(name="views"))
    with pytest.raises(NameTaken, match="'views' is already the name of a topic"):
        app.graph()
