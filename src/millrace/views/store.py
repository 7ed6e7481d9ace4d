"""The view store: PostgreSQL, with a table for each view, and beside them the position that each of them reflects.

What holds: a table is changed only together with its row of `millrace_positions`, in one transaction, from one mark of
the view's changelog to a later one. So whoever reads it sees whole epochs, and what a crash left undone is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from millrace import local
from millrace.config import Settings
from millrace.errors import (
    MillraceError,
    ViewBehind,
    ViewStoreNameTooLong,
    ViewStoreUnfit,
    ViewStoreUnreachable,
    ViewUnknown,
    nearest,
)
from millrace.sinks.postgres import connect, sentence
from millrace.views.changelog import Mark, lsn_number, lsn_text, postgres_type
from millrace.views.types import Type
from millrace.views.wanted import AGAIN_S, NOTIFY, Wanted

if TYPE_CHECKING:
    import psycopg

    from millrace.views.overlay import Overlay, Tentative

POSITIONS = "millrace_positions"
# Of `millrace_positions p`; in a store that only an earlier version has written there is no such column.
TENTATIVE = "coalesce((to_jsonb(p) ->> 'tentative')::bigint, 0)"
# Rows that one statement is given; the transaction is one for all of them.
_AT_ONCE = 5_000
# PostgreSQL cuts longer names off, and two that begin alike would be one.
LONGEST_NAME_BYTES = 63
_LOOK_S = 0.05
# The role that may read a schema has its name, and this behind it.
READER = "_read"
_PREFIX, _INDEX, _NEXT, _UNDO = "millrace_", "millrace_by_", "millrace_next_", "millrace_undo_"


@dataclass(frozen=True)
class Shape:
    """A view as its table knows it: columns with their types, and which of them are the key. By which columns it has
    `indexes` beside that may change while it stands; one `in_real_time` has tentative rows too (`overlay`)."""

    view: str
    columns: tuple[tuple[str, Type], ...]
    key: tuple[str, ...]
    indexes: tuple[tuple[str, ...], ...] = ()
    in_real_time: bool = False

    def told(self) -> str:
        columns = [[name, postgres_type(type_)] for name, type_ in self.columns]
        return json.dumps({"columns": columns, "key": list(self.key)})


@dataclass(frozen=True)
class Position:
    """What a view's table reflects: everything up to `lsn` of the captured database, as it was at `at`. Of a view in
    real time so many rows may be newer, or gone: they are `tentative`."""

    view: str
    epoch: int
    lsn: str | None
    at: datetime
    ends: Mapping[int, int]
    topic: str
    tentative: int = 0


def schema_of(settings: Settings, app: str) -> str:
    """Two names that are alike up to where PostgreSQL cuts them off would be one schema."""
    name, limit_bytes = settings.named(app), LONGEST_NAME_BYTES - len(f"{_PREFIX}{READER}")
    if len(name.encode()) > limit_bytes:
        raise ViewStoreNameTooLong(app=app, limit_bytes=limit_bytes)
    return f"{_PREFIX}{name}"


def apps(settings: Settings) -> list[str]:
    """Those of this project, or stage, that have views in the store."""
    with _connected(settings) as connection:
        rows = connection.execute("SELECT schemaname FROM pg_tables WHERE tablename = %s", (POSITIONS,)).fetchall()
    found = [settings.unnamed(schema.removeprefix(_PREFIX)) for (schema,) in rows]
    return sorted(app for app in found if app)


def everything(settings: Settings) -> dict[str, list[Position]]:
    """What each app's views in the store reflect."""
    found = {}
    for app in apps(settings):
        with contextlib.closing(Store(settings, app)) as store:
            found[app] = store.positions()
    return found


@contextlib.contextmanager
def _connected(settings: Settings) -> Iterator[psycopg.Connection[Any]]:
    import psycopg

    try:
        with connect(url_of(settings)) as connection:
            yield connection
    except psycopg.Error as error:
        raise ViewStoreUnreachable(reason=sentence(error)) from None


def url_of(settings: Settings) -> str:
    """With its password: not to be shown."""
    if settings.views.url is not None:
        return settings.views.url.reveal()
    return local.address(settings, "postgres")


class Store:
    """The tables of one app's views. Connects when it is first used, and again after a failure."""

    def __init__(self, settings: Settings, app: str) -> None:
        self._settings, self.schema = settings, schema_of(settings, app)
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def begin(self, shape: Shape, topic: str) -> Position | None:
        """Sees whether the view's table is the one for this view and for this changelog (`topic` is its identity), and
        says what it holds. One for another stays as it is, until the first epoch of this one takes its place."""
        with self._told(shape.view) as connection, connection.transaction():
            # Two that make a schema at once do not see each other's, IF NOT EXISTS or not, and one of them fails.
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.schema,))
            connection.execute(self._sql("CREATE SCHEMA IF NOT EXISTS {schema}"))
            connection.execute(
                self._sql(
                    "CREATE TABLE IF NOT EXISTS {positions} (view text PRIMARY KEY, epoch bigint NOT NULL, lsn pg_lsn,"
                    " at timestamptz NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), ends jsonb NOT NULL,"
                    " topic text NOT NULL, shape text NOT NULL, tentative bigint NOT NULL DEFAULT 0)"
                )
            )
            self._complete(connection)
            if not self._is_of(connection, shape, topic):
                return None
            self._index(connection, shape)
            self._settle(connection, shape)
        return self.position(shape.view)

    def _is_of(self, connection: psycopg.Connection[Any], shape: Shape, topic: str) -> bool:
        held = connection.execute(
            self._sql("SELECT topic, shape FROM {positions} WHERE view = %s FOR UPDATE"), (shape.view,)
        ).fetchone()
        return held == (topic, shape.told())

    def _complete(self, connection: psycopg.Connection[Any]) -> None:
        """Gives positions of an earlier version the columns that they lack."""
        there = (
            "SELECT FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND column_name = %s"
        )
        if not connection.execute(there, (self.schema, POSITIONS, "tentative")).rowcount:
            connection.execute(self._sql("ALTER TABLE {positions} ADD COLUMN tentative bigint NOT NULL DEFAULT 0"))

    def _overlay(self, connection: psycopg.Connection[Any], shape: Shape) -> Overlay:
        from millrace.views.overlay import Overlay

        return Overlay(self, shape, connection)

    def _settle(self, connection: psycopg.Connection[Any], shape: Shape) -> None:
        """Puts back what an earlier run showed of an epoch that it did not commit."""
        overlay = self._overlay(connection, shape)
        if overlay.exists():
            overlay.put_back()
            if not shape.in_real_time:
                overlay.gone()
        elif shape.in_real_time:
            overlay.create()
        self._count(connection, shape, 0)

    def _count(self, connection: psycopg.Connection[Any], shape: Shape, tentative: int) -> None:
        counted = self._sql("UPDATE {positions} SET tentative = %s WHERE view = %s AND tentative <> %s")
        connection.execute(counted, (tentative, shape.view, tentative))

    def show(self, shape: Shape, topic: str, told: Mapping[str, Tentative]) -> None:
        """Tentative rows by key, of epochs that the store does not hold yet."""
        with self._told(shape.view) as connection, connection.transaction():
            if self._is_of(connection, shape, topic):
                held = connection.execute(self._sql("SELECT epoch FROM {positions} WHERE view = %s"), (shape.view,))
                ((epoch,),) = held.fetchall()
                overlay = self._overlay(connection, shape)
                overlay.lay({key: each for key, each in told.items() if each.epoch > epoch})
                self._count(connection, shape, overlay.count())

    def put_back(self, shape: Shape, topic: str) -> None:
        """All committed rows: what was shown beside them was told by a flow that is gone."""
        with self._told(shape.view) as connection, connection.transaction():
            if self._is_of(connection, shape, topic):
                self._settle(connection, shape)

    def _create(self, connection: psycopg.Connection[Any], shape: Shape) -> None:
        from psycopg import sql

        columns = [sql.SQL("{} ").format(sql.Identifier(name)) + sql.SQL(_type(type_)) for name, type_ in shape.columns]
        connection.execute(self._sql("CREATE TABLE {table} ({columns})", shape.view, columns=_listed(columns)))
        # A key may be null, of which a primary key knows nothing.
        key = _listed([sql.Identifier(name) for name in shape.key])
        connection.execute(self._sql("CREATE UNIQUE INDEX ON {table} ({key}) NULLS NOT DISTINCT", shape.view, key=key))
        self._index(connection, shape)

    def _switch(self, connection: psycopg.Connection[Any], new: Shape, shape: Shape) -> None:
        """Puts a table in the place of the one that people read, with the names of its indexes."""
        from psycopg import sql

        self._overlay(connection, shape).gone()
        connection.execute(self._sql("DROP TABLE IF EXISTS {table}", shape.view))
        name = sql.Identifier(shape.view)
        connection.execute(self._sql("ALTER TABLE {table} RENAME TO {name}", new.view, name=name))
        for columns in shape.indexes:
            index = sql.Identifier(self.schema, _index_name(new.view, columns))
            name = sql.Identifier(_index_name(shape.view, columns))
            connection.execute(self._sql("ALTER INDEX {index} RENAME TO {name}", index=index, name=name))
        if shape.in_real_time:
            self._overlay(connection, shape).create()

    def _index(self, connection: psycopg.Connection[Any], shape: Shape) -> None:
        """Makes the indexes that are lacking, and drops those that are not wanted any more. Those of others stay."""
        from psycopg import sql

        wanted = {_index_name(shape.view, columns): columns for columns in shape.indexes}
        statement = "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND tablename = %s"
        there = {name for (name,) in connection.execute(statement, (self.schema, shape.view))}
        for name in there:
            if name.startswith(_INDEX) and name not in wanted:
                connection.execute(self._sql("DROP INDEX {index}", index=sql.Identifier(self.schema, name)))
        for name, columns in wanted.items():
            if name not in there:
                parts = {"index": sql.Identifier(name), "columns": _listed([sql.Identifier(each) for each in columns])}
                connection.execute(self._sql("CREATE INDEX {index} ON {table} ({columns})", shape.view, **parts))

    def apply(self, shape: Shape, topic: str, mark: Mark, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Keys and values of the changelog up to a mark; all of it, or nothing. If the table is another's, they are all
        that there is in the changelog, and readers have the old rows until the new ones are there."""
        with self._told(shape.view) as connection, connection.transaction():
            goes_on = self._is_of(connection, shape, topic)
            # Built beside the old one: whoever drops a table holds up all who read it, to the end of the transaction.
            into = shape if goes_on else replace(shape, view=_hashed(_NEXT, shape.view))
            if not goes_on:
                self._create(connection, into)
            left = iter(changes)
            tentative = self._overlay(connection, shape) if shape.in_real_time else None
            certain = None if tentative is None or not goes_on else tentative.certain(mark.epoch)
            while some := dict(islice(left, _AT_ONCE)):  # of each key the last
                texts = {key.decode(): None if value is None else value.decode() for key, value in some.items()}
                new = texts if certain is None else certain.unknown(texts)
                self.delete(connection, into, [key for key, value in new.items() if value is None])
                self.upsert(connection, into, [value for value in new.values() if value is not None])
            if certain is not None:
                certain.end()
            if not goes_on:
                self._switch(connection, into, shape)
            lsn = None if mark.database is None else lsn_text(mark.lsn)
            count = 0 if tentative is None else tentative.count()
            at = datetime.fromtimestamp(mark.at_ms / 1000, UTC)
            ends = json.dumps({str(number): end for number, end in mark.ends.items()})
            connection.execute(
                self._sql(
                    "INSERT INTO {positions} (view, epoch, lsn, at, ends, topic, shape, tentative) VALUES (%s, %s,"
                    " %s::pg_lsn, %s, %s::jsonb, %s, %s, %s) ON CONFLICT (view) DO UPDATE SET epoch = excluded.epoch,"
                    " lsn = excluded.lsn, at = excluded.at, ends = excluded.ends, topic = excluded.topic,"
                    " shape = excluded.shape, tentative = excluded.tentative, applied_at = clock_timestamp()"
                ),
                (shape.view, mark.epoch, lsn, at, ends, topic, shape.told(), count),
            )

    def upsert(self, connection: psycopg.Connection[Any], shape: Shape, values: Sequence[str]) -> None:
        """PostgreSQL reads the JSON itself: Python would round its numbers."""
        from psycopg import sql

        if not values:
            return
        done = self.replacing([name for name, _ in shape.columns if name not in shape.key])
        key = _listed([sql.Identifier(name) for name in shape.key])
        statement = (
            "INSERT INTO {table} SELECT r.* FROM unnest(%s::text[]) AS given (value),"
            " LATERAL json_populate_record(NULL::{table}, given.value::json -> 'after') r ON CONFLICT ({key}) DO {done}"
        )
        connection.execute(self._sql(statement, shape.view, key=key, done=done), (list(values),))

    @staticmethod
    def replacing(others: Sequence[str]) -> Any:
        """What an INSERT does with a row that is there: these are its columns beside the key."""
        from psycopg import sql

        if not others:
            return sql.SQL("NOTHING")
        names = _listed([sql.Identifier(name) for name in others])
        new = _listed([sql.SQL("excluded.{}").format(sql.Identifier(name)) for name in others])
        return sql.SQL("UPDATE SET ({names}) = ROW({new})").format(names=names, new=new)

    def undo(self, view: str) -> Any:
        """The table that has the committed rows of keys whose tentative ones are shown."""
        from psycopg import sql

        return sql.Identifier(self.schema, _hashed(_UNDO, view))

    def delete(self, connection: psycopg.Connection[Any], shape: Shape, keys: Sequence[str]) -> None:
        """Those with nulls at other places by statements of their own: an index finds IS NULL, not IS NOT DISTINCT."""
        from psycopg import sql

        alike: dict[tuple[bool, ...], list[str]] = {}
        for key in keys:
            values = json.loads(key)
            alike.setdefault(tuple(values[name] is None for name in shape.key), []).append(key)
        for nulls, some in alike.items():
            conditions = [
                sql.SQL("t.{0} IS NULL" if is_null else "t.{0} = d.{0}").format(sql.Identifier(name))
                for name, is_null in zip(shape.key, nulls, strict=True)
            ]
            connection.execute(
                self._sql(
                    "DELETE FROM {table} t USING unnest(%s::text[]) AS given (value),"
                    " LATERAL json_populate_record(NULL::{table}, given.value::json) d WHERE {condition}",
                    shape.view,
                    condition=sql.SQL(" AND ").join(conditions),
                ),
                (some,),
            )

    def position(self, view: str) -> Position | None:
        """None of a view that is not filled yet."""
        return next((each for each in self.positions() if each.view == view), None)

    def shape_of(self, view: str) -> str | None:
        """What the view's table is of (`Shape.told`), if it is there."""
        if self.position(view) is None:
            return None
        with self._told(view) as connection:
            statement = self._sql("SELECT shape FROM {positions} WHERE view = %s")
            ((told,),) = connection.execute(statement, (view,)).fetchall()
        return str(told)

    def positions(self) -> list[Position]:
        import psycopg

        with self._told("") as connection:
            try:
                rows = connection.execute(
                    self._sql(
                        "SELECT view, epoch, lsn::text, at, ends, topic, {tentative} FROM {positions} p ORDER BY view"
                    )
                ).fetchall()
            except psycopg.errors.UndefinedTable:
                return []
        return [
            Position(view, epoch, lsn, at, {int(number): end for number, end in ends.items()}, topic, tentative)
            for view, epoch, lsn, at, ends, topic, tentative in rows
        ]

    def wait(self, view: str, lsn: str, limit_s: float) -> Position:
        """Returns when the view has everything that was committed up to there: what `pg_current_wal_lsn()` said after a
        commit of one's own."""
        deadline, said = time.monotonic() + limit_s, -AGAIN_S
        while True:
            found = self.position(view)
            if found is not None and found.lsn is not None and lsn_number(found.lsn) >= lsn_number(lsn):
                return found
            if time.monotonic() > deadline:
                reached = "nothing" if found is None else found.lsn or "no position of a database"
                raise ViewBehind(view=view, reached=reached, wanted=lsn, seconds=limit_s)
            if time.monotonic() - said >= AGAIN_S:
                said = time.monotonic()
                with self._told(view) as connection:
                    connection.execute(NOTIFY, (Wanted(self.schema, view, lsn_number(lsn)).told(),))
            time.sleep(_LOOK_S)

    def rows(self, view: str, *, certain: bool = False) -> tuple[list[str], list[tuple[Any, ...]], Position]:
        """A view's columns, rows and position, all of one moment; of one in real time the tentative rows, or if only
        what is `certain` is asked for, those in whose place they stand. Days and moments that Python has none of are
        PostgreSQL's words for them: 'infinity', '0044-03-15 BC'."""
        with self._moment(view) as (connection, position):
            statement = self._sql("SELECT * FROM {table}", view)
            if certain and position.tentative:
                statement = self._certain(connection, view)
            cursor = connection.execute(statement, binary=True)
            return [column.name for column in cursor.description or ()], cursor.fetchall(), position

    def _certain(self, connection: psycopg.Connection[Any], view: str) -> Any:
        from millrace.views.overlay import certain_rows

        held = connection.execute(self._sql("SELECT shape FROM {positions} WHERE view = %s"), (view,)).fetchall()
        told = json.loads(held[0][0])
        return certain_rows(self, view, [name for name, _ in told["columns"]], told["key"])

    def texts(self, view: str, limit: int | None = None, *, certain: bool = False) -> tuple[list[str], Position]:
        """A view's rows as PostgreSQL writes them in JSON, at most so many, and the position, all of one moment; with
        tentative rows or, if only what is `certain` is asked for, without."""
        with self._moment(view) as (connection, position):
            rows = (
                self._certain(connection, view) if certain and position.tentative else self._sql("TABLE {table}", view)
            )
            statement = self._sql("SELECT row_to_json(t.*)::text FROM ({rows}) t LIMIT %s", rows=rows)
            return [text for (text,) in connection.execute(statement, (limit,))], position

    @contextlib.contextmanager
    def _moment(self, view: str) -> Iterator[tuple[psycopg.Connection[Any], Position]]:
        with self._told(view) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            known = self.positions()
            position = next((each for each in known if each.view == view), None)
            if position is None:
                raise ViewUnknown(view=view, hint=nearest(view, [each.view for each in known]))
            yield connection, position

    def _sql(self, text: str, view: str | None = None, **parts: Any) -> Any:
        from psycopg import sql

        named: dict[str, Any] = {
            "schema": sql.Identifier(self.schema),
            "positions": sql.Identifier(self.schema, POSITIONS),
        }
        named["tentative"] = sql.SQL(TENTATIVE)
        if view is not None:
            named["table"] = sql.Identifier(self.schema, view)
        return sql.SQL(text).format(**named, **parts)

    @contextlib.contextmanager
    def _told(self, view: str) -> Iterator[psycopg.Connection[Any]]:
        """A connection, whose errors are ours."""
        import psycopg

        from millrace.views.loading import load_far_moments

        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(url_of(self._settings))
                load_far_moments(self._connection)
            yield self._connection
        except MillraceError:
            raise
        except psycopg.OperationalError as error:
            self.close()
            raise ViewStoreUnreachable(reason=sentence(error)) from None
        except psycopg.Error as error:
            raise ViewStoreUnfit(view=view, reason=sentence(error)) from None


def _index_name(view: str, columns: tuple[str, ...]) -> str:
    return _hashed(_INDEX, view, columns)


def _hashed(prefix: str, *parts: object) -> str:
    """Names of views and columns may be as long as PostgreSQL's are."""
    return f"{prefix}{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]}"


def _type(type_: Type) -> Any:
    """Words of our own (`postgres_type`), never a user's."""
    return postgres_type(type_)


def _listed(parts: Sequence[Any]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(parts)
