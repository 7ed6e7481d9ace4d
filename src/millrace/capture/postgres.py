"""PostgreSQL as captures see it: tables and their columns, publications, slots, and the tables of our own in it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

from millrace.capture import printed, types
from millrace.capture.database import Address, CapturedTable, Column
from millrace.capture.definition import Capture
from millrace.errors import DatabaseRefused, DatabaseUnreachable, TableUnknown, nearest

CONNECT_S = 10
SLOT_FREE_S = 30.0
GENERATED_PUBLISHED = 180_000  # the first version that can
DEFAULT_SCHEMA = "public"
SIGNAL, HEARTBEAT = "signal", "heartbeat"
MASKED = '"********"'  # what is in the topic of a masked column
# The trigger by which an event store's table is known, and the columns by which its rows are in order in the topic.
NEVER_CHANGED = "never_changed"
TOGETHER = ("aggregate", "id")

_TABLES = """
SELECT n.nspname || '.' || c.relname AS name, c.oid::bigint AS oid, c.relkind::text AS kind,
       c.relreplident::text AS identity, greatest(c.reltuples, 0)::bigint AS rows,
       pg_catalog.pg_get_userbyid(c.relowner) AS owner
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'
ORDER BY 1
"""
# `root` looks through domains, also several on top of each other. A column that is an identity, or whose domain has a
# default, got values when it was added although it has no default itself.
_COLUMNS = """
WITH RECURSIVE root(number, type, modifier, is_domain, preset) AS (
    SELECT a.attnum, a.atttypid, a.atttypmod, t.typtype = 'd', t.typdefault IS NOT NULL
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT r.number, b.oid, t.typtypmod, b.typtype = 'd', r.preset OR b.typdefault IS NOT NULL
    FROM root r JOIN pg_catalog.pg_type t ON t.oid = r.type AND r.is_domain
    JOIN pg_catalog.pg_type b ON b.oid = t.typbasetype
)
SELECT a.attnum AS number, a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       NOT a.attnotnull AS nullable, a.atthasdef OR a.attidentity <> '' OR r.preset AS has_default,
       a.attgenerated::text AS generated, a.attndims AS dimensions,
       CASE WHEN a.atthasmissing THEN a.attmissingval::text END AS missing,
       pg_catalog.format_type(r.type, r.modifier) AS root,
       CASE WHEN e.typtype = 'e' THEN pg_catalog.format_type(r.type, NULL) END AS enum
FROM pg_catalog.pg_attribute a JOIN root r ON r.number = a.attnum AND NOT r.is_domain
JOIN pg_catalog.pg_type e ON e.oid = r.type
WHERE a.attrelid = %(table)s
ORDER BY a.attnum
"""
_NEVER_CHANGED = """
SELECT 1 FROM pg_catalog.pg_trigger t
WHERE t.tgrelid = %s AND t.tgname = %s AND t.tgenabled <> 'D'
"""
_KEY = """
SELECT a.attname FROM pg_catalog.pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indexrelid = (
    SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = %s AND (indisprimary OR indisreplident)
    ORDER BY indisprimary DESC LIMIT 1) AND k.place <= i.indnkeyatts
ORDER BY k.place
"""
# Columns that older servers lack are read through JSON, where they are null.
_SLOT = """
SELECT slot_name, plugin, slot_type, database, active, wal_status, restart_lsn::text, confirmed_flush_lsn::text,
       to_jsonb(s) ->> 'invalidation_reason' AS invalidation_reason,
       pg_wal_lsn_diff(here, restart_lsn)::bigint AS kept_bytes,
       pg_wal_lsn_diff(here, confirmed_flush_lsn)::bigint AS behind_bytes
FROM pg_catalog.pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS here) w
WHERE slot_name = %s
"""
# Who is waited for by whoever makes the slot. Of somebody else's session a user without rights sees little; a prepared
# transaction has no process, and is told as 0.
_BLOCKING = """
SELECT p.pid, b.usename, b.state, date_trunc('second', b.xact_start)::text AS since
FROM pg_catalog.pg_stat_activity a
CROSS JOIN LATERAL unnest(pg_blocking_pids(a.pid)) p(pid)
LEFT JOIN pg_catalog.pg_stat_activity b ON b.pid = p.pid
WHERE a.query ILIKE '%%create%%replication%%slot%%' AND position(%s in a.query) > 0
ORDER BY b.xact_start LIMIT 1
"""


@dataclass(frozen=True)
class Table:
    """A table of the database. `kind` "p" is a partitioned one; `identity` is its replica identity (d, n, f, i)."""

    name: str
    oid: int
    kind: str
    identity: str
    rows: int
    owner: str


@contextlib.contextmanager
def connect(name: str, address: Address) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database, each statement its own transaction; server's complaints become ours."""
    try:
        connection = psycopg.connect(
            connect_timeout=CONNECT_S,
            application_name="millrace",
            autocommit=True,
            row_factory=namedtuple_row,
            **address.connecting,
        )
    except psycopg.Error as error:
        raise DatabaseUnreachable(name=name, address=address, reason=first_line(error)) from None
    with connection:
        yield connection


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]


def identifier(table: str) -> sql.Identifier:
    """`schema.table` for use in a statement."""
    return sql.Identifier(*table.split(".", 1))


def qualified(table: str) -> str:
    return table if "." in table else f"{DEFAULT_SCHEMA}.{table}"


def tables(connection: psycopg.Connection[Any]) -> dict[str, Table]:
    return {row.name: Table(*row) for row in connection.execute(_TABLES)}


def chosen(connection: psycopg.Connection[Any], capture: Capture) -> list[Table]:
    """The tables that a capture names."""
    found = tables(connection)
    for name in map(qualified, capture.tables):
        if name not in found:
            raise TableUnknown(table=name, database=capture.database, hint=nearest(name, found))
    return [found[qualified(name)] for name in capture.tables]


def described(connection: psycopg.Connection[Any], capture: Capture, table: Table) -> CapturedTable:
    """The table as readers will know it."""
    absent = {
        column.rpartition(".")[2] for column in capture.exclude if qualified(column.rpartition(".")[0]) == table.name
    }
    masked = {
        column.rpartition(".")[2] for column in capture.mask if qualified(column.rpartition(".")[0]) == table.name
    }
    columns = []
    for name, value in printed.SETTINGS.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    for row in connection.execute(_COLUMNS, {"table": table.oid}):
        if row.name in absent or row.generated == "v":  # a virtual column is not in the WAL
            continue
        spark, missing, enum = types.postgres(row), types.missing(row), row.enum or ""
        if row.name in masked:
            spark, missing, enum = "string", missing and MASKED, ""
        numbered = Column(row.name, row.type, spark, row.nullable, row.number, missing)
        columns.append(replace(numbered, has_default=row.has_default, enum=enum))
    key = tuple(row.attname for row in connection.execute(_KEY, (table.oid,)))
    shape = tuple(column.name for column in columns)
    stored = connection.execute(_NEVER_CHANGED, (table.oid, NEVER_CHANGED)).fetchone() is not None
    together = TOGETHER if stored and set(TOGETHER) <= set(shape) else ()
    return CapturedTable(table.name, capture.topic(table.name), key, tuple(columns), (shape,), together=together)


def virtual_columns(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    """Computed when read: a snapshot would show them, the log does not hold them."""
    rows = connection.execute(_COLUMNS, {"table": table.oid})
    return [f"{table.name}.{row.name}" for row in rows if row.generated == "v"]


def schema_exists(connection: psycopg.Connection[Any], name: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,)).fetchone() is not None


def slot(connection: psycopg.Connection[Any], name: str) -> Any | None:
    return connection.execute(_SLOT, (name,)).fetchone()


def hindrance(connection: psycopg.Connection[Any], slot_name: str) -> str | None:
    found = connection.execute(_BLOCKING, (slot_name,)).fetchone()
    if found is None:
        return None
    if not found.pid:
        return "a prepared transaction is open (see pg_prepared_xacts)"
    who = f"of {found.usename}, " if found.usename else ""
    since = f", since {found.since}" if found.since else ""
    return f"a transaction is open ({who}process {found.pid}{since}{f', {found.state}' if found.state else ''})"


def published(connection: psycopg.Connection[Any], publication: str) -> set[str] | None:
    """The tables of a publication; None if there is no such publication."""
    if not connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (publication,)).fetchone():
        return None
    rows = connection.execute(
        "SELECT schemaname || '.' || tablename AS name FROM pg_publication_tables WHERE pubname = %s", (publication,)
    )
    return {row.name for row in rows}


def own_tables(capture: Capture) -> tuple[str, str]:
    return f"{capture.own_schema}.{SIGNAL}", f"{capture.own_schema}.{HEARTBEAT}"


def statements(
    capture: Capture,
    names: Sequence[str],
    existing: set[str],
    published_now: set[str] | None,
    *,
    schema_there: bool,
    version: int,
) -> list[sql.Composed]:
    """What has to be made in the database before the connector starts, in order; nothing that is there already."""
    signal, heartbeat = own_tables(capture)
    todo: list[sql.Composed] = []
    if not schema_there:  # even IF NOT EXISTS would ask for the right to make one
        todo.append(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(capture.own_schema)))
    if signal not in existing:
        columns = sql.SQL("CREATE TABLE IF NOT EXISTS {} (id text PRIMARY KEY, type text NOT NULL, data text)")
        todo.append(columns.format(identifier(signal)))
    if heartbeat not in existing:
        columns = sql.SQL("CREATE TABLE IF NOT EXISTS {} (capture text PRIMARY KEY, at timestamptz NOT NULL)")
        todo.append(columns.format(identifier(heartbeat)))
    wanted = [*names, signal, heartbeat]
    if published_now is None:
        # Stored generated columns would otherwise be in snapshots and not in the stream.
        generated = sql.SQL(", publish_generated_columns = stored" if version >= GENERATED_PUBLISHED else "")
        made = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true{})")
        listed = sql.SQL(", ").join(map(identifier, wanted))
        todo.append(made.format(sql.Identifier(capture.publication_name), listed, generated))
    elif missing := [name for name in wanted if name not in published_now]:
        more = sql.SQL("ALTER PUBLICATION {} ADD TABLE {}")
        listed = sql.SQL(", ").join(map(identifier, missing))
        todo.append(more.format(sql.Identifier(capture.publication_name), listed))
    return todo


def unpublished(capture: Capture, names: Sequence[str], published_now: set[str]) -> list[sql.Composed]:
    """Takes tables that are no longer captured out of our own publication."""
    surplus = sorted(published_now - {*names, *own_tables(capture)})
    if not surplus:
        return []
    less = sql.SQL("ALTER PUBLICATION {} DROP TABLE {}")
    return [less.format(sql.Identifier(capture.publication_name), sql.SQL(", ").join(map(identifier, surplus)))]


def drop_slot(connection: psycopg.Connection[Any], name: str, slot_name: str) -> list[str]:
    """Drops a slot as soon as its last reader is gone, which the server notices a moment after the reader ended."""
    deadline = time.monotonic() + SLOT_FREE_S
    while True:
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot_name,))
            return [f"SELECT pg_drop_replication_slot('{slot_name}')"]
        except psycopg.errors.UndefinedObject:
            return []
        except psycopg.Error as error:
            if not isinstance(error, psycopg.errors.ObjectInUse) or time.monotonic() > deadline:
                statement = f"pg_drop_replication_slot('{slot_name}')"
                raise DatabaseRefused(name=name, statement=statement, reason=first_line(error)) from None
        time.sleep(0.1)
