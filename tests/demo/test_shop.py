"""Whatever follows the shop's database holds what the database holds: while there is business, after it, and after one
of them was built again."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as client
from pyspark.sql import SparkSession

from millrace.capture.verify import verify
from millrace.demo import shop as demo
from millrace.engine import Run
from millrace.engine.rebuild import Rebuild
from millrace.engine.verifying import SinkVerified, VerifySinks
from millrace.flow import App
from millrace.lakehouse.asking import asked
from millrace.views.store import Store
from tests.command import until
from tests.engine.test_tables import once
from tests.rotation import today
from tests.shop import Shop
from tests.sinks.test_opensearch import ask, documents
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

LAST = 1_000_000
TABLES = ("customers", "products", "orders")


@pytest.mark.turn(1, 3)
def test_everything_follows_the_database(
    shop: Shop, spark: SparkSession, opensearch: str, valkey: str, tmp_path: Path
) -> None:
    shop.settings = replace(shop.settings, lake=replace(shop.settings.lake, folder=tmp_path / "lake"))
    app, chance = demo.application(shop.name), random.Random(today())
    with psycopg.connect(shop.url, autocommit=True) as connection:
        demo.stock(connection)
    trade(shop, chance, 100)
    with trading(shop, chance):
        with Run(app, shop.settings, spark=spark, traffic=False) as run:
            until(lambda: filled(run, shop), "everything to be filled", 600)
            for table in TABLES:
                assert verify(shop.captures, f"{shop.name}.public.{table}").clean
                until(lambda table=table: is_true(run, shop, spark, table), f"{table} to be true", 600)  # type: ignore[misc]
        # Somebody spoils the index: that is noticed, and mended beside the business.
        ask(opensearch, "DELETE", "/products/_doc/3?refresh=true")
        spoilt = verified(shop, spark, app, "products").differences
        assert spoilt is not None
        assert set(spoilt.keys.values()) == {"missing"}
        (rebuilt,) = Rebuild(app, shop.settings, "opensearch.products", print, spark=spark).run()
        assert rebuilt.switched
    trade(shop, chance, 200)
    finish(shop)
    once(spark, shop, app)
    compare(shop, opensearch, valkey)


def trade(shop: Shop, chance: random.Random, times: int) -> None:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        for _ in range(times):
            demo.business(connection, chance)


@contextmanager
def trading(shop: Shop, chance: random.Random) -> Iterator[None]:
    """There is business all the while, so little that on a slow machine too a key is now and then not on its way."""
    closed = threading.Event()

    def go_on() -> None:
        while not closed.wait(0.5):
            trade(shop, chance, 1)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()


def filled(run: Run, shop: Shop) -> bool:
    """Whether every flow has written, and both views are shown."""
    run.poll()
    store = Store(shop.settings, shop.name)
    shown = {each.view for each in store.positions()}
    store.close()
    sinks = [sink for standing in run.standings.values() for sink in standing.sinks.values()]
    return shown == {"revenue", "priced_orders"} and len(sinks) == 3 and all(sink.epoch is not None for sink in sinks)


def verified(shop: Shop, spark: SparkSession, app: App, table: str) -> SinkVerified:
    looking = VerifySinks(app.graph(), shop.settings, shop.captures.log, f"{shop.name}.public.{table}")
    (found,) = looking.run(spark)
    return found


def is_true(run: Run, shop: Shop, spark: SparkSession, table: str) -> bool:
    """Whether the table's sink is; keys may be on their way whenever one looks, but none that is not may differ."""
    run.poll()
    found = verified(shop, spark, run.app, table)
    assert found.differences is not None
    assert not found.differences.count, found.text()
    return found.clean


def finish(shop: Shop) -> None:
    """The last rows, in every topic."""
    shop.run(
        f"INSERT INTO customers VALUES ({LAST}, 'last', 'Ulm')",
        f"INSERT INTO products VALUES ({LAST}, 'last', 1)",
        f"INSERT INTO orders OVERRIDING SYSTEM VALUE VALUES ({LAST}, 1, 1, 1, 5000, 'new')",
    )
    marked(shop, lsn(shop))
    for table in TABLES:
        until(lambda table=table: has_last(shop, table), f"the capture of {table}")  # type: ignore[misc]


def has_last(shop: Shop, table: str) -> bool:
    records = shop.captures.log.read(f"{shop.name}.public.{table}")
    return any(json.loads(record.key or b"{}").get("id") == LAST for record in records)


def compare(shop: Shop, opensearch: str, valkey: str) -> None:
    """Everything, with what PostgreSQL answers."""
    products = {row["id"]: (row["title"], float(row["price"])) for row in documents(opensearch, "products")}
    sold = shop.run("SELECT id, title, price FROM products")
    assert products == {number: (title, float(price)) for number, title, price in sold}

    cache = client.Redis.from_url(valkey, decode_responses=True)
    for number, name, city in shop.run("SELECT id, name, city FROM customers"):
        row: Any = cache.hgetall(f"customer:{number}")
        assert (row["name"], row["city"]) == (name, city)

    columns = "id, customer, product, pieces, amount, status"
    with asked(shop.settings, f"SELECT {columns} FROM orders") as lake:
        assert set(lake.fetchall()) == set(shop.run(f"SELECT {columns} FROM orders"))

    store = Store(shop.settings, shop.name)
    for view, sql in (("revenue", demo.REVENUE), ("priced_orders", demo.PRICED_ORDERS)):
        _, rows, _ = store.rows(view)
        assert set(rows) == set(shop.run(sql))
        assert len(rows) == len(set(rows))
    store.close()
    assert shop.run(f"SELECT 1 FROM ({demo.PRICED_ORDERS}) p WHERE sold_for <> costs_now"), "no price has changed"

    large: Counter[int] = Counter()
    for record in shop.captures.log.read("large_orders"):
        large[record.json()["id"]] += record.json()["__diff"]
    wanted = shop.run("SELECT id FROM orders WHERE amount >= 1000")
    assert +large == Counter({number: 1 for (number,) in wanted})
    assert len(large) > len(wanted)  # some were cancelled
