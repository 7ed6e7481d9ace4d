"""Queries that others have written: TPC-H's and Nexmark's, as views over tables that change, against PostgreSQL."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from millrace.model.signed import Bag, Table, canonical
from millrace.views import Relation, named, planned
from millrace.views.twin import answer
from tests.views.fuzz import connected, same

SCHEMA = {
    "region": {"r_regionkey": "integer", "r_name": "text"},
    "nation": {"n_nationkey": "integer", "n_name": "text", "n_regionkey": "integer"},
    "supplier": {"s_suppkey": "integer", "s_nationkey": "integer"},
    "customer": {"c_custkey": "integer", "c_name": "text", "c_nationkey": "integer", "c_mktsegment": "char(10)"},
    "orders": {
        "o_orderkey": "integer", "o_custkey": "integer", "o_totalprice": "numeric(15,2)", "o_orderdate": "date",
        "o_orderpriority": "char(15)", "o_shippriority": "integer", "o_comment": "varchar(79)",
    },
    "lineitem": {
        "l_id": "integer", "l_orderkey": "integer", "l_suppkey": "integer", "l_quantity": "numeric(15,2)",
        "l_extendedprice": "numeric(15,2)", "l_discount": "numeric(15,2)", "l_tax": "numeric(15,2)",
        "l_returnflag": "char(1)", "l_linestatus": "char(1)", "l_shipdate": "date", "l_commitdate": "date",
        "l_receiptdate": "date",
    },
    "person": {"p_id": "bigint", "p_name": "text", "p_city": "text", "p_state": "text"},
    "auction": {
        "a_id": "bigint", "a_seller": "bigint", "a_category": "bigint", "a_reserve": "bigint", "a_at": "timestamp",
        "a_expires": "timestamp",
    },
    "bid": {"b_id": "bigint", "b_auction": "bigint", "b_bidder": "bigint", "b_price": "bigint", "b_channel": "text",
            "b_at": "timestamp"},
}  # fmt: skip

DAY = "date_trunc('day', b_at)::date AS day"
RANKS = ", ".join(
    f"count({what}) FILTER (WHERE b_price {which}) AS {name}"
    for name, what, which in (
        ("low", "*", "< 100"), ("mid", "*", ">= 100 AND b_price < 500"), ("high", "*", ">= 500"),
        ("bidders", "DISTINCT b_bidder", ">= 0"), ("low_bidders", "DISTINCT b_bidder", "< 100"),
        ("auctions", "DISTINCT b_auction", ">= 0"),
    )
)  # fmt: skip

QUERIES = {
    "TPC-H 1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
            count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= date '1998-12-01' - interval '90' day
        GROUP BY l_returnflag, l_linestatus""",
    "TPC-H 3": """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    "TPC-H 4": """
        SELECT o_orderpriority, count(*) AS order_count FROM orders
        WHERE o_orderdate >= date '1993-07-01' AND o_orderdate < date '1993-07-01' + interval '3' year
            AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority""",
    "TPC-H 5": """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
            AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
            AND r_name = 'ASIA' AND o_orderdate >= date '1994-01-01'
        GROUP BY n_name""",
    "TPC-H 13": """
        SELECT c_count, count(*) AS custdist
        FROM (SELECT c_custkey, count(o_orderkey) FROM customer LEFT OUTER JOIN orders
                ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey)
            AS c_orders (c_custkey, c_count)
        GROUP BY c_count""",
    "TPC-H 18": """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer, orders, lineitem
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 60)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    "Nexmark 3": """
        SELECT p_name, p_city, p_state, a_id FROM auction JOIN person ON a_seller = p_id
        WHERE a_category = 1 AND p_state IN ('OR', 'ID', 'CA')""",
    "Nexmark 4": """
        SELECT category, avg(final) AS price FROM (
            SELECT max(b_price) AS final, a_category AS category FROM auction, bid
            WHERE a_id = b_auction AND b_at BETWEEN a_at AND a_expires GROUP BY a_id, a_category) q
        GROUP BY category""",
    "Nexmark 6": """
        SELECT seller, avg(final) AS price FROM (
            SELECT seller, final, row_number() OVER (PARTITION BY seller ORDER BY ended DESC, id) AS place FROM (
                SELECT a_id AS id, a_seller AS seller, a_expires AS ended, max(b_price) AS final FROM auction, bid
                WHERE a_id = b_auction AND b_at BETWEEN a_at AND a_expires GROUP BY a_id, a_seller, a_expires) won) q
        WHERE place <= 10 GROUP BY seller""",
    "Nexmark 9": """
        SELECT a_id, b_id, b_price FROM (
            SELECT a_id, b_id, b_price, row_number() OVER (PARTITION BY a_id ORDER BY b_price DESC, b_at, b_id) AS place
            FROM auction, bid WHERE a_id = b_auction AND b_at BETWEEN a_at AND a_expires) q
        WHERE place <= 1""",
    "Nexmark 15": f"SELECT {DAY}, count(*) AS bids, {RANKS} FROM bid GROUP BY 1",
    "Nexmark 16": f"SELECT b_channel, {DAY}, max(b_at) AS latest, {RANKS} FROM bid GROUP BY b_channel, day",
    "Nexmark 17": f"""
        SELECT b_auction, {DAY}, count(*) AS bids, min(b_price) AS least, max(b_price) AS most, avg(b_price) AS mean,
            sum(b_price) AS total FROM bid GROUP BY b_auction, 2""",
    "Nexmark 18": """
        SELECT b_auction, b_bidder, b_price FROM (
            SELECT *, row_number() OVER (PARTITION BY b_bidder, b_auction ORDER BY b_at DESC, b_id) AS n FROM bid) q
        WHERE n = 1""",
    "Nexmark 19": """
        SELECT b_auction, b_price, n FROM (
            SELECT *, row_number() OVER (PARTITION BY b_auction ORDER BY b_price DESC, b_id) AS n FROM bid) q
        WHERE n <= 3""",
    "Nexmark 20": """
        SELECT b_id, b_price, a_id, a_category FROM bid INNER JOIN auction ON b_auction = a_id WHERE a_category = 1""",
    "Nexmark 23": """
        SELECT b_id, p_name, a_id FROM bid b INNER JOIN person p ON b.b_bidder = p.p_id
        INNER JOIN auction a ON a.a_seller = p.p_id""",
}


def row(draw: random.Random, table: str, key: int) -> tuple[Any, ...]:
    """A row that joins with others: keys are small, days are near the queries' own."""
    found: list[Any] = []
    for place, (name, type_) in enumerate(SCHEMA[table].items()):
        if place == 0:
            found.append(key)
        elif draw.random() < 0.03:
            found.append(None)
        elif name.endswith(("discount", "tax")):
            found.append(Decimal(draw.randint(0, 10)) / 100)
        elif type_.startswith("numeric"):
            found.append(Decimal(draw.randint(100, 5000)) / 100)
        elif type_ == "date":
            found.append(date(1995, 3, 15) + timedelta(days=draw.randint(-400, 400)))
        elif type_ == "timestamp":
            found.append(datetime(2024, 1, 1) + timedelta(hours=draw.randint(0, 60)))
        elif name.endswith(("category", "nationkey", "regionkey")):
            found.append(draw.randint(1, 2))
        elif name in ("r_name", "p_state"):
            found.append({"r_name": "ASIA", "p_state": "OR"}[name])
        elif type_ in ("integer", "bigint"):
            found.append(draw.randint(0, 900) if name.endswith(("price", "reserve")) else draw.randint(1, 6))
        else:
            words = ("ASIA", "BUILDING", "OR", "R", "F") if type_ != "char(1)" else ("R", "F")
            found.append(draw.choice((*words, "special x requests") if name == "o_comment" else words))
    return tuple(found)


@pytest.mark.server
def test_known_queries_hold_what_postgresql_answers(postgres: str) -> None:
    relations = [
        Relation(name, {column: named(type_) for column, type_ in columns.items()}, (next(iter(columns)),))
        for name, columns in SCHEMA.items()
    ]
    plans = {name: planned(name, sql, relations) for name, sql in QUERIES.items()}
    draw = random.Random(18)
    filled = dict.fromkeys(QUERIES, 0)
    with connected(postgres) as connection:
        connection.execute("DROP SCHEMA IF EXISTS known CASCADE")
        connection.execute("CREATE SCHEMA known")
        connection.execute("SET search_path = known")
        for name, columns in SCHEMA.items():
            listed = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
            connection.execute(f"CREATE TABLE {name} ({listed}, PRIMARY KEY ({next(iter(columns))}))")
        for turn in range(4):
            for name, columns in SCHEMA.items():
                key = next(iter(columns))
                places = ", ".join(["%s"] * len(columns))
                count = {"lineitem": 60, "bid": 80, "orders": 20}.get(name, 6)
                for each in range(1, count + 1):
                    if turn == 0 or draw.random() < 0.3:
                        connection.execute(f"DELETE FROM {name} WHERE {key} = %s", (each,))
                        if turn == 0 or draw.random() < 0.7:
                            connection.execute(f"INSERT INTO {name} VALUES ({places})", row(draw, name, each))
            held = {}
            for name, columns in SCHEMA.items():
                rows = connection.execute(f"SELECT * FROM {name}", binary=True).fetchall()  # type: ignore[call-overload]
                held[name] = Table(tuple(columns), Bag(tuple(canonical(value) for value in each) for each in rows))
            for name, sql in QUERIES.items():
                rows = connection.execute(sql, binary=True).fetchall()  # type: ignore[call-overload]
                expected = Bag(tuple(canonical(value) for value in each) for each in rows)
                found = answer(plans[name], held)
                assert same(found, expected), f"{name}: {found - expected} and {expected - found}"
                filled[name] += expected.total()
        connection.rollback()
    assert all(filled.values()), filled
