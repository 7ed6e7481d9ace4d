"""PostgreSQL's side of a capture: publication, slot, signals, and how it stands with them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from millrace.capture import check, connector, postgres
from millrace.capture.check import Finding
from millrace.capture.database import Address, CapturedTable
from millrace.capture.definition import Capture
from millrace.capture.source import Health
from millrace.config import Settings
from millrace.errors import CaptureRefused, DatabaseRefused, PluginMissing


class PostgresSource:
    def __init__(self, settings: Settings, name: str, address: Address) -> None:
        self.settings, self.name, self.address = settings, name, address

    def make_database(self) -> None:
        """Makes the database: only ever called for the project's own server."""
        server = Address("postgres", self.address.host, self.address.port, self.address.user, "postgres")
        with postgres.connect(self.name, server) as connection:
            if not connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", (self.address.database,)
            ).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.address.database)))

    def check(self, capture: Capture) -> tuple[Finding, ...]:
        with postgres.connect(self.name, self.address) as connection:
            return check.check_postgres(connection, self.address, capture)

    def whole(self, table: str) -> str:
        return postgres.qualified(table)

    def describe(self, capture: Capture) -> tuple[CapturedTable, ...]:
        with postgres.connect(self.name, self.address) as connection:
            tables = postgres.chosen(connection, capture)
            return tuple(postgres.described(connection, capture, table) for table in tables)

    def estimates(self, capture: Capture) -> Mapping[str, int]:
        with postgres.connect(self.name, self.address) as connection:
            return {table.name: table.rows for table in postgres.chosen(connection, capture)}

    def prepare(self, capture: Capture) -> list[str]:
        with postgres.connect(self.name, self.address) as connection:
            names = [table.name for table in postgres.chosen(connection, capture)]
            existing = set(postgres.tables(connection))
            published = postgres.published(connection, capture.publication_name)
            if capture.publication is not None:  # somebody else's, which `check` has seen to have everything
                published = {*names, *postgres.own_tables(capture)}
            todo = postgres.statements(
                capture,
                names,
                existing,
                published,
                schema_there=postgres.schema_exists(connection, capture.own_schema),
                version=connection.info.server_version,
            )
            if published is not None and capture.publication is None:
                todo += postgres.unpublished(capture, names, published)
            return _run(connection, self.name, todo)

    def config(
        self, capture: Capture, together: Mapping[str, Sequence[str]], password: str | None, plugins: set[str]
    ) -> dict[str, str]:
        if connector.POSTGRES not in plugins:
            raise PluginMissing(name=capture.name, plugin=connector.POSTGRES)
        with postgres.connect(self.name, self.address) as connection:
            tables = postgres.chosen(connection, capture)
            described = [postgres.described(connection, capture, table) for table in tables]
            hidden = [name for table in tables for name in postgres.virtual_columns(connection, table)]
        return connector.postgres(capture, described, together, hidden, self.address, password, self.settings)

    def snapshot(self, capture: Capture, tables: Sequence[str], conditions: Mapping[str, str]) -> str:
        refuse_unreadable(capture, tables)
        signal, _ = postgres.own_tables(capture)
        number = str(uuid.uuid4())
        data: dict[str, Any] = {"type": "incremental", "data-collections": [connector.pattern(name) for name in tables]}
        if conditions:
            data["additional-conditions"] = [
                {"data-collection": table, "filter": condition} for table, condition in conditions.items()
            ]
        with postgres.connect(self.name, self.address) as connection:
            statement = sql.SQL("INSERT INTO {} (id, type, data) VALUES (%s, 'execute-snapshot', %s)")
            try:
                # Signals are read from the replication log: the row itself has done its duty.
                connection.execute(statement.format(postgres.identifier(signal)), (number, json.dumps(data)))
                connection.execute(
                    sql.SQL("DELETE FROM {} WHERE id = %s").format(postgres.identifier(signal)), (number,)
                )
            except psycopg.Error as error:
                raise DatabaseRefused(
                    name=self.name, statement=f"INSERT INTO {signal}", reason=postgres.first_line(error)
                ) from None
        return number

    def beat(self, capture: Capture, lsn: int) -> int:
        """Commits something behind this place of the log, if the log has come there; gives a place before it."""
        with postgres.connect(self.name, self.address) as connection:
            row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
            assert row is not None
            if lsn <= int(row[0]):
                connection.execute(connector.beat(capture).encode())
            return int(row[0])

    def health(self, capture: Capture, offsets: Mapping[str, Any] | None) -> Health:
        with postgres.connect(self.name, self.address) as connection:
            found = postgres.slot(connection, capture.slot_name)
            published = postgres.published(connection, capture.publication_name) or set()
            there = {*map(postgres.qualified, capture.tables)} & {*postgres.tables(connection)}
        if offsets is not None and (unsaid := there - published):
            named = f"publication {capture.publication_name!r} lacks {', '.join(sorted(unsaid))}"
            return Health(None, None, f"{named}: changes since then were not sent")
        if found is None:
            # Before the snapshot there is no slot yet; afterwards a missing one means missing changes.
            lost = None if offsets is None else f"replication slot {capture.slot_name!r} is gone"
            return Health(None, None, lost)
        lost = None
        if found.wal_status == "lost" or found.invalidation_reason:
            why = found.invalidation_reason or "its WAL is gone"
            lost = f"replication slot {capture.slot_name!r} was invalidated ({why})"
        elif (
            offsets
            and "lsn" in offsets
            and _lsn(found.confirmed_flush_lsn)
            > max(int(offsets[name]) for name in ("lsn", "lsn_proc", "lsn_commit") if offsets.get(name) is not None)
        ):
            lost = (
                f"replication slot {capture.slot_name!r} begins at {found.confirmed_flush_lsn}, after the last change "
                "that was captured: it was made anew, or moved"
            )
        return Health(found.kept_bytes, found.behind_bytes, lost)

    def hindrance(self, capture: Capture) -> str | None:
        """A slot begins when every transaction has ended that was open before it."""
        with postgres.connect(self.name, self.address) as connection:
            return postgres.hindrance(connection, capture.slot_name)

    def clean(self, capture: Capture, *, begins_anew: bool = False) -> list[str]:
        with postgres.connect(self.name, self.address) as connection:
            done = []
            if capture.slot is None and postgres.slot(connection, capture.slot_name) is not None:
                done += postgres.drop_slot(connection, self.name, capture.slot_name)
            drop = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(capture.publication_name))
            if capture.publication is None and not begins_anew:
                try:
                    done += _run(connection, self.name, [drop])
                except DatabaseRefused as error:  # a DBA made it for us
                    done.append(f"left to its owner: {drop.as_string(connection)} ({error.facts['reason']})")
            return done


def refuse_unreadable(capture: Capture, tables: Sequence[str]) -> None:
    """Debezium passes over them in silence."""
    for table in tables:
        if any(letter.isspace() for letter in table):
            why = "a name with a space in it can be captured only from the start: rename the table, or begin anew"
            raise CaptureRefused(name=capture.name, what=f"table {table} cannot be read while others go on", why=why)


def _run(connection: psycopg.Connection[Any], name: str, statements: Sequence[sql.Composed]) -> list[str]:
    """All of them or none: a half-made publication would be found by the next attempt."""
    texts = [statement.as_string(connection) for statement in statements]
    with connection.transaction():
        for statement, text in zip(statements, texts, strict=True):
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                raise DatabaseRefused(name=name, statement=text, reason=postgres.first_line(error)) from None
    return texts


def _lsn(text: str | None) -> int:
    high, _, low = (text or "0/0").partition("/")
    return (int(high, 16) << 32) + int(low, 16)
