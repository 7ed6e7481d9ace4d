"""Awkward expressions and aggregates: the plan's own answer, and Spark's, against PostgreSQL's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from millrace.errors import ViewRefused
from millrace.model.signed import Bag, Table, canonical
from millrace.views import Plan, planned
from millrace.views.twin import answer
from tests.rotation import seeds, todays
from tests.views import cases, on_spark, queries
from tests.views.fuzz import connected, difference, misprinted, plain, same
from tests.views.worlds import World, tables

ON_SPARK = 4

QUERIES = {
    "expressions": cases.every_expression(),
    "groups": cases.every_aggregate("i"),
    "one group": cases.every_aggregate(""),
    "no rows": cases.every_aggregate("") + " WHERE id > 100",
    **{each: each for each in (*cases.FIRST_ROWS, *cases.AMONG)},
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
                which = written[place] if len(written) == len(names) else names[place]
                told.append(f"{which} of {mine[0]}: {one!r} and in PostgreSQL {two!r}")
    return "\n".join(told) or f"{ours} and {theirs}"


def reprinted(printed: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]], plan: Plan) -> str:
    """Which columns have the value with other digits."""
    theirs = {row[0]: row for row in expected}
    return "\n".join(
        f"{name} of {row[0]}: {mine} and in PostgreSQL {other}"
        for row in printed
        for (name, _), mine, other in zip(plan.columns, row, theirs[row[0]], strict=True)
        if isinstance(mine, Decimal) and str(mine) != str(other)
    )


def asked(connection: psycopg.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    rows = connection.execute(sql, binary=True).fetchall()  # type: ignore[call-overload]
    return [tuple(map(plain, row)) for row in rows]


@pytest.mark.server
def test_expressions_and_aggregates_are_postgresqls(postgres: str) -> None:
    with connected(postgres) as connection:
        filled = [tuple(canonical(value) for value in row) for row in cases.fill(connection)]
        held = {"x": Table(tuple(cases.TABLE.columns), Bag(filled))}
        for name, sql in QUERIES.items():
            plan = planned(name, sql, [cases.TABLE.relation])
            found, rows = answer(plan, held), asked(connection, sql)
            assert same(found, Bag(rows)), differing(found, Bag(rows), plan)
            assert not (printed := misprinted(found, rows, plan)), reprinted(printed, rows, plan)
        connection.execute("DROP SCHEMA fuzz CASCADE")


@pytest.mark.server
@pytest.mark.spark
def test_spark_answers_as_postgresql(spark: SparkSession, postgres: str) -> None:
    """Also rows that came and went, and queries of the fuzzer, other ones every day."""
    with connected(postgres) as connection:
        filled = [tuple(canonical(value) for value in row) for row in cases.fill(connection)]
        changes = [*((row, 1) for row in filled), (filled[0], 2), (filled[0], -2)]
        frame = on_spark.frame(spark, [cases.TABLE], {"x": changes})
        for name in ("expressions", "groups", *todays(cases.FIRST_ROWS, 2), *todays(cases.AMONG, 2)):
            plan = planned(name, QUERIES[name], [cases.TABLE.relation])
            found = on_spark.answered(spark, plan, [cases.TABLE], frame)
            rows = asked(connection, QUERIES[name])
            assert same(found, Bag(rows)), differing(found, Bag(rows), plan)
            assert not (printed := misprinted(found, rows, plan)), reprinted(printed, rows, plan)
        for seed in seeds(12):
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
        found, rows = on_spark.answered(spark, plan, tables_, frame), asked(connection, world.at(query.sql))
        printed = misprinted(found, rows, plan)
        told = f"seed {seed}: {query.sql}\n{plan}\n{difference(found, Bag(rows), printed)}"
        assert not printed, told
        assert same(found, Bag(rows)), told
