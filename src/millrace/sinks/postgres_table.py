"""The table that a sink writes: made from the schema, widened when the schema has grown, refused when it cannot hold
the rows; and the two tables of our own beside it, the ledger and what is staged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row
from pyspark.sql.types import StructType

from millrace.errors import SinkColumnUnfit, SinkTableGone, SinkTableUnfit, Where
from millrace.sinks.contract import DIFF, Feed
from millrace.sinks.ledger import Entry
from millrace.sinks.postgres_copy import ATTEMPT
from millrace.sinks.postgres_types import postgres_type

LEDGER = "millrace_ledger"

_COLUMNS = """
SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AS needed, a.attgenerated <> '' AS generated
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
# An index over expressions has zeros among its columns; a partial one, a predicate.
_UNIQUE = """
SELECT array_agg(a.attname::text) AS columns
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid
     AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s::regclass AND i.indisunique AND i.indpred IS NULL AND NOT 0 = ANY(i.indkey::int2[])
GROUP BY i.indexrelid
"""
_PLAIN = "SELECT oid FROM pg_catalog.pg_class WHERE oid = %s::regclass AND relkind IN ('r', 'p') AND NOT relhasrules"
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_TEXTS = re.compile(r"text|character varying(\(\d+\))?|character(\(\d+\))?|citext|json|jsonb|uuid|inet|xml")
_WHOLE = {"smallint": 5, "integer": 10, "bigint": 19}
_TIMES = ("timestamp without time zone", "timestamp with time zone")


@dataclass(frozen=True)
class Target:
    """A table by its schema (None: the first of the search path) and name."""

    schema: str | None
    table: str

    @classmethod
    def of(cls, text: str) -> Target:
        schema, _, table = text.rpartition(".")
        return cls(schema or None, table)

    def beside(self, table: str) -> sql.Identifier:
        return sql.Identifier(table) if self.schema is None else sql.Identifier(self.schema, table)

    @property
    def identifier(self) -> sql.Identifier:
        return self.beside(self.table)

    def staging(self, flow: str, sink: str) -> sql.Identifier:
        digest = hashlib.sha256(f"{flow}\0{sink}".encode()).hexdigest()[:16]
        return self.beside(f"millrace_staged_{digest}")


class Shaping:
    """Brings a target into the shape that a feed needs."""

    def __init__(
        self, connection: psycopg.Connection[Any], target: Target, feed: Feed, sink: str, where: Where
    ) -> None:
        self._connection, self._target, self._feed = connection, target, feed
        self._sink, self._where = sink, where

    def shape(self, flow: str, held: Entry | None) -> None:
        """`held` is what the ledger says of the flow: a table that somebody dropped is not made again without its
        rows."""
        with self._connection.transaction():
            if exists(self._connection, self._target):
                self._evolve()
            elif held is None:
                self._create()
            else:
                facts = {"sink": self._sink, "table": self._target.table, "flow": flow, "epoch": held.number}
                raise SinkTableGone(**facts, where=self._where)

    def takes_new(self) -> bool:
        """Whether rows can be copied into the target as they are: it is a table without rules, which COPY would pass
        by, it has their very types, and where it knows rows by a key it has none yet that they could meet."""
        if not list(self._rows(_PLAIN)):
            return False
        held = {row.name: row.type for row in self._rows(_COLUMNS)}
        alike = all(held.get(field.name) == _type_of(field.dataType) for field in self._feed.columns.fields)
        return alike and (self._empty() if self._feed.key else not self._feed.signed)

    def _empty(self) -> bool:
        found = self._connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(self._target.identifier))
        return found.fetchone() is None

    def _create(self) -> None:
        parts = [_column(field.name, _type_of(field.dataType)) for field in self._feed.columns.fields]
        if self._feed.key:
            keys = sql.SQL(", ").join(map(sql.Identifier, self._feed.key))
            parts.append(sql.SQL("PRIMARY KEY ({})").format(keys))
        made = sql.SQL("CREATE TABLE {} ({})").format(self._target.identifier, sql.SQL(", ").join(parts))
        self._connection.execute(made)

    def _evolve(self) -> None:
        held = {row.name: row for row in self._rows(_COLUMNS)}
        changes: list[sql.Composable] = []
        for field in self._feed.columns.fields:
            wanted, found = _type_of(field.dataType), held.get(field.name)
            if found is None:
                changes.append(sql.SQL("ADD COLUMN {}").format(_column(field.name, wanted)))
            elif found.generated:
                raise self._unfit(field.name, "the table computes it itself")
            elif not holds(found.type, wanted):
                if not widens(found.type, wanted):
                    raise self._unfit(field.name, f"the table has it as {found.type}, and rows have it as {wanted}")
                changed = sql.SQL("ALTER COLUMN {} TYPE {}").format(sql.Identifier(field.name), _word(wanted))
                changes.append(changed)
        for name in held.keys() - set(self._feed.columns.names):
            if held[name].needed:
                raise self._unfit(name, "the table wants a value for it, and rows have no such column")
        if changes:
            self._connection.execute(
                sql.SQL("ALTER TABLE {} {}").format(self._target.identifier, sql.SQL(", ").join(changes))
            )
        self._check_key()

    def _check_key(self) -> None:
        key = set(self._feed.key)
        if key and not any(set(row.columns) == key for row in self._rows(_UNIQUE)):
            raise SinkTableUnfit(
                sink=self._sink,
                table=self._target.table,
                reason=f"it has no unique index on {', '.join(self._feed.key)}, by which rows are to be found",
                where=self._where,
            )

    def _rows(self, query: LiteralString) -> Iterable[Any]:
        name = self._target.identifier.as_string(self._connection)
        with self._connection.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(query, (name,)).fetchall()

    def _unfit(self, column: str, reason: str) -> SinkColumnUnfit:
        remedy = f"change the table {self._target.table!r} or the rows, or write to another table"
        return SinkColumnUnfit(sink=self._sink, column=column, reason=reason, remedy=remedy, where=self._where)

    def beside(self, staging: sql.Identifier) -> None:
        """The ledger, which stays, and an empty table to stage in."""
        make_ledger(self._connection, self._target)
        columns = [_column(field.name, _type_of(field.dataType)) for field in self._feed.columns.fields]
        made = "CREATE UNLOGGED TABLE {} ({}, {} smallint NOT NULL, {} bigint NOT NULL)"
        with self._connection.transaction():
            self._connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(staging))
            self._connection.execute(
                sql.SQL(made).format(
                    staging, sql.SQL(", ").join(columns), sql.Identifier(DIFF), sql.Identifier(ATTEMPT)
                )
            )


def make_ledger(connection: psycopg.Connection[Any], target: Target) -> None:
    with connection.transaction():
        # Two that make it at once would both find it missing.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('millrace_ledger'))")
        ledger = """CREATE TABLE IF NOT EXISTS {} (
                    flow text, sink text, epoch bigint NOT NULL, ranges text NOT NULL,
                    written timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (flow, sink))"""
        connection.execute(sql.SQL(ledger).format(target.beside(LEDGER)))


def exists(connection: psycopg.Connection[Any], target: Target) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", (target.identifier.as_string(connection),)).fetchone()
    return row is not None and row[0] is not None


def _column(name: str, kind: str) -> sql.Composed:
    return sql.SQL("{} {}").format(sql.Identifier(name), _word(kind))


def _word(kind: str) -> sql.SQL:
    """A type's name is one of ours, never the user's."""
    assert re.fullmatch(r"[a-z ]+(\(\d+,\d+\))?(\[\])?", kind), kind
    return sql.SQL(kind)


def _type_of(kind: Any) -> str:
    found = postgres_type(kind)
    assert found is not None, "the sink's check refuses such columns"
    return found


def holds(held: str, wanted: str) -> bool:
    """Whether a column of one type takes every value of another. Texts take texts: what does not fit is refused row by
    row, by the server."""
    if held == wanted or (_TEXTS.fullmatch(held) is not None and wanted in ("text", "jsonb")):
        return True
    if held.endswith("[]") and wanted.endswith("[]"):
        return holds(held[:-2], wanted[:-2])
    if held == "numeric" and (wanted in _WHOLE or wanted.startswith("numeric")):
        return True
    if held in _WHOLE and wanted in _WHOLE:
        return _WHOLE[held] >= _WHOLE[wanted]
    if found := _NUMERIC.fullmatch(held):
        room = int(found[1]) - int(found[2])
        if wanted in _WHOLE:
            return room >= _WHOLE[wanted]
        other = _NUMERIC.fullmatch(wanted)
        return other is not None and room >= int(other[1]) - int(other[2]) and int(found[2]) >= int(other[2])
    return (held, wanted) == ("double precision", "real")


def widens(held: str, wanted: str) -> bool:
    """Whether a column can become of the wanted type without losing a value."""
    return postgres_holds_all(wanted, held)


def postgres_holds_all(wanted: str, held: str) -> bool:
    """As `holds`, but texts only grow: a JSON document or a uuid is not turned into text behind somebody's back."""
    if wanted == "text":
        return held.startswith("character")
    return held != wanted and not _TEXTS.fullmatch(held) and holds(wanted, held)


def columns_of(schema: StructType) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, schema.names))
