"""A shop: its database is the only place that is written to; index, cache, lake and views follow it by themselves.

millrace demo --only shop       captures a PostgreSQL into topics, and fills an OpenSearch, a Valkey, a lake and views
python -m millrace.demo.shop    the database and its made-up business alone, until Ctrl-C (the demo has them in it)

PostgreSQL ──▶ Debezium ──▶ Kafka ──▶ Spark ──┬──▶ OpenSearch: products, to be searched
 customers                                    ├──▶ Redis: customer:17, to be looked up
 products                                     ├──▶ lake: orders, to be asked as they were
 orders                                       ├──▶ revenue: a view, customers × orders
                                              ├──▶ priced_orders: a view, orders × products
                                              └──▶ large_orders: a topic, for somebody to look at
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame

import millrace as mr

# What customers of each city have ordered.
REVENUE = """
    SELECT c.city, count(*) AS orders, sum(o.amount) AS revenue
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.city"""

# What each order was sold for, and what it would cost now: a new price changes the rows of all orders of a product.
PRICED_ORDERS = """
    SELECT o.id, p.title, o.pieces, o.amount AS sold_for, o.pieces * p.price AS costs_now
    FROM orders o JOIN products p ON o.product = p.id"""


def large_orders(orders: DataFrame) -> DataFrame:
    """Orders of $1,000 and more in signed rows: one that is cancelled goes with -1, one that changes goes and comes."""
    return orders.where("amount >= 1000")


def application(name: str) -> mr.App:
    """The app over the database of that name."""
    app = mr.App(name)
    db = app.capture(name, tables=["customers", "products", "orders"])
    db.products.to(mr.opensearch("products"))
    db.customers.to(mr.redis("customer"))
    db.orders.to(mr.lake("orders"))
    app.stream(db.orders, key="id")(large_orders)
    app.view("revenue", key="city", sql=REVENUE)
    app.view("priced_orders", key="id", sql=PRICED_ORDERS)
    return app


app = application("shop")


# The made-up business: whoever writes to the database knows nothing of what follows it.

TABLES = (
    "CREATE TABLE IF NOT EXISTS customers (id bigint PRIMARY KEY, name text NOT NULL, city text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS products (id bigint PRIMARY KEY, title text NOT NULL, price numeric(12, 2) NOT NULL)",
    "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer bigint NOT NULL, "
    "product bigint NOT NULL, pieces int NOT NULL, amount numeric(12, 2) NOT NULL, status text NOT NULL)",
)
CUSTOMERS, PRODUCTS = 200, 50
CITIES = ("Ulm", "Bonn", "Kiel", "Jena")
THINGS = ("chair", "table", "lamp", "shelf", "bed")
COLOURS = ("red", "blue", "green", "oak", "white")


def stock(connection: psycopg.Connection[Any]) -> None:
    """Tables, customers and products, unless they are there."""
    for table in TABLES:
        connection.execute(table)
    for number in range(CUSTOMERS):
        known = (number, f"Customer {number}", CITIES[number % len(CITIES)])
        connection.execute("INSERT INTO customers VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", known)
    for number in range(PRODUCTS):
        title = f"{COLOURS[number % 5]} {THINGS[number // 5 % 5]} no. {number}"
        sold = (number, title, 20 + 7 * number)
        connection.execute("INSERT INTO products VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", sold)


def business(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """One thing that happens in a shop, in one transaction."""
    with connection.transaction():
        what, product = chance.random(), chance.randrange(PRODUCTS)
        if what < 0.6:
            connection.execute(
                "INSERT INTO orders (customer, product, pieces, amount, status) "
                "SELECT %(customer)s, id, %(pieces)s, %(pieces)s * price, 'new' FROM products WHERE id = %(product)s",
                {"customer": chance.randrange(CUSTOMERS), "product": product, "pieces": chance.randint(1, 5)},
            )
        elif what < 0.75:
            connection.execute("UPDATE orders SET status = 'sent' WHERE id = (SELECT max(id) FROM orders)")
        elif what < 0.85:
            connection.execute("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders WHERE status = 'new')")
        elif what < 0.95:
            factor = chance.choice((Decimal("0.9"), Decimal("1.1")))
            connection.execute("UPDATE products SET price = round(price * %s, 2) WHERE id = %s", (factor, product))
        else:
            move = (chance.choice(CITIES), chance.randrange(CUSTOMERS))
            connection.execute("UPDATE customers SET city = %s WHERE id = %s", move)


@contextmanager
def beside() -> Iterator[Mapping[str, str]]:
    """The shop's database and its business, for as long as the block lasts."""
    from millrace import config, local

    settings, closed = config.load(), threading.Event()
    with local.held(settings, ("postgres",)) as addresses:
        server = addresses["postgres"]
        with psycopg.connect(server, autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", (app.name,)).fetchall():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(app.name)))
        url = f"{server.rpartition('/')[0]}/{app.name}"
        with psycopg.connect(url, autocommit=True) as connection:
            stock(connection)
        trading = threading.Thread(target=_trade, args=(url, closed), daemon=True)
        trading.start()
        try:
            yield {}
        finally:
            closed.set()
            trading.join()


def _trade(url: str, closed: threading.Event) -> None:
    chance = random.Random(1)  # noqa: S311 -- made-up business wants to be repeatable, not secret
    while not closed.is_set():
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while not closed.wait(0.1):
                    business(connection, chance)
        except psycopg.OperationalError:  # the server ends with the demo
            closed.wait(1)


if __name__ == "__main__":
    with beside():
        print("there is business until Ctrl-C")
        threading.Event().wait()
