"""`Projection`: tables that follow from the events, kept by functions of one's own, in process and exactly once.

The tables are in a schema of the projection's name. Events are applied, in their order, in the transaction that moves
the projection's position: after a crash it goes on where its tables are. Other code than that which made the tables is
refused, until `rebuild` has made them anew beside the old ones and switched.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import dict_row

from millrace.errors import ProjectionBehind, ProjectionChanged, ProjectionInvalid
from millrace.events import checks, fingerprint
from millrace.events.connections import Connection
from millrace.events.handlers import LOOK_S, PAGE, Handler, Handlers, running
from millrace.events.tables import LOCK

if TYPE_CHECKING:
    from millrace.events.store import Lag, Saved, Store

NEXT, OLD = "__next", "__old"
WAIT_S = 10.0


class Projection:
    """The definition. `create` is the SQL that makes the tables; names in it, and in the functions, are those of the
    projection's own schema. `revision`, if given, says which code this is; otherwise the code itself does."""

    def __init__(self, name: str, *, create: str, revision: str | None = None) -> None:
        self.name, self.handlers, self.create, self.revision = name, Handlers(name), create, revision

    def on(self, function: Handler) -> Handler:
        """Registers `function(connection, event)`, by the event that its second parameter is annotated with. A third
        one is given the event as recorded: its position, aggregate, version, time."""
        self.handlers.add(function, sys._getframe(1))
        return function

    @property
    def fingerprint(self) -> str:
        if self.revision is not None:
            return self.revision
        return fingerprint.of_handlers(self.handlers.functions, self.create)


class LiveProjection:
    """A projection of one store: `store.projection(balances)`."""

    def __init__(self, store: Store, definition: Projection) -> None:
        self.store, self.definition, self.name = store, definition, definition.name
        self.handlers, self.fingerprint = definition.handlers, definition.fingerprint

    @property
    def position(self) -> int:
        """Up to where events are applied."""
        with self.store.connections.lent() as connection:
            query = self.store.sql("SELECT position FROM {}.reader WHERE name = %s")
            row = connection.execute(query, (self.name,)).fetchone()
        return row[0] if row else 0

    def lag(self) -> Lag:
        """How far it is behind; from the first event on if it was never run."""
        return self.store.lags().get(self.name) or self.store.lag(0)

    def catch_up(self) -> int:
        """Applies all events that are committed; gives the position it has come to. Several processes may call it."""
        self.store.know(*self.handlers.events)
        with self.store.connections.lent() as connection:
            self._make(connection, self.name)
            while not self._page(connection, self.name):
                pass
        return self.position

    def running(self) -> AbstractContextManager[None]:
        """Follows the store in a thread for the time of a `with` block."""
        return running(self.store, self.name, self.catch_up)

    def wait(self, saved: Saved | int, *, apply: bool = True, seconds: float = WAIT_S) -> None:
        """Returns when what was saved is in the tables. It is applied now unless `apply` is False, for a process that
        only reads: then somebody else has to, within these seconds."""
        wanted = checks.number("after", getattr(saved, "position", saved))
        if self.position >= wanted:
            return
        if apply:
            self.catch_up()
            return
        deadline = time.monotonic() + seconds
        while self.position < wanted:
            if time.monotonic() < deadline:
                self.store.wait(wanted, LOOK_S)
                continue
            raise ProjectionBehind(name=self.name, position=self.position, wanted=wanted, seconds=round(seconds))

    def query(
        self, query: str, values: Sequence[Any] | Mapping[str, Any] = (), *, after: Saved | int = 0
    ) -> list[dict[str, Any]]:
        """Rows of its tables, that have seen at least what `after` says."""
        self.wait(after)
        with self.store.connections.lent() as connection, connection.transaction():
            _within(connection, self.name)
            with connection.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(query.encode(), values).fetchall()

    def rebuild(self) -> int:
        """Makes the tables anew from all events, beside those that are in use, and switches to them in one transaction;
        gives the position. One that was broken off goes on, if the code is the same."""
        self.store.know(*self.handlers.events)
        beside = f"{self.name}{NEXT}"
        with self.store.connections.lent() as connection:
            with connection.transaction():
                self._owned(connection, self.name)
            self._drop_other(connection, beside)
            self._make(connection, beside)
            try:
                while not self._page(connection, beside):
                    pass
                with connection.transaction():
                    self._owned(connection, self.name)  # whoever applies to the old ones waits, and then finds these
                    while not self._page(connection, beside):
                        pass
                    return self._switch(connection, beside)
            except ProjectionChanged:
                standing = self._standing(connection, self.name, lock=False)
                gone = self._standing(connection, beside, lock=False) is None
                if not gone or standing is None or standing[1] != self.fingerprint:
                    raise
        return self.catch_up()  # another process did the same, and was done first

    def _switch(self, connection: Connection, beside: str) -> int:
        names = {"old": sql.Identifier(f"{self.name}{OLD}"), "live": sql.Identifier(self.name)}
        if self._exists(connection, self.name):
            connection.execute(sql.SQL("ALTER SCHEMA {live} RENAME TO {old}").format(**names))
        connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(beside), names["live"]))
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {old} CASCADE").format(**names))
        connection.execute(self.store.sql("DELETE FROM {}.reader WHERE name = %s"), (self.name,))
        query = self.store.sql("UPDATE {}.reader SET name = %s WHERE name = %s RETURNING position")
        row = connection.execute(query, (self.name, beside)).fetchone()
        assert row is not None
        return int(row[0])

    def _make(self, connection: Connection, schema: str) -> None:
        """Its tables and its place, if it has none."""
        if self._standing(connection, schema, lock=False) is not None:
            return
        with connection.transaction():
            if self._owned(connection, schema):
                return
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            _within(connection, schema)
            connection.execute(self.definition.create.encode())
            insert = self.store.sql("INSERT INTO {}.reader (name, position, fingerprint) VALUES (%s, 0, %s)")
            connection.execute(insert, (schema, self.fingerprint))

    def _owned(self, connection: Connection, schema: str) -> bool:
        """Whether it has made this schema; one that somebody else made is not touched. Until the transaction ends,
        nobody makes, fills or switches it."""
        connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK, schema))
        if self._standing(connection, schema) or self._standing(connection, schema):
            return True
        if self._exists(connection, schema):
            reason = f"the database has a schema {schema!r} already, which is not its own"
            raise ProjectionInvalid(name=self.name, reason=reason, remedy="give the projection another name")
        return False

    def _page(self, connection: Connection, schema: str) -> bool:
        """Applies some events; whether those were the last."""
        with connection.transaction():
            # Once more: who waited for a switch is not shown the row that came into the place of the one it waited for.
            standing = self._standing(connection, schema) or self._standing(connection, schema)
            if standing is None or standing[1] != self.fingerprint:
                raise ProjectionChanged(name=self.name)
            head, position = self.store.head(connection), standing[0]
            if position >= head:
                return True
            page = self.store.read(position, until=head, events=self.handlers.events, limit=PAGE, connection=connection)
            _within(connection, schema)
            for recorded in page:
                self.handlers.call(connection, recorded)
            reached = page[-1].position if len(page) == PAGE else head
            update = self.store.sql("UPDATE {}.reader SET position = %s WHERE name = %s")
            connection.execute(update, (reached, schema))
        return False

    def _standing(self, connection: Connection, schema: str, *, lock: bool = True) -> tuple[int, str] | None:
        query = f"SELECT position, fingerprint FROM {{}}.reader WHERE name = %s {'FOR UPDATE' if lock else ''}"  # noqa: S608
        return connection.execute(self.store.sql(query), (schema,)).fetchone()

    def _drop_other(self, connection: Connection, beside: str) -> None:
        """What an earlier rebuild by other code left."""
        standing = self._standing(connection, beside, lock=False)
        if standing is not None and standing[1] != self.fingerprint:
            with connection.transaction():
                connection.execute(self.store.sql("DELETE FROM {}.reader WHERE name = %s"), (beside,))
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(beside)))

    def _exists(self, connection: Connection, schema: str) -> bool:
        found = connection.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,)).fetchone()
        return found is not None


def _within(connection: Connection, schema: str) -> None:
    """Makes the names of the projection's tables known for the rest of the transaction."""
    connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))
