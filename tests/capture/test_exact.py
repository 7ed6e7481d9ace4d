"""Types exact end to end: through the snapshot, the stream, and a table that is read again, bit for bit."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from millrace.capture import capture, printed, tables
from millrace.capture.reading import decoded
from tests.capture import every_type
from tests.command import until
from tests.shop import Shop

pytestmark = pytest.mark.server


def test_every_value_of_every_type_is_in_the_topic_as_the_database_has_it(shop: Shop) -> None:
    shop.run(every_type.SETUP, every_type.TABLE, *every_type.inserts())
    rows = shop.run("SELECT count(*) FROM every")[0][0]
    captures = shop.captures
    captures.add(capture(shop.name, ["every"]))
    topic = f"{shop.name}.public.every"
    _, known = tables.find(captures.log, f"{shop.name}.every")
    columns = ", ".join(f"{c}" for c in every_type.COLUMNS)

    def held(op: str) -> list[dict[str, Any]]:
        found = [json.loads(record.value) for record in captures.log.read(topic) if record.value is not None]
        return [each["after"] for each in found if each["op"] == op]

    until(lambda: len(held("r")) == rows, "the snapshot")
    shop.run(f"INSERT INTO every (id, {columns}) SELECT id + 100, {columns} FROM every")
    until(lambda: len(held("c")) == rows, "the stream")
    captures.snapshot(shop.name)  # an incremental one: through other code again
    until(lambda: len(held("r")) == 3 * rows, "the rows read again")
    shop.run("UPDATE every SET c0 = c0 WHERE id < 100")  # large values are left alone, and not logged
    until(lambda: len(held("u")) == rows, "the updates")

    expected, roots = _in_database(shop)
    for row in (*held("r"), *held("c"), *held("u")):
        assert list(row) == ["id", *every_type.COLUMNS]
        for column, value in row.items():
            meant = expected[row["id"]][column]
            assert _bits(value, roots[column]) == _bits(meant, roots[column]), every_type.COLUMNS.get(column)
    _as_python(shop, {row["id"]: decoded(known, json.dumps(row)) for row in held("u")}, roots)


def test_a_null_in_a_column_with_a_default_stays_one_and_before_holds_no_invented_values(shop: Shop) -> None:
    shop.run(
        "CREATE TABLE presets (\"Id\" numeric PRIMARY KEY, n integer DEFAULT 7, t text NOT NULL DEFAULT 'x',"
        " d date NOT NULL DEFAULT '2024-01-01', i interval NOT NULL DEFAULT '1 day', b bit(3) NOT NULL DEFAULT B'101',"
        f" a integer[] NOT NULL DEFAULT '{{1}}', large text NOT NULL DEFAULT {every_type.LARGE_DEFAULT})",
        'INSERT INTO presets ("Id", n) VALUES (1.10, NULL)',
    )
    captures = shop.captures
    captures.add(capture(shop.name, ["presets"]))
    topic = f"{shop.name}.public.presets"

    def envelopes() -> list[dict[str, Any]]:
        return [json.loads(record.value) for record in captures.log.read(topic) if record.value is not None]

    until(lambda: len(envelopes()) == 1, "the snapshot")
    shop.run("UPDATE presets SET t = 'y'")
    until(lambda: len(envelopes()) == 2, "the update")
    shop.run("DELETE FROM presets")
    until(lambda: len(envelopes()) == 3, "the delete")
    read, changed, deleted = envelopes()
    large = read["after"].pop("large")
    assert len(large) > 100_000
    row = {"Id": "1.10", "n": None, "t": "x", "d": "2024-01-01", "i": "P1D", "b": "101", "a": ["1"]}
    assert read["after"] == row
    assert changed["after"] == {**row, "t": "y", "large": large}  # under a key whose name has a capital
    assert deleted["before"] == {**dict.fromkeys((*row, "large")), "Id": "1.10"}


def test_types_that_debezium_cannot_live_with_are_found_before(shop: Shop) -> None:
    shop.run("CREATE TYPE mood AS ENUM ('ok')", "CREATE DOMAIN feeling AS mood", "CREATE TYPE empty AS ENUM ()")
    shop.run("CREATE TABLE t (id integer PRIMARY KEY, c refcursor)")
    found = [finding for finding in shop.captures.check(capture(shop.name, ["t"])) if finding.level == "error"]
    assert [(finding.subject, finding.what) for finding in found] == [
        ("type public.empty", "it is an enum without values"),
        ("type public.feeling", "it is a domain over an enum"),
        ("column public.t.c", "it is of type refcursor"),
    ]
    shop.run(*(finding.sql for finding in found if finding.sql), "DROP DOMAIN feeling")
    left = shop.captures.check(capture(shop.name, ["t"], exclude=["t.c"]))
    assert [finding for finding in left if finding.level == "error"] == []


def _bits(value: Any, root: str) -> str:
    """-0 is not 0, and what a real is printed as has fewer digits in PostgreSQL than in Java."""
    if root == "real" and isinstance(value, float | int):
        return struct.pack(">f", value).hex()
    return json.dumps(float(value) if root == "double precision" and isinstance(value, int) else value)


def _in_database(shop: Shop) -> tuple[dict[int, Any], dict[str, str]]:
    """What JSON must hold, from what PostgreSQL prints; and the types, domains looked through."""
    columns = ["id", *every_type.COLUMNS]
    with psycopg.connect(shop.url, autocommit=True, row_factory=dict_row) as connection:
        for name, value in printed.SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        roots = {row["name"]: row["root"] for row in connection.execute(_ROOTS)}
        listed = ", ".join(f"CASE WHEN {c} IS DISTINCT FROM NULL THEN concat({c}) END AS {c}" for c in columns)
        rows = list(connection.execute(f"SELECT {listed} FROM every"))  # type: ignore[call-overload]
    held = {
        int(row["id"]): {c: None if text is None else printed.in_json(text, roots[c]) for c, text in row.items()}
        for row in rows
    }
    return held, roots


_ROOTS = """
WITH RECURSIVE root AS (
    SELECT attname::text AS name, atttypid AS type, atttypmod AS modifier FROM pg_attribute
    WHERE attrelid = 'every'::regclass AND attnum > 0
    UNION ALL
    SELECT r.name, t.typbasetype, t.typtypmod FROM root r JOIN pg_type t ON t.oid = r.type WHERE t.typtype = 'd'
)
SELECT name, format_type(type, modifier) AS root FROM root JOIN pg_type t ON t.oid = type WHERE t.typtype <> 'd'
"""


def _as_python(shop: Shop, rows: dict[int, dict[str, Any]], roots: dict[str, str]) -> None:
    """Against what psycopg reads by itself, where both have a type for it."""
    kinds = (bool, int, float, Decimal, bytes, date, datetime)
    with psycopg.connect(shop.url, row_factory=dict_row) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        compared = set()
        for number, row in rows.items():
            for column, value in row.items():
                if not isinstance(value, kinds):
                    continue
                query = f"SELECT {column} AS value FROM every WHERE id = {number}"
                theirs = connection.execute(query).fetchone()["value"]  # type: ignore[call-overload, index]
                compared.add(type(value))
                if isinstance(value, float):
                    assert _bits(value, roots[column]) == _bits(theirs, roots[column])
                else:
                    assert (repr(value), type(value)) == (repr(theirs), type(theirs))
    assert compared == set(kinds)
