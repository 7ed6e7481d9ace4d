"""Members of JSON: PostgreSQL, the plan in plain Python and Spark give the same, whatever the JSON looks like."""

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from millrace.model.signed import Bag, Table
from millrace.views import planned
from millrace.views.members import found
from millrace.views.numerics import NoAnswer
from millrace.views.twin import answer
from tests.rotation import today
from tests.views import on_spark
from tests.views.fuzz import connected
from tests.views.worlds import Made

TABLE = Made("x", {"id": "integer", "j": "json", "b": "jsonb"})

# Asked of each column. The third has no object to find it in, most of the time.
MEMBERS = ("{} ->> 'a'", "{} ->> 'it''s'", "{} -> 'a' ->> 'a'", "{} ->> ''", "({} ->> 'n')::numeric(20,3) * 2")

WRITTEN = (
    '{"a": 1.50, "n": "12.3456"}', '{"a": 1e400, "n": -0.0005}', '{"a": 1, "a": 2}', '{"a": 1, "a": null}', "{}",
    '{"a": {"a": "x"}, "n": " 7 "}', '  {\n"a"\t: [1, 2.0,  {"a": 3}]  }\n', '{"\\u0061": "\\u00e4\\ud83d\\udc09\\n"}',
    '{"it\'s": true, "": "none", "b": {"a": 1}}', "[1, 2]", '"a"', "5", "null", '{"a": ""}', '{"a": "null"}',
    '{"a": 123456789012345678901234567890.120}', '{"a": "\\"\\\\\\/\\b"}', '{"a": false, "n": 3}', '{"n": 0.1e1}',
)  # fmt: skip


def made_up(chance: random.Random, deep: int = 3) -> Any:
    kind = chance.randrange(8 if deep else 5)
    if kind < 5:
        texts = ("", "a", "ä🐉", '"', "\\", "\u2028", "7", "null")
        return (None, chance.random() < 0.5, chance.choice(texts), chance.randint(-9, 9), chance.choice((0.5, 1e22)))[
            kind
        ]
    if kind == 5:
        return [made_up(chance, deep - 1) for _ in range(chance.randrange(3))]
    return {chance.choice(("a", "b", "", "it's")): made_up(chance, deep - 1) for _ in range(chance.randrange(4))}


def texts() -> list[str | None]:
    chance = random.Random(today())
    made = [
        json.dumps(made_up(chance), ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1)))
        for _ in range(60)
    ]
    return [*WRITTEN, *made, None]


def query() -> str:
    listed = [each.format(column) for column in ("j", "b") for each in MEMBERS]
    return f"SELECT id, {', '.join(f'{each} AS e{place}' for place, each in enumerate(listed))} FROM x"


def filled(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """The table, and its rows as a capture tells them: JSON as the text that PostgreSQL prints."""
    connection.execute("DROP SCHEMA IF EXISTS fuzz CASCADE")
    connection.execute("CREATE SCHEMA fuzz")
    connection.execute("SET search_path = fuzz")
    connection.execute("CREATE TABLE x (id integer PRIMARY KEY, j json, b jsonb)")
    for number, text in enumerate(texts()):
        connection.execute("INSERT INTO x VALUES (%s, %s, %s)", (number, text, text))
    return connection.execute("SELECT id, j::text, b::text FROM x").fetchall()


@pytest.mark.server
@pytest.mark.spark
def test_members_are_postgresqls(spark: SparkSession, postgres: str) -> None:
    with connected(postgres) as connection:
        rows = filled(connection)
        expected = Bag(connection.execute(query().encode()).fetchall())
        connection.rollback()
    assert len({row[1] for row in expected}) > 10
    plan = planned("v", query(), [TABLE.relation])
    assert answer(plan, {"x": Table(tuple(TABLE.columns), Bag(rows))}) == expected
    frame = on_spark.frame(spark, [TABLE], {"x": [(row, 1) for row in rows]})
    assert on_spark.answered(spark, plan, [TABLE], frame) == expected


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.parametrize("text", ['{"a": "\\u0000"}', '{"a": "x\\ud83d"}'])
def test_what_is_no_text_of_postgresql_stops_all_three(spark: SparkSession, postgres: str, text: str) -> None:
    plan = planned("v", "SELECT id, j ->> 'a' AS a FROM x", [TABLE.relation])
    with psycopg.connect(postgres) as connection, pytest.raises(psycopg.DataError):
        connection.execute("SELECT %s::json ->> 'a'", (text,))
    with pytest.raises(NoAnswer):
        found(text, "a", as_text=True)
    frame = on_spark.frame(spark, [TABLE], {"x": [((1, text, None), 1)]})
    with pytest.raises(Exception, match="cannot be a text of PostgreSQL"):
        on_spark.answered(spark, plan, [TABLE], frame)
