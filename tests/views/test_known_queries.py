"""Queries that others have written: TPC-H's and Nexmark's, over tables that change, against PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.model.signed import Bag, Table
from millrace.views import Relation, planned
from millrace.views.twin import answer
from tests.rotation import todays
from tests.shop import Shop
from tests.views import nexmark, tpch
from tests.views.fuzz import connected, difference, misprinted, plain, same
from tests.views.known import VIEWS, Known, relations
from tests.views.nexmark import Nexmark
from tests.views.tpch import Tpch

# Of plain Python 300 orders and 500 events, and of Spark 750 orders.
TWIN_ORDERS, TWIN_EVENTS, SCALE = 0.0002, 0.0005, 0.0005
TWIN_TURNS, CHANGES = 3, 40
A_DAY, ROUNDS, TRANSACTIONS = 2, 1, 6


def held(connection: Any, tables: list[Relation]) -> Mapping[str, Table]:
    rows = {each.name: connection.execute(f"SELECT * FROM {each.name}", binary=True).fetchall() for each in tables}
    return {
        each.name: Table(tuple(each.columns), Bag(tuple(map(plain, row)) for row in rows[each.name])) for each in tables
    }


@pytest.mark.server
def test_the_plans_of_known_queries_hold_what_postgresql_answers(postgres: str) -> None:
    made, filled = (Tpch(TWIN_ORDERS), Nexmark(TWIN_EVENTS)), dict.fromkeys(VIEWS, 0)
    with connected(postgres) as connection:
        connection.execute("DROP SCHEMA IF EXISTS known CASCADE")
        connection.execute("CREATE SCHEMA known")
        connection.execute("SET search_path = known")
        for each in made:
            each.fill(connection)
        tables = relations(connection)
        plans = {name: planned(name, sql, tables) for name, (_, sql) in VIEWS.items()}
        for _ in range(TWIN_TURNS):
            rows = held(connection, tables)
            for name, (key, sql) in VIEWS.items():
                asked = connection.execute(sql, binary=True).fetchall()  # type: ignore[call-overload]
                asked = [tuple(map(plain, row)) for row in asked]
                expected, found = Bag(asked), answer(plans[name], rows)
                printed = misprinted(found, asked, plans[name])
                assert same(found, expected), f"{name}: {difference(found, expected)}"
                assert not printed, f"{name}: {difference(found, expected, printed)}"
                places = [[column for column, _ in plans[name].columns].index(column) for column in key]
                assert len({tuple(row[place] for place in places) for row in expected}) == expected.total(), name
                filled[name] += expected.total()
            for _ in range(CHANGES):
                for each in made:
                    each.change(connection)
        connection.rollback()
    assert all(filled.values()), filled


@pytest.mark.spark
@pytest.mark.server
def test_views_of_known_queries_hold_what_postgresql_answers_at_the_same_lsn(shop: Shop, spark: SparkSession) -> None:
    """Two of them a day, in the view store, while the tables change and the run begins again. `make known` has all."""
    names = [*todays(list(tpch.VIEWS), A_DAY // 2), *todays(list(nexmark.VIEWS), A_DAY // 2)]
    checked = Known(spark, shop, names, SCALE).check(ROUNDS, TRANSACTIONS)
    print(checked)
    assert not checked.faults, "\n".join(checked.faults[:3])
    assert all(checked.answers[name] > 1 + ROUNDS for name in names), checked
