"""Awkward expressions and aggregates: the plan's own answer, and Spark's, against PostgreSQL's."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from millrace.errors import ViewRefused
from millrace.model.signed import Bag, Table, canonical
from millrace.views import Plan, planned
from millrace.views.twin import answer
from tests.rotation import todays
from tests.views import cases, on_spark, queries
from tests.views.fuzz import connected, plain, same
from tests.views.worlds import World, tables

ON_SPARK = 4

QUERIES = {
    "expressions": cases.every_expression(),
    "groups": cases.every_aggregate("i"),
    "one group": cases.every_aggregate(""),
    "no rows": cases.every_aggregate("") + " WHERE id > 100",
}


def differing(found: Bag, expected: Bag, plan: Plan) -> str:
    """Which columns differ, for people."""
    ours, theirs = (sorted((one - other).elements(), key=repr) for one, other in ((found, expected), (expected, found)))
    names = [name for name, _ in plan.columns]
    written = [None, *cases.EXPRESSIONS] if names[0] == "id" else [*cases.AGGREGATES]
    written = [None, *written] if names[0] == "g" else written
    told = []
    for mine, other in zip(ours, theirs, strict=False):
        for place, (one, two) in enumerate(zip(mine, other, strict=True)):
            if not same(Bag([(one,)]), Bag([(two,)])):
                told.append(f"{written[place]} of {mine[0]}: {one!r} and in PostgreSQL {two!r}")
    return "\n".join(told) or f"{ours} and {theirs}"


def asked(connection: psycopg.Connection[Any], sql: str) -> Bag:
    rows = connection.execute(sql, binary=True).fetchall()  # type: ignore[call-overload]
    return Bag(tuple(plain(value) for value in row) for row in rows)


@pytest.mark.server
def test_expressions_and_aggregates_are_postgresqls(postgres: str) -> None:
    with connected(postgres) as connection:
        rows = [tuple(canonical(value) for value in row) for row in cases.fill(connection)]
        held = {"x": Table(tuple(cases.TABLE.columns), Bag(rows))}
        for name, sql in QUERIES.items():
            plan = planned(name, sql, [cases.TABLE.relation])
            found, expected = answer(plan, held), asked(connection, sql)
            assert same(found, expected), differing(found, expected, plan)
        connection.execute("DROP SCHEMA fuzz CASCADE")


@pytest.mark.server
@pytest.mark.spark
def test_spark_answers_as_postgresql(spark: SparkSession, postgres: str) -> None:
    """Also rows that came and went, and queries of the fuzzer, other ones every day."""
    with connected(postgres) as connection:
        rows = [tuple(canonical(value) for value in row) for row in cases.fill(connection)]
        changes = [*((row, 1) for row in rows), (rows[0], 2), (rows[0], -2)]
        frame = on_spark.frame(spark, [cases.TABLE], {"x": changes})
        for name in ("expressions", "groups"):
            plan = planned(name, QUERIES[name], [cases.TABLE.relation])
            found = on_spark.answered(spark, plan, [cases.TABLE], frame)
            expected = asked(connection, QUERIES[name])
            assert same(found, expected), differing(found, expected, plan)
        for seed in todays(range(1, 13), 1):
            _fuzzed(spark, connection, seed)
        connection.execute("DROP SCHEMA fuzz CASCADE")


def _fuzzed(spark: SparkSession, connection: psycopg.Connection[Any], seed: int) -> None:
    draw = random.Random(seed)
    world = World(connection, draw, tables(draw))
    world.create()
    for _ in range(4):
        world.transaction()
        world.advance()
    tables_ = [*world.tables, on_spark.NOW]
    frame = on_spark.frame(spark, tables_, {**world.changes, on_spark.NOW.name: [((world.now,), 1)]})
    for _ in range(ON_SPARK):
        query = queries.query(draw, world.tables)
        try:
            plan = planned("fuzz", query.sql, [table.relation for table in world.tables])
        except ViewRefused:
            continue
        found, expected = on_spark.answered(spark, plan, tables_, frame), asked(connection, world.at(query.sql))
        assert same(found, expected), f"seed {seed}: {query.sql}\n{plan}\n{found - expected}\n{expected - found}"
