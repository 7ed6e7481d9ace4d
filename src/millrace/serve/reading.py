"""Reading the view store for answers: rows and the position they reflect, both of one moment.

Every answer is one statement, so it sees one state of the store without a transaction around it. Rows leave PostgreSQL
as JSON: Python neither parses nor rounds anything, and what is pulled looks like what is pushed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql

from millrace.config import Settings
from millrace.errors import (
    MillraceError,
    RequestInvalid,
    RowUnknown,
    ServerBusy,
    ViewBehind,
    ViewStoreUnfit,
    ViewStoreUnreachable,
    ViewUnfilled,
    nearest,
)
from millrace.sinks.postgres import CONNECT_S, sentence
from millrace.views.changelog import lsn_number
from millrace.views.store import POSITIONS, TENTATIVE, schema_of, url_of
from millrace.views.wanted import AGAIN_S, NOTIFY, Wanted

CONNECTIONS = 8
FREE_S = 5.0
STATEMENT_MS = 5_000
_LOOK_S = 0.02
# What the server says is said in its own time zone, and rows must look alike wherever they come from.
_SESSION = "-c statement_timeout={statement_ms} -c timezone=UTC -c datestyle=ISO -c extra_float_digits=1"
# The server is away, or going: whoever asks again later may be answered.
_AWAY = ("08", "57P", "53")


@dataclass(frozen=True)
class Shape:
    """A view as its table tells it: columns with PostgreSQL's names of their types, and which of them are the key."""

    columns: Mapping[str, str]
    key: tuple[str, ...]

    @classmethod
    def of(cls, told: str) -> Shape:
        raw = json.loads(told)
        return cls(dict(raw["columns"]), tuple(raw["key"]))


@dataclass(frozen=True)
class Reached:
    """What a view's table reflects. `topic` is the identity of its changelog, `ends` its offsets; of a view in real
    time so many rows are `tentative`."""

    epoch: int
    lsn: str | None
    at: datetime
    topic: str
    ends: Mapping[int, int]
    tentative: int = 0

    def told(self) -> dict[str, Any]:
        """For an answer: true as of this LSN, so many seconds ago."""
        age_s = max((datetime.now(UTC) - self.at).total_seconds(), 0.0)
        at = self.at.astimezone(UTC).isoformat(timespec="milliseconds")
        told = {"lsn": self.lsn, "epoch": self.epoch, "at": at, "age_s": round(age_s, 3)}
        return {**told, "tentative": self.tentative} if self.tentative else told


@dataclass(frozen=True)
class Wish:
    """Which rows: those whose columns are equal to these texts, or null; in this order; so many at most."""

    equal: Mapping[str, str] = field(default_factory=dict)
    null: tuple[str, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    limit: int = 0


@dataclass(frozen=True)
class Found:
    """Rows as texts of JSON objects."""

    reached: Reached
    shape: Shape
    rows: tuple[str, ...]
    more: bool = False


class Pool:
    """A few connections to one server, made when they are needed."""

    def __init__(self, url: str, size: int, statement_ms: int = STATEMENT_MS, options: str = "") -> None:
        self._url, self._options = url, f"{_SESSION.format(statement_ms=statement_ms)} {options}"
        self._free: asyncio.LifoQueue[psycopg.AsyncConnection[Any] | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._free.put_nowait(None)
        self._open: set[psycopg.AsyncConnection[Any]] = set()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """One for us alone; afterwards it must be as it was, or closed."""
        try:
            async with asyncio.timeout(FREE_S):
                found = await self._free.get()
        except TimeoutError:
            raise ServerBusy(seconds=FREE_S) from None
        try:
            if found is None or found.closed:
                found = await self._connected()
            yield found
        finally:
            broken = found is None or found.closed or found.pgconn.transaction_status != 0
            if broken and found is not None:
                await found.close()
                self._open.discard(found)
            self._free.put_nowait(None if broken else found)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        made = await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECT_S,
            application_name="millrace serve",
            options=self._options,
            tcp_user_timeout=30_000,
        )
        self._open.add(made)
        return made

    async def close(self) -> None:
        for each in self._open:
            await each.close()


@contextlib.contextmanager
def told(view: str) -> Any:
    """Errors of PostgreSQL as ours."""
    try:
        yield
    except psycopg.errors.QueryCanceled:
        raise ServerBusy(seconds=STATEMENT_MS / 1_000) from None
    except psycopg.OperationalError as error:
        if error.sqlstate is not None and not error.sqlstate.startswith(_AWAY):
            raise ViewStoreUnfit(view=view, reason=sentence(error)) from None
        raise ViewStoreUnreachable(reason=sentence(error)) from None
    except psycopg.Error as error:
        raise ViewStoreUnfit(view=view, reason=sentence(error)) from None


class Reading:
    """The views of one app. `views` are their names: nothing else in the store is read."""

    def __init__(self, settings: Settings, app: str, views: Sequence[str]) -> None:
        self.views, self.schema = tuple(views), schema_of(settings, app)
        self.pool = Pool(url_of(settings), CONNECTIONS)
        self._shapes: dict[str, Shape] = {}
        self._waiting: dict[tuple[str, int], list[asyncio.Future[None]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        await self.pool.close()

    async def positions(self) -> dict[str, tuple[Reached, Shape]]:
        """Of the views that are filled."""
        with told(""):
            async with self.pool.connection() as connection:
                query = self._sql(
                    "SELECT view, epoch, lsn::text, at, topic, ends, shape, {tentative} FROM {positions} p"
                )
                try:
                    rows = await (await connection.execute(query)).fetchall()
                except psycopg.errors.UndefinedTable:
                    return {}
        return {view: _reached(*rest) for view, *rest in rows if view in self.views}

    async def shape(self, view: str) -> Shape:
        """The last one known; whoever reads rows hears of a newer one."""
        if view not in self._shapes:
            self._shapes.update({name: shape for name, (_, shape) in (await self.positions()).items()})
        if view not in self._shapes:
            raise ViewUnfilled(view=view)
        return self._shapes[view]

    async def rows(self, view: str, wish: Wish) -> Found:
        """What fits the wish, and one row more than its limit is not given but told of."""
        shape = await self.shape(view)
        for _ in range(2):
            found = await self._rows(view, shape, wish)
            if found.shape == shape:
                return found
            shape = self._shapes[view] = found.shape  # the view was defined anew
        raise ViewUnfilled(view=view)

    async def row(self, view: str, values: Sequence[str]) -> Found:
        """The one row that has this key."""
        shape = await self.shape(view)
        if len(values) != len(shape.key):
            reason, remedy = f"it has {len(values)} parts", f"the key of {view} is {', '.join(shape.key)}"
            raise RequestInvalid(parameter="the key", given="/".join(values), reason=reason, remedy=remedy)
        found = await self.rows(view, Wish(dict(zip(shape.key, values, strict=True)), limit=1))
        if not found.rows:
            raise RowUnknown(view=view, key=", ".join(values))
        return found

    async def _rows(self, view: str, shape: Shape, wish: Wish) -> Found:
        conditions, values = _conditions(shape, wish)
        for column, _ in wish.order:
            _known(shape, column, "order")
        order: list[sql.Composable] = [_directed(column, descending) for column, descending in wish.order]
        order += [sql.Identifier(name) for name in shape.key]
        query = self._sql(
            "SELECT p.epoch, p.lsn::text, p.at, p.topic, p.ends, p.shape, {tentative}, r.rows FROM {positions} p,"
            " LATERAL (SELECT array_agg(row_to_json(t.*)::text) AS rows FROM (SELECT * FROM {table} WHERE {where}"
            " ORDER BY {order} LIMIT %s) t) r WHERE p.view = %s",
            table=sql.Identifier(self.schema, view),
            where=sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true"),
            order=sql.SQL(", ").join(order),
        )
        with told(view):
            async with self.pool.connection() as connection:
                try:
                    cursor = await connection.execute(query, (*values, wish.limit + 1, view))
                except (psycopg.DataError, psycopg.errors.UntranslatableCharacter) as error:
                    raise _unfit(wish, error) from None
                except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
                    self._shapes.pop(view, None)  # it is being defined anew
                    raise ViewUnfilled(view=view) from None
                row = await cursor.fetchone()
        if row is None:
            self._shapes.pop(view, None)
            raise ViewUnfilled(view=view)
        reached, now = _reached(*row[:-1])
        rows = tuple(row[-1] or ())
        return Found(reached, now, rows[: wish.limit], len(rows) > wish.limit)

    async def normal(self, shape: Shape, equal: Mapping[str, str]) -> dict[str, Any]:
        """Texts as the values that rows have in JSON: `1.0` and `1.00` are one numeric."""
        parts = [sql.SQL("to_json(%s::{})::text").format(_type(shape.columns[name])) for name in equal]
        if not parts:
            return {}
        with told(""):
            async with self.pool.connection() as connection:
                query = sql.SQL("SELECT ") + sql.SQL(", ").join(parts)
                try:
                    row = await (await connection.execute(query, tuple(equal.values()))).fetchone()
                except psycopg.DataError as error:
                    raise _unfit(Wish(equal), error) from None
        assert row is not None
        return {name: exact(text) for name, text in zip(equal, row, strict=True)}

    async def changed(
        self, view: str, shape: Shape, keys: Sequence[str], values: Sequence[str | None]
    ) -> list[tuple[str, str | None]]:
        """Changelog records as the store would tell them: key and row, or no row, in their order."""
        key = sql.SQL(", ").join(
            part for name in shape.key for part in (sql.Literal(name), sql.SQL("k.{}").format(sql.Identifier(name)))
        )
        query = self._sql(
            "SELECT (SELECT json_build_object({key})::text FROM json_populate_record(NULL::{table}, c.k::json) k),"
            " CASE WHEN c.v IS NOT NULL THEN"
            " row_to_json(json_populate_record(NULL::{table}, c.v::json -> 'after'))::text END"
            " FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY c(k, v, n) ORDER BY c.n",
            table=sql.Identifier(self.schema, view),
            key=key,
        )
        with told(view):
            async with self.pool.connection() as connection:
                rows = await (await connection.execute(query, (list(keys), list(values)))).fetchall()
        return [(key_text, row_text) for key_text, row_text in rows]

    async def wait(self, view: str, lsn: str, limit_s: float) -> None:
        """Until the store has everything that was committed up to there. However many wait, one looks."""
        wanted = lsn_number(lsn)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((view, wanted), []).append(future)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(limit_s):
                await future
        except TimeoutError:
            reached = (await self.positions()).get(view)
            told = "nothing" if reached is None else reached[0].lsn or "no position of a database"
            raise ViewBehind(view=view, reached=told, wanted=lsn, seconds=limit_s) from None
        finally:
            waiting = self._waiting.get((view, wanted), [])
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop((view, wanted), None)

    async def _look(self) -> None:
        said: dict[str, tuple[int, float]] = {}
        while self._waiting:
            try:
                found = await self.positions()
                await self._say(said)
            except MillraceError:  # the store is away: they wait, as long as they said
                await asyncio.sleep(_LOOK_S * 10)
                continue
            for (view, wanted), futures in list(self._waiting.items()):
                reached = found.get(view)
                if reached is not None and reached[0].lsn is not None and lsn_number(reached[0].lsn) >= wanted:
                    for future in futures:
                        if not future.done():
                            future.set_result(None)
            await asyncio.sleep(_LOOK_S)

    async def _say(self, said: dict[str, tuple[int, float]]) -> None:
        """Tells the run, of each view, what is waited for: once, and now and then again."""
        now = asyncio.get_running_loop().time()
        most: dict[str, int] = {}
        for view, wanted in self._waiting:
            most[view] = max(wanted, most.get(view, 0))
        for view, wanted in most.items():
            before, at = said.get(view, (-1, 0.0))
            if wanted > before or now - at >= AGAIN_S:
                said[view] = wanted, now
                with told(view):
                    async with self.pool.connection() as connection:
                        await connection.execute(NOTIFY, (Wanted(self.schema, view, wanted).told(),))

    def _sql(self, text: str, **parts: Any) -> sql.Composed:
        named = {"positions": sql.Identifier(self.schema, POSITIONS), "tentative": sql.SQL(TENTATIVE)}
        return sql.SQL(text).format(**named, **parts)


def exact(text: str | None) -> Any:
    """A JSON value in which numbers are compared as numbers, whatever their digits."""
    from decimal import Decimal

    return None if text is None else json.loads(text, parse_float=Decimal)


def _reached(
    epoch: int, lsn: str | None, at: datetime, topic: str, ends: Mapping[str, int], shape: str, tentative: int
) -> tuple[Reached, Shape]:
    places = {int(number): end for number, end in ends.items()}
    return Reached(epoch, lsn, at, topic, places, tentative), Shape.of(shape)


def _conditions(shape: Shape, wish: Wish) -> tuple[list[sql.Composable], list[str]]:
    conditions: list[sql.Composable] = []
    values = []
    for column, text in wish.equal.items():
        _known(shape, column, "the parameter")
        type_ = _type(shape.columns[column])
        conditions.append(sql.SQL("{} = %s::{}").format(sql.Identifier(column), type_))
        values.append(text)
    for column in wish.null:
        _known(shape, column, "null")
        conditions.append(sql.SQL("{} IS NULL").format(sql.Identifier(column)))
    return conditions, values


def _known(shape: Shape, column: str, parameter: str) -> None:
    if column not in shape.columns:
        reason = f"the view has no such column{nearest(column, shape.columns)}"
        remedy = f"its columns are {', '.join(shape.columns)}"
        raise RequestInvalid(parameter=parameter, given=column, reason=reason, remedy=remedy)


def _directed(column: str, descending: bool) -> sql.Composed:
    return sql.SQL("{} DESC NULLS LAST" if descending else "{} ASC NULLS LAST").format(sql.Identifier(column))


def _type(name: str) -> sql.SQL:
    """Of a shape: words of our own (`changelog.postgres_type`), never a client's."""
    return sql.SQL(name)


def _unfit(wish: Wish, error: psycopg.Error) -> RequestInvalid:
    given = ", ".join(f"{name}={text}" for name, text in wish.equal.items())
    return RequestInvalid(parameter="the filter", given=given[:200], reason=sentence(error), remedy="mend its values")
