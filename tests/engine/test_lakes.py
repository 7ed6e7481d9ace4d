"""Tables of the lake as inputs of flows: what a flow is given of them, when, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import config
from millrace.cli.apps import servers_of
from millrace.engine import Run
from millrace.engine.lint import lint
from millrace.engine.plan import flows_of
from millrace.errors import CycleFound, FlowFailed, LakeTableUnknown, LakeVersionUnknown
from millrace.flow import App
from millrace.testing import Play
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.items import once

pytestmark = pytest.mark.spark

Begin = Callable[..., Play]
PRODUCTS = "id long, name string"


def app_of(mode: str = "microbatch", version: int | None = None) -> App:
    app = App("shop")
    orders = app.topic("orders", "id long, product long")
    products = app.lake("products", version=version)

    @app.stream(orders, products, key="id", mode=mode)  # type: ignore[arg-type]
    def named(o: DataFrame, p: DataFrame) -> DataFrame:
        return mr.lookup(o, p, on="product")

    return app


def test_a_flow_has_the_version_of_its_start(play: Begin) -> None:
    app = app_of()
    orders, products = app._nodes["orders"], app._nodes["lake/products"]
    p = play(app)
    p.lake(products, PRODUCTS, "| id | name |\n| --- | --- |\n| 1 | tea |\n| 2 | milk |")  # type: ignore[arg-type]
    p.feed(orders, [{"id": 10, "product": 1}, {"id": 11, "product": 3}])  # type: ignore[arg-type]
    p.expect("named", [{"id": 10, "product": 1, "name": "tea"}, {"id": 11, "name": None}])
    p.lake(products, PRODUCTS, [{"id": 1, "name": "green tea"}])  # type: ignore[arg-type]
    p.feed(orders, [{"id": 12, "product": 1}])  # type: ignore[arg-type]
    p.expect("named", [{"id": 12, "name": "tea"}])
    p.restart()
    p.feed(orders, [{"id": 13, "product": 1}, {"id": 14, "product": 2}])  # type: ignore[arg-type]
    p.expect("named", [{"id": 13, "name": "green tea"}, {"id": 14, "name": None}])
    (then,) = [mr.now(products, p.spark, p.settings)]  # type: ignore[arg-type]
    assert [tuple(row) for row in then.collect()] == [(1, "green tea")]
    # Its files are gone, as after `keep`: the flow fails, in a way that passes, and has the newest when it is started.
    for path in (p.settings.lake_folder / "products" / "data").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(FlowFailed, match="FILE_NOT_EXIST"):
        p.feed(orders, [{"id": 15, "product": 1}])  # type: ignore[arg-type]
    p.lake(products, PRODUCTS, [{"id": 1, "name": "black tea"}])  # type: ignore[arg-type]
    p.restart()
    p.expect("named", [{"id": 15, "name": "black tea"}])


def test_a_table_of_the_lake_has_a_past_for_as_of_at_a_standstill_and_as_it_flows(play: Begin) -> None:
    app, columns = App("shop"), "item long, price long, at timestamp"
    times: Any = {"time": "at", "lateness": "0 seconds", "ahead": None}
    orders = app.topic("orders", "id long, item long, at timestamp", **times)
    still, flowing = app.lake("prices"), app.lake("offers", columns, **times)

    @app.stream(orders, still, key="id")
    def priced(o: DataFrame, p: DataFrame) -> DataFrame:
        return mr.as_of(o, p, on="item", emit="final", late=mr.late.drop())

    @app.stream(orders, flowing, key="id")
    def offered(o: DataFrame, p: DataFrame) -> DataFrame:
        return mr.as_of(o, p, on="item", emit="updates", late=mr.late.drop())

    def at(second: int) -> str:
        return f"2026-01-01T00:00:{second:02}Z"

    prices = [{"item": 1, "price": price, "at": at(second)} for price, second in ((7, 0), (8, 10), (9, 20))]
    asked = [{"id": second, "item": 1, "at": at(second)} for second in (5, 10, 19, 30)]
    found = [{"id": second, "price": price} for second, price in ((5, 7), (10, 8), (19, 8), (30, 9))]
    p = play(app)
    p.lake(still, columns, prices)
    p.feed(flowing, prices)
    p.feed(orders, [*asked, {"id": 31, "item": 2, "at": at(31)}])
    p.expect("priced", [*found, {"id": 31, "price": None}])
    p.expect("offered", [*found, {"id": 31, "price": None}])


def test_a_version_that_is_named_and_tables_that_are_not_there(play: Begin, tmp_path: Path) -> None:
    app = app_of(version=1)
    orders, products = app._nodes["orders"], app._nodes["lake/products@1"]
    with pytest.raises(LakeTableUnknown, match=r"no table 'products'.*test_lakes.py"):
        play(app).feed(orders, [{"id": 1, "product": 1}])  # type: ignore[arg-type]
    p = play(app)
    p.lake(products, PRODUCTS, [{"id": 1, "name": "tea"}])  # type: ignore[arg-type]
    p.lake(products, f"{PRODUCTS}, price int", [{"id": 1, "name": "green tea", "price": 7}])  # type: ignore[arg-type]
    p.feed(orders, [{"id": 1, "product": 1}])  # type: ignore[arg-type]
    assert p.rows("named") == [{"id": 1, "product": 1, "name": "tea"}]
    with pytest.raises(LakeVersionUnknown, match="number 9"):
        mr.now(App("other").lake("products", version=9), p.spark, p.settings)
    here = config.load(tmp_path)
    assert "no table 'products'" in lint(app, here, p.spark).left_out["named"]


def test_what_a_sink_writes_comes_before_what_reads_it() -> None:
    app = App("shop")
    changes = app.topic("changes", PRODUCTS)
    changes.to(mr.lake("products", key="id"))
    orders = app.topic("orders", "id long, product long")
    products = app.lake("products")
    pinned = app.lake("products", version=3)
    app.stream(orders, products, name="named")(lambda o, p: mr.lookup(o, p, on="product"))
    app.stream(orders, pinned, name="as_it_was")(lambda o, p: mr.lookup(o, p, on="product"))
    graph = app.graph()
    fed = {(edge.source.name, edge.target.name) for edge in graph.edges}
    assert ("lake.products", "lake/products") in fed
    assert ("lake/products", "named") in fed
    flows = {flow.name: flow for flow in flows_of(graph)}
    assert flows["changes"].feeds(flows["named"])
    assert not flows["changes"].feeds(flows["as_it_was"])
    assert "lake/products@3" in graph.text()
    assert "version 3" in graph.text()
    app.stream(orders, products, name="round")(lambda o, _: o).to(mr.lake("products", name="again"))
    with pytest.raises(CycleFound, match="round -> again -> lake/products"):
        app.graph()


def test_what_streams_from_the_lake_comes_after_what_writes_it() -> None:
    app = App("shop")
    changes = app.topic("changes", PRODUCTS)
    changes.to(mr.lake("products"))
    added = app.lake("products", PRODUCTS)
    app.stream(added, name="named")(lambda rows: rows)
    graph = app.graph()
    assert [each.name for each in graph.lake_topics] == ["shop.lake.products"]
    flows = {flow.name: flow for flow in flows_of(graph)}
    assert flows["changes"].feeds(flows["named"])
    app.stream(added, name="round")(lambda rows: rows).to(mr.lake("products", name="again"))
    with pytest.raises(CycleFound, match=r"round -> again -> shop\.lake\.products"):
        app.graph()


@pytest.mark.server
@pytest.mark.turn(1, 2)
def test_what_is_appended_flows_once(project: Project, spark: SparkSession) -> None:
    """One app fills the table and lets it flow; run to the end twice, then until stopped."""
    app = App("shop")
    changes = app.topic("changes", PRODUCTS, partitions=1)
    changes.to(mr.lake("products"))
    app.stream(app.lake("products", PRODUCTS), name="named", key="id")(lambda rows: rows)
    project.log.topics.create("changes", partitions=1)
    for number in range(2):
        values = [{"id": 10 * number + each, "name": f"tea {each}"} for each in range(3)]
        project.write("changes", [json.dumps(value).encode() for value in values])
        once(spark, project.settings, app)
        assert [key for key, _ in told(project)] == [0, 1, 2, 10, 11, 12][: 3 * number + 3]
    with Run(app, project.settings, spark=spark) as run:
        project.write("changes", [b'{"id": 20, "name": "milk"}'])
        until(lambda: run.poll() is not None and len(told(project)) == 7, "seven rows", 240)
    assert told(project)[-1] == (20, "milk")


def test_the_catalog_is_started_for_tables_that_have_one(tmp_path: Path) -> None:
    here = config.load(tmp_path)
    assert servers_of(app_of().graph(), here) == ("kafka",)
    (here.lake_folder / "products" / "metadata").mkdir(parents=True)
    assert servers_of(app_of().graph(), here) == ("kafka", "postgres")


@pytest.mark.server
@pytest.mark.turn(0, 2)
def test_epoch_by_epoch_and_in_real_time_on_kafka(project: Project, spark: SparkSession) -> None:
    app = App("fill")
    changes = app.topic("changes", PRODUCTS)
    changes.to(mr.lake("products", key="id"))
    project.log.topics.create("changes", partitions=1)
    project.write("changes", [json.dumps({"id": 1, "name": name}).encode() for name in ("tea", "green tea")])
    once(spark, project.settings, app)
    project.log.topics.create("orders", partitions=1)
    project.write("orders", [b'{"id": 10, "product": 1}'])
    once(spark, project.settings, app_of())
    assert told(project) == [(10, "green tea")]
    with Run(app_of("realtime"), project.settings, spark=spark) as run:
        project.write("orders", [b'{"id": 11, "product": 1}', b'{"id": 12, "product": 2}'])
        until(lambda: run.poll() is not None and len(told(project)) == 3, "three rows", 120)
    assert told(project)[1:] == [(11, "green tea"), (12, None)]


def told(project: Project) -> list[tuple[int, str | None]]:
    return sorted((row["id"], row["name"]) for row in (each.json() for each in project.log.read("named")))
