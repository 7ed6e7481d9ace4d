"""Awkward expressions and aggregates: the plan's own answer, and Spark's, against PostgreSQL's."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from millrace.model.signed import Bag, Table, canonical
from millrace.views import Plan, planned
from millrace.views.twin import answer
from tests.views import cases
from tests.views.fuzz import connected, plain, same

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
