"""The edges of types through views: changelog, store, HTTP and WebSocket tell what PostgreSQL answers, to a letter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from millrace.client import Client
from millrace.engine import Run
from millrace.flow import App
from millrace.views.changelog import lsn_number, lsn_text, row_text
from millrace.views.store import Store
from tests.capture import every_type
from tests.command import until
from tests.serve.world import served
from tests.shop import Shop
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

LIMIT_S = 900.0
# After that year Spark has no moments: the view's flow says so, and stops.
TOO_LATE = "294276-12-31"
TYPES = (
    *("smallint", "integer", "bigint", "numeric", "numeric(12, 2)", "numeric(38, 10)", "numeric(60, 5)", "real"),
    *("double precision", "text", "char(5)", "varchar(10)", "bytea", "boolean", "date", "time", "timestamp"),
    *("timestamp(3)", "timestamptz", "interval", "uuid", "json", "jsonb", "inet"),
)
VALUES = {f"c{place}": [each for each in every_type.VALUES[name] if TOO_LATE not in each]
          for place, name in enumerate(TYPES)}  # fmt: skip
# What a view only passes on is text in it.
TEXTS = ("interval", "json", "jsonb")
COLUMNS = dict(zip(VALUES, TYPES, strict=True))
PERIODS = (
    *("'2024-01-01', 'infinity', 'infinity'", "'infinity', '-infinity', '-infinity'", "'0044-03-15 BC', NULL, NULL"),
    *("'0001-01-01 BC', '0001-12-31 23:59:59.999999 BC', '4713-01-01 00:00:00+00 BC'", "NULL, 'infinity', NULL"),
    *("'10000-01-01', '10000-12-31 23:59:59.000001', '99999-12-31 23:59:59.999999+00'", "'0001-01-01', NULL, NULL"),
    "'9999-12-31', '9999-12-31 23:59:59.999999', '0001-01-01 00:00:00+00'",
)
COMPUTED = (
    *("d::timestamp", "a::date", "z AT TIME ZONE 'UTC'", "a AT TIME ZONE 'UTC'", "d + 1", "d - 400"),
    *("a > z AT TIME ZONE 'UTC'", "a + interval '1 month'", "a - interval '1 year 2 days'"),
    *("z + interval '36 hours'", "date_trunc('year', a)", "date_trunc('week', a)", "date_trunc('hour', a)"),
    *("extract(month FROM d)", "extract(dow FROM a)", "extract(second FROM a)", "z = 'infinity'", "z < '-infinity'"),
    *("a IN ('infinity', '2024-01-01')", "d = 'infinity'", "greatest(d, date '2024-01-01')", "coalesce(z, 'infinity')"),
    *("CASE WHEN isfinite THEN extract(year FROM d) END", "CASE WHEN isfinite THEN extract(epoch FROM a) END"),
    "CASE WHEN isfinite THEN date '2024-01-01' - d END",
)  # fmt: skip


def sql_of(view: str) -> str:
    """Over tables by their names."""
    computed = ", ".join(f"{each} AS e{place}" for place, each in enumerate(COMPUTED))
    return {
        "every": f"SELECT id, {', '.join(COLUMNS)} FROM every_type",
        "over": f"SELECT id, {', '.join(COLUMNS)} FROM every",
        "periods": "SELECT n, d, a, z FROM periods WHERE d IS NOT NULL AND coalesce(a, '-infinity') <= 'infinity'",
        "computed": f"SELECT n, {computed} FROM periods",
        "gathered": "SELECT n % 2 AS g, array_agg(d ORDER BY n) AS d, array_agg(a ORDER BY n) AS a,"
        " array_agg(z ORDER BY n) AS z, array_agg(b ORDER BY n) AS b, min(d) AS least, max(a) AS latest,"
        " count(DISTINCT z) AS different FROM periods GROUP BY 1",
        "grown": "SELECT g, d, a, z, b, latest FROM gathered",
    }[view]


KEYS = {
    "every": "id", "over": "id", "periods": ("d", "n", "z"), "computed": "n", "gathered": "g",
    "grown": "g",
}  # fmt: skip


def create(shop: Shop) -> None:
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    shop.run(f"CREATE TABLE every_type (id integer PRIMARY KEY, {columns})")
    for number in range(max(map(len, VALUES.values()))):
        held = {name: values[number] for name, values in VALUES.items() if number < len(values)}
        shop.run(f"INSERT INTO every_type (id, {', '.join(held)}) VALUES ({number}, {', '.join(held.values())})")
    shop.run(
        "INSERT INTO every_type (id) VALUES (100)",
        "CREATE TABLE periods (n integer PRIMARY KEY, d date, a timestamp, z timestamptz, b bytea, isfinite boolean)",
        *(rf"INSERT INTO periods VALUES ({n}, {each}, '\x00ff')" for n, each in enumerate(PERIODS)),
        "UPDATE periods SET isfinite = coalesce(isfinite(d), true) AND coalesce(isfinite(a), true)",
    )


def answers(shop: Shop, view: str) -> list[str]:
    """PostgreSQL's own, as JSON."""
    shown = [_shown(name, type_) for name, type_ in COLUMNS.items()]
    query = sql_of(view)
    if view in ("every", "over"):
        query = f"SELECT id, {', '.join(shown)} FROM every_type"
    if view == "grown":
        query = f"SELECT g, d, a, z, b, latest FROM ({sql_of('gathered')}) gathered"
    with psycopg.connect(shop.url, autocommit=True, options="-c TimeZone=UTC -c IntervalStyle=iso_8601") as connection:
        rows = connection.execute(f"SELECT row_to_json(q)::text FROM ({query}) q").fetchall()  # type: ignore[call-overload]
        return sorted(text for (text,) in rows)


def _shown(name: str, type_: str) -> str:
    """In a view -0 is 0, to which it is equal."""
    if type_ in ("real", "double precision"):
        return f"{name} + 0::{type_} AS {name}"
    return f"{name}::text AS {name}" if type_ in TEXTS else name


def differing(found: list[str], expected: list[str]) -> str:
    """For people: the first columns that are others."""
    told = [f"{len(found)} rows, and {len(expected)} in PostgreSQL"]
    for one, other in zip(found, expected, strict=False):
        ours, theirs = json.loads(one, parse_float=Decimal), json.loads(other, parse_float=Decimal)
        told += [
            f"{name} of {next(iter(ours.values()))}: {str(ours[name])[:90]!r}, in PostgreSQL {str(theirs[name])[:90]!r}"
            for name in ours
            if repr(ours[name]) != repr(theirs[name])
        ]
    return "\n".join(told[:12])


def parsed(texts: list[str]) -> list[str]:
    return by_text(json.loads(text, parse_float=Decimal) for text in texts)


def by_text(rows: Iterable[Any]) -> list[str]:
    """With every digit of their numbers: 1.0 and 1.00 are equal, and are not the same here."""
    return sorted(map(repr, rows))


@pytest.mark.turn(0, 2)
def test_edges_of_types_are_told_as_postgresql_tells_them(shop: Shop, spark: SparkSession) -> None:
    create(shop)
    own = {view: f"{shop.name}_{view}" for view in KEYS}
    app = App(f"edges-{shop.name}")
    app.capture(shop.name, ["every_type", "periods"])
    for view, key in KEYS.items():
        named = sql_of(view).replace("FROM every", f"FROM {own['every']}") if view == "over" else sql_of(view)
        app.view(own[view], key=key, sql=named.replace("FROM gathered", f"FROM {own['gathered']}"))
    shop.captures.ensure(app.graph().databases[0].capture)
    marked(shop, lsn(shop))
    with (
        Run(app, shop.settings, spark=spark, traffic=False) as run,
        closing(Store(shop.settings, app.name)) as store,
        served(shop.settings, app) as server,
        closing(Client(server.address)) as client,
    ):
        until(lambda: run.poll() is not None and len(store.positions()) == len(KEYS), "the views", LIMIT_S)
        followed = {view: Followed(client, own[view], KEYS[view]) for view in ("every", "periods", "gathered")}
        for change in (
            "SELECT 1",
            "UPDATE periods SET d = '0044-03-16 BC', a = 'infinity', z = '20000-01-01+00', isfinite = false"
            " WHERE n IN (0, 5)",
            "DELETE FROM periods WHERE z IN ('-infinity', '0001-01-01 00:00:00+00')",
            "UPDATE every_type SET c0 = NULL, c4 = 7 WHERE id % 2 = 1",
        ):
            shop.run(change)
            wanted = lsn_text(lsn(shop))
            for view, name in own.items():
                store.wait(name, wanted, LIMIT_S)
                expected = answers(shop, view)
                found = sorted(store.texts(name)[0])
                assert found == expected, f"{view}: {differing(found, expected)}"
                assert len(store.rows(name)[1]) == len(expected)
                assert by_text(client.rows(name, limit=1000)) == parsed(expected), view
                if view in followed:
                    assert by_text(followed[view].until(wanted)) == parsed(expected), view
        _is_found_by_key(client, store, own)
        run.stop()
    _changelog_says_the_same(shop, own)


def _is_found_by_key(client: Client, store: Store, own: dict[str, str]) -> None:
    row = client.get(own["periods"], "0044-03-16 BC", 0, "20000-01-01+00")
    assert row == {"n": 0, "d": "0044-03-16 BC", "a": "infinity", "z": "20000-01-01T00:00:00+00:00"}
    assert client.rows(own["periods"], {"a": "infinity", "n": 5})[0]["d"] == "0044-03-16 BC"
    assert client.rows(own["periods"], {"z": "infinity"}) == []
    _, rows, _ = store.rows(own["periods"])
    assert {row[1:] for row in rows if row[0] == 0} == {("0044-03-16 BC", "infinity", "20000-01-01 00:00:00+00")}
    assert next(row for row in rows if row[0] == 3)[2] == "0001-12-31 23:59:59.999999 BC"


def _changelog_says_the_same(shop: Shop, own: dict[str, str]) -> None:
    """Another app reads the changelog as a table."""
    last = {record.key: record.value for record in shop.captures.log.read(own["periods"])}
    rows = {row["n"]: row for row in (json.loads(row_text(value)) for value in last.values() if value is not None)}
    assert (rows[0]["d"], rows[0]["a"], rows[0]["z"]) == ("0044-03-16 BC", "infinity", "20000-01-01T00:00:00.000000Z")
    # What Python and Spark's tables make of it is tested in tests/capture.
    assert sorted(rows) == [0, 2, 3, 5, 6]


class Followed:
    """What a client holds who watches a view."""

    def __init__(self, client: Client, view: str, key: str | tuple[str, ...]) -> None:
        self._told = client.watch(view)
        self._key = (key,) if isinstance(key, str) else key
        self._rows: dict[str, dict[str, Any]] = {}

    def until(self, wanted: str) -> list[dict[str, Any]]:
        for heard in self._told:
            if heard.snapshot:
                self._rows.clear()
            self._rows |= {self._of(row): row for row in heard.rows}
            for key in heard.gone:
                del self._rows[self._of(key)]
            if lsn_number(str(heard.position.lsn)) >= lsn_number(wanted):
                break
        return list(self._rows.values())

    def _of(self, row: dict[str, Any]) -> str:
        return repr([row[name] for name in self._key])
