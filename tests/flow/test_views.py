"""Views as definitions: what they read, what is refused when they are defined, how they are drawn."""

from __future__ import annotations

import pytest

from millrace.errors import NameTaken, OptionInvalid, SchemaMissing, ViewRefused
from millrace.flow import App

SQL = "SELECT c.region, count(*) AS orders FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region"


def shop() -> App:
    app = App("shop")
    app.capture("shop", tables=["orders", "sales.customers"])
    app.topic("payments", "id string, customer long, amount decimal(12,2), at timestamp")
    return app


def test_a_view_reads_captured_tables_topics_and_views() -> None:
    app = shop()
    revenue = app.view("revenue", key="region", sql=SQL)
    assert [node.name for node in revenue.reads] == ["shop.orders", "shop.sales.customers"]
    assert revenue.plan is None  # the columns of captured tables are known when they are captured
    paid = app.view("paid", key="customer", sql="SELECT customer, sum(amount) AS paid FROM payments GROUP BY 1")
    assert paid.plan is not None
    assert [(name, str(type_)) for name, type_ in paid.plan.columns] == [
        ("customer", "bigint"), ("paid", "numeric(22,2)")
    ]  # fmt: skip
    most = app.view("most", key=["customer"], sql="SELECT * FROM paid ORDER BY paid DESC, customer LIMIT 3")
    assert most.reads == (paid,)
    text = app.graph().text()
    assert "view" in text
    assert "shop.orders, shop.sales.customers -> revenue; key region" in text
    assert '[/"most"/]' in app.graph().mermaid()


def test_a_view_reads_a_stream_whose_columns_are_known() -> None:
    app = App("shop")
    payments = app.topic("payments", "customer long, amount decimal(12,2)")
    app.stream(payments, name="checked", schema="customer long, amount decimal(12,2)")(lambda p: p)
    app.stream(payments, name="unsaid")(lambda p: p)
    view = app.view("paid", key="customer", sql="SELECT customer, count(*) AS n FROM checked GROUP BY 1")
    assert view.plan is not None
    assert [node.name for node in view.reads] == ["checked"]
    with pytest.raises(SchemaMissing, match=r"'unsaid' is read but has no schema.*test_views.py"):
        app.view("counted", key="customer", sql="SELECT customer, count(*) AS n FROM unsaid GROUP BY 1")


def test_what_cannot_be_is_refused_where_it_is_defined() -> None:
    app = shop()
    with pytest.raises(ViewRefused, match=r"there is no table 'order'; did you mean 'orders'.*test_views.py"):
        app.view("v", key="id", sql="SELECT id FROM order_".replace("order_", '"order"'))
    with pytest.raises(ViewRefused, match="does not read as SQL"):
        app.view("v", key="id", sql="SELECT FROM WHERE")
    with pytest.raises(ViewRefused, match="its key 'idd' is none of its columns; did you mean 'id'"):
        app.view("v", key="idd", sql="SELECT id FROM payments")
    with pytest.raises(ViewRefused, match=r"lower\(id COLLATE \"C\"\)"):
        app.view("v", key="id", sql="SELECT lower(id) AS id FROM payments")
    with pytest.raises(OptionInvalid):
        app.view("v", key=[], sql=SQL)
    with pytest.raises(OptionInvalid, match="index"):
        app.view("v", key="id", index=[[]], sql="SELECT id FROM payments")
    with pytest.raises(ViewRefused, match="its index 'att' is none of its columns"):
        app.view("v", key="id", index=["id", ("id", "att")], sql="SELECT id, at FROM payments")
    assert app.view("w", key="id", index="at", sql="SELECT id, at FROM payments").indexes == (("at",),)
    with pytest.raises(OptionInvalid, match="mode"):
        app.view("v", key="id", mode="at once", sql="SELECT id FROM payments")  # type: ignore[arg-type]
    with pytest.raises(OptionInvalid, match="epoch"):
        app.view("v", key="id", epoch="10 seconds", sql="SELECT id FROM payments")

    app.view("v", key="region", sql=SQL)
    with pytest.raises(NameTaken):
        app.view("v", key="region", sql=SQL)


def test_a_view_in_real_time_says_so() -> None:
    app = App("shop")
    app.topic("payments", "id string, at timestamp")
    view = app.view("live", key="id", mode="realtime", sql="SELECT id, at FROM payments")
    assert view.epoch_ms == 60_000
    assert "in real time, epochs of 1 minute" in app.graph().text()
