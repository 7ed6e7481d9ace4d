"""The table's side of a comparison: PostgreSQL hashes its rows itself, at one moment, and only digests travel."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from millrace.capture import postgres
from millrace.capture.database import Address, CapturedTable, Column
from millrace.capture.definition import Capture
from millrace.capture.postgres import identifier, qualified
from millrace.capture.verify.canonical import form_of
from millrace.capture.verify.layout import CHECKSUM, Compared, Layout
from millrace.capture.verify.moment import Moment
from millrace.errors import DatabaseRefused, TableUnverifiable

# Rows that travel at once where single rows are looked at.
FETCH_ROWS = 10_000

# Domains are looked through, also several on top of each other. `item` is the type of an array's elements.
_TYPES = """
WITH RECURSIVE looked(number, name, storage, virtual, type, depth) AS (
    SELECT a.attnum, a.attname, a.attstorage, a.attgenerated = 'v', a.atttypid, 0
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = %s::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT l.number, l.name, l.storage, l.virtual, t.typbasetype, l.depth + 1
    FROM looked l JOIN pg_catalog.pg_type t ON t.oid = l.type WHERE t.typtype = 'd'
)
SELECT DISTINCT ON (l.number) l.name::text AS name, l.storage <> 'p' AS large, l.virtual AS virtual,
       coalesce(item.typname, t.typname)::text AS type, coalesce(item.typtype, t.typtype)::text AS kind,
       item.oid IS NOT NULL AS is_array
FROM looked l JOIN pg_catalog.pg_type t ON t.oid = l.type
LEFT JOIN pg_catalog.pg_type item ON item.typarray = t.oid
ORDER BY l.number, l.depth DESC
"""
_POSITION = "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS lsn"
_SETTINGS = (
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO'",
    "SET LOCAL IntervalStyle = 'iso_8601'",
    "SET LOCAL lc_monetary = 'C'",
    "SET LOCAL extra_float_digits = 3",
    "SET LOCAL bytea_output = 'hex'",
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    "SET LOCAL row_security = off",  # rather an error than fewer rows
)


@dataclass(frozen=True)
class Bucket:
    """Rows whose key digests begin alike: how many there are, and their checksums combined."""

    rows: int
    checksum: int


class TableAtMoment:
    """A table as one transaction sees it."""

    def __init__(
        self, connection: psycopg.Connection[Any], database: str, table: CapturedTable, moment: Moment
    ) -> None:
        self._connection, self._database, self._table = connection, database, table
        self.moment = moment

    def buckets(self, layout: Layout, digits: int, within: Collection[str] | None = None) -> dict[str, Bucket]:
        """By the first `digits` hex digits of the key digest; `within`: only of these shorter beginnings."""
        query = sql.SQL(
            "SELECT left(key, {digits}) AS bucket, count(*) AS rows, bit_xor({checksum}) AS checksum"
            " FROM (SELECT {key} AS key, {row} AS pieces FROM {table} AS held {where}) AS each GROUP BY 1"
        ).format(
            digits=sql.Literal(digits),
            checksum=sql.SQL(CHECKSUM).format(key=sql.SQL("key"), row=sql.SQL("pieces")),
            key=layout.key_in_sql(),
            row=layout.row_in_sql(),
            table=identifier(self._table.name),
            where=_begins(layout, within),
        )
        return {row.bucket: Bucket(row.rows, row.checksum) for row in self._rows(query, _parameters(within))}

    def checksums(self, layout: Layout, within: Collection[str]) -> Iterator[tuple[bytes, int]]:
        """Key digest and checksum of every row in some buckets."""
        query = sql.SQL(
            "SELECT decode(key, 'hex') AS key, {checksum} AS checksum"
            " FROM (SELECT {key} AS key, {row} AS pieces FROM {table} AS held {where}) AS each"
        ).format(
            checksum=sql.SQL(CHECKSUM).format(key=sql.SQL("key"), row=sql.SQL("pieces")),
            key=layout.key_in_sql(),
            row=layout.row_in_sql(),
            table=identifier(self._table.name),
            where=_begins(layout, within),
        )
        for row in self._rows(query, _parameters(within)):
            yield bytes(row.key), row.checksum

    def rows(self, layout: Layout, keys: Collection[bytes]) -> Iterator[tuple[bytes, bytes, tuple[str, ...]]]:
        """Of the rows with these key digests: the digest, the pieces, and the key's columns as they are printed."""
        query = sql.SQL(
            "SELECT decode({key}, 'hex') AS key, decode({row}, 'hex') AS pieces, {shown} FROM {table} AS held"
        ).format(
            key=layout.key_in_sql(),
            row=layout.row_in_sql(),
            shown=sql.SQL("ARRAY[{}] AS shown").format(
                sql.SQL(", ").join(
                    sql.SQL("concat({})").format(sql.Identifier("held", each.name)) for each in layout.key
                )
            ),
            table=identifier(self._table.name),
        ) + sql.SQL(" WHERE {} = ANY(%s)").format(layout.key_in_sql())
        for row in self._rows(query, ([key.hex() for key in keys],)):
            yield bytes(row.key), bytes(row.pieces), tuple(row.shown)

    def _rows(self, query: sql.Composed, parameters: Sequence[Any]) -> Iterator[Any]:
        with refusing(self._database, self._table.name), self._connection.cursor("millrace_verify") as cursor:
            cursor.itersize = FETCH_ROWS
            yield from cursor.execute(query, parameters)


@contextlib.contextmanager
def at_moment(name: str, address: Address, table: CapturedTable) -> Iterator[TableAtMoment]:
    """The table as of now, for as long as the block lasts; writers are not held up."""
    with postgres.connect(name, address) as connection, refusing(name, table.name):
        before = connection.execute(_POSITION).fetchone().lsn  # type: ignore[union-attr]
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            for setting in _SETTINGS:
                connection.execute(setting)
            snapshot = connection.execute("SELECT pg_current_snapshot()::text AS text").fetchone().text  # type: ignore[union-attr]
            after = connection.execute(_POSITION).fetchone().lsn  # type: ignore[union-attr]
            yield TableAtMoment(connection, name, table, Moment.of(snapshot, int(before), int(after)))


@contextlib.contextmanager
def refusing(name: str, table: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise DatabaseRefused(name=name, statement=f"to read {table}", reason=postgres.first_line(error)) from None


def layout_of(name: str, address: Address, capture: Capture, table: CapturedTable) -> Layout:
    """What is compared of a table as it is now. Masked columns are not: their values are not in the topic."""
    if not table.key:
        remedy = "give it a primary key, and capture it again"
        raise TableUnverifiable(
            table=table.name, reason="it has no key by which rows could be told apart", remedy=remedy
        )
    masked, excluded = (_of_table(names, table.name) for names in (capture.mask, capture.exclude))
    known = {column.name: column for column in table.columns}
    columns: dict[str, Compared] = {}
    left_out: dict[str, str] = {}
    with postgres.connect(name, address) as connection, refusing(name, table.name):
        quoted = identifier(table.name).as_string(connection)
        for row in connection.execute(_TYPES, (quoted,)):
            if row.name in masked:
                left_out[row.name] = "it is masked"
            elif row.name not in excluded and not row.virtual:
                columns[row.name] = _compared(row, known.get(row.name))
    if missing := [column for column in table.key if column not in columns]:
        reason = f"column {missing[0]} of its key is masked or gone"
        raise TableUnverifiable(table=table.name, reason=reason, remedy="capture it without a mask for its key")
    key = tuple(columns.pop(column) for column in table.key)
    return Layout.of(key, tuple(columns.values()), left_out)


def _compared(row: Any, known: Column | None) -> Compared:
    form = form_of(row.type, row.kind, row.is_array)
    if known is None:
        return Compared(row.name, form, row.large)
    default = None if known.default is None else json.loads(known.default)
    return Compared(row.name, form, row.large, known.was, default)


def _of_table(names: Sequence[str], table: str) -> set[str]:
    return {name.rpartition(".")[2] for name in names if qualified(name.rpartition(".")[0]) == table}


def _begins(layout: Layout, within: Collection[str] | None) -> sql.Composable:
    if within is None:
        return sql.SQL("")
    digits = len(next(iter(within)))
    return sql.SQL("WHERE left({}, {}) = ANY(%s)").format(layout.key_in_sql(), sql.Literal(digits))


def _parameters(within: Collection[str] | None) -> tuple[Any, ...]:
    return () if within is None else (list(within),)
