"""`Store`: the event store. All events of all aggregates, in one total order, on PostgreSQL.

- An append is one transaction, of one aggregate or of several: all of its events or none.
- It is refused (`ConflictFound`) if an aggregate is not at the version that the writer saw.
- With a command's id it happens once, however often it is asked for.
- A reader who has read position 7 has read all before it; nothing appears behind its back (`tables.py` says how).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Condition
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

from millrace import config, durations, local
from millrace.capture import database
from millrace.capture.postgres_source import PostgresSource
from millrace.config import Settings
from millrace.errors import (
    AggregateMisused,
    ConflictFound,
    EventFromFuture,
    EventNameTaken,
    EventUnknown,
    NameInvalid,
    PositionGap,
    nearest,
)
from millrace.events import checks, rows, tables
from millrace.events.aggregate import Aggregate
from millrace.events.clock import QUIET, ticking
from millrace.events.connections import Connection, Connections
from millrace.events.handlers import LOOK_S, PAGE, Patience
from millrace.events.joint import Joint
from millrace.events.kinds import Kind, Recorded, event, kind_of
from millrace.events.sealing import Keys

if TYPE_CHECKING:
    from millrace.events.projection import LiveProjection, Projection
    from millrace.events.repository import Repository
    from millrace.events.saga import LiveSaga, Saga, Work
    from millrace.events.snapshots import Policy

Own = TypeVar("Own", bound=Aggregate)

SCHEMA = "events"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


_STORES: WeakSet[Store] = WeakSet()


@event(name="millrace.forgotten")
class Forgotten:
    """Somebody's personal data was forgotten: who holds copies, as a projection may, deletes them."""

    subject: str


@event(name="millrace.ticked")
class Ticked:
    """Time went on and nothing happened: what lets the deadlines of flows pass when the store is quiet."""


@dataclass(frozen=True)
class Saved:
    """What an append did. `position` is that of its last event, for whoever waits until it is read; 0 if it wrote none.
    `repeated`: its command had been handled before, and nothing was written now."""

    position: int
    at: datetime | None = None
    repeated: bool = False


@dataclass(frozen=True)
class Lag:
    """How far a reader is behind: in events of the store, and since when the first of them waits."""

    position: int
    head: int
    seconds: float

    @property
    def events(self) -> int:
        return self.head - self.position


class Store:
    """An event store. `Store.open("bank")` is how one gets it."""

    def __init__(self, connections: Connections, schema: str = SCHEMA) -> None:
        if not _NAME.fullmatch(schema):
            raise NameInvalid(kind="the schema of an event store", name=schema, longest=41)
        self.connections, self.schema, self.keys = connections, schema, Keys(schema)
        self._kinds: dict[str, tuple[type, Kind]] = {}
        self._known: set[type] = set()
        self._shapes: set[tuple[str, int]] = set()
        self._newest = 0
        with connections.lent() as connection:
            tables.make(connection, schema, connections.name)
        self._append = self.sql(
            "SELECT * FROM {}.append(%s::text, %s::text[], %s::text[], %s::bigint[], %s::text[], %s::integer[], "
            "%s::json[], %s::json[], %s::json)"
        )
        self._begin()
        self.know(Forgotten, Ticked)
        _STORES.add(self)

    def _begin(self) -> None:
        """What belongs to one process. A child that was forked begins anew: locks of its parent may be held for ever,
        by threads that it does not have, and connections have one owner."""
        self._changed, self._joint = Condition(), Joint(self.connections, self._append)

    @classmethod
    def open(cls, name: str, *, schema: str = SCHEMA, settings: Settings | None = None) -> Self:
        """The store in the database that millrace.toml calls `name`. Without any [databases] it is in the project's own
        PostgreSQL, which is started if it does not run, and ends with this process."""
        settings = settings or config.load()
        if not settings.databases:
            local.up(settings, ("postgres",))
        address = database.address(settings, name)
        if not settings.databases:
            PostgresSource(settings, name, address).make_database()
        return cls(Connections(name, address), schema)

    def close(self) -> None:
        self.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def sql(self, text: str) -> bytes:
        """A statement in which `{}` is the store's schema, whose name needs no care (`_NAME`). Composed by psycopg it
        would be put together anew for every call."""
        return text.replace("{}", f'"{self.schema}"').encode()

    def repository(self, kind: type[Own], *, snapshots: Policy | None = None) -> Repository[Own]:
        from millrace.events.repository import Repository

        return Repository(self, kind, snapshots=snapshots)

    def projection(self, definition: Projection) -> LiveProjection:
        from millrace.events.projection import LiveProjection

        return LiveProjection(self, definition)

    def saga(self, definition: Saga) -> LiveSaga:
        from millrace.events.saga import LiveSaga

        return LiveSaga(self, definition)

    def change(
        self, act: Callable[[Work], None], *, by: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> Saved:
        """Has a function load aggregates and give them commands (`work.load(Account, "a-1").deposit(…)`), and saves
        what all of them emitted, in one transaction; again when somebody else was faster. `by` is the command's id: one
        that was handled before is not run again."""
        from millrace.events.saga import change

        return change(self, act, by, meta)

    def know(self, *events: type) -> None:
        """Learns event classes, and checks them against what the store holds: each name is one class, and no event was
        written by a later version of it."""
        if self._known.issuperset(events):
            return
        fresh = {kind_of(each).name: each for each in events if kind_of(each).name not in self._kinds}
        for each in events:
            name = kind_of(each).name
            first = fresh.get(name) or self._kinds[name][0]
            if first is not each:
                raise EventNameTaken(name=name, first=_shown(first), second=_shown(each))
        with self.connections.lent() as connection:
            query = self.sql("SELECT type, max(version) FROM {}.shape WHERE type = ANY(%s) GROUP BY type")
            for name, found in connection.execute(query, (list(fresh),)):
                if found > kind_of(fresh[name]).version:
                    raise EventFromFuture(type=name, found=found, known=kind_of(fresh[name]).version)
        self._kinds.update({name: (each, kind_of(each)) for name, each in fresh.items()})
        self._known.update(events)

    def keep_shapes(self, kinds: Iterable[Kind]) -> None:
        """Remembers the versions that are written, when the first event of one is: not sooner, since older code is
        refused from then on."""
        fresh = {key: each for each in kinds if (key := (each.name, each.version)) not in self._shapes}
        if fresh:
            with self.connections.lent() as connection:
                rows.keep_shapes(connection, self, fresh.values())
            self._shapes.update(fresh)

    def kind(self, name: str, position: int) -> Kind:
        found = self._kinds.get(name)
        if found is None:
            raise EventUnknown(type=name, position=position, hint=nearest(name, self._kinds))
        return found[1]

    def save(
        self,
        *aggregates: Aggregate,
        command: str | None = None,
        meta: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
    ) -> Saved:
        """Appends what these aggregates emitted, in one transaction (that of `connection`, if one is given).

        `command` is an id by which a repetition is known: then nothing is written, and the aggregates are what the
        store has of them. `meta` goes with each event: who, why, in the course of what. If the transaction of
        `connection` is undone, load the aggregates anew: they take their events for saved. Append last in it: all other
        writers wait.
        """
        checks.aggregates(*aggregates)
        if len({(each.__aggregate__.name, each.id) for each in aggregates}) != len(aggregates):
            raise AggregateMisused(aggregate=aggregates[0].__aggregate__.name, reason="one of them is given twice")
        for each in aggregates:
            each._refuse_failed()
        changed = [each for each in aggregates if each.pending]
        if not changed:
            return Saved(0)
        if command is not None:
            checks.text("command", command)
        for each in changed:
            self.know(*each.__aggregate__.applies)
        self.keep_shapes(kind_of(type(event)) for each in changed for event in each._pending)
        asked = rows.encoded(self, connection, changed, command, meta)
        if connection is None:
            row = self._joint.append(asked)
        else:
            row = connection.execute(self._append, asked, prepare=True).fetchone() or ()
        outcome, first, moment, place, stands = row
        if outcome == "conflict":
            raise _conflict(changed, place, stands)
        if outcome == "repeated":
            for each in changed:
                rows.put_back(each, self.repository(type(each)).find(each.id))
            return Saved(self._last_of(command), moment, repeated=True)
        count = sum(len(each.pending) for each in changed)
        for each in changed:
            each._pending.clear()
        saved = Saved(first + count - 1, moment)
        if connection is None:
            self.wake(saved.position)
        return saved

    def handled(self, command: str) -> Saved | None:
        """What a command did that was handled before."""
        checks.text("command", command)
        with self.connections.lent() as connection:
            query = self.sql("SELECT max(position), min(at) FROM {}.event WHERE command = %s")
            row = connection.execute(query, (command,)).fetchone()
        return Saved(row[0], row[1], repeated=True) if row and row[0] is not None else None

    def head(self, connection: Connection | None = None) -> int:
        """The position of the newest event."""
        with self.on(connection) as used:
            row = used.execute(self.sql("SELECT coalesce(max(position), 0) FROM {}.event"), prepare=True).fetchone()
        assert row is not None
        return int(row[0])

    def read(
        self,
        after: int = 0,
        *,
        until: int | None = None,
        events: Sequence[type] = (),
        limit: int | None = None,
        connection: Connection | None = None,
    ) -> list[Recorded[Any]]:
        """Events of all aggregates in the order of their positions, `events` only of these classes; `after` and `until`
        are positions."""
        checks.number("after", after)
        for what, value in (("until", until), ("limit", limit)):
            if value is not None:
                checks.number(what, value)
        self.know(*events)
        conditions, values = ["position > %s"], [after]
        if until is not None:
            conditions, values = [*conditions, "position <= %s"], [*values, until]
        if events:
            conditions = [*conditions, "type = ANY(%s)"]
            values = [*values, [kind_of(each).name for each in events]]  # type: ignore[list-item]
        with self.on(connection) as used:
            found = rows.recorded(self, used, " AND ".join(conditions), values, "position", limit)
        if not events:
            _refuse_gap(after, found)
        return found

    def history(
        self,
        kind: type[Aggregate],
        id: str,
        *,
        after: int = 0,
        until: int | None = None,
    ) -> list[Recorded[Any]]:
        """The events of one aggregate: its audit trail. `after` and `until` are versions of it."""
        checks.text(f"the id of {kind.__aggregate__.name}", id)
        checks.number("after", after)
        if until is not None:
            checks.number("until", until)
        self.know(*kind.__aggregate__.applies)
        condition = "aggregate = %s AND id = %s AND version > %s" + ("" if until is None else " AND version <= %s")
        values = [kind.__aggregate__.name, id, after, *([] if until is None else [until])]
        with self.connections.lent() as connection:
            return rows.recorded(self, connection, condition, values, "version")

    def lsn(self) -> str:
        """Where the database's log ends now: what this process has saved is before it. For whoever waits until a view
        has it: `client.get("balances", "a-1", wait_for=store.lsn())`."""
        with self.connections.lent() as connection:
            row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        return str(row[0])

    def lag(self, position: int) -> Lag:
        """How far somebody is behind who has read up to there."""
        query = self.sql("SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM {}.event WHERE position = %s")
        with self.connections.lent() as connection:
            row = connection.execute(query, (position + 1,)).fetchone()
        return Lag(position, self.head(), row[0] if row else 0.0)

    def lags(self) -> dict[str, Lag]:
        """How far each projection and saga is behind, by name."""
        query = self.sql(
            "SELECT r.name, r.position, coalesce((SELECT max(position) FROM {}.event), 0), "
            "coalesce(extract(epoch FROM clock_timestamp() - e.at), 0)::float8 "
            "FROM {}.reader r LEFT JOIN {}.event e ON e.position = r.position + 1 ORDER BY r.name"
        )
        with self.connections.lent() as connection:
            return {row[0]: Lag(*row[1:]) for row in connection.execute(query)}

    def follow(
        self, after: int = 0, *, events: Sequence[type] = (), ended: Callable[[], bool] = lambda: False
    ) -> Iterator[Recorded[Any]]:
        """Events as they are committed, for ever or until `ended` says so. While the database is away it waits."""
        patience = Patience("a follower")
        while not ended():
            page: list[Recorded[Any]] = []
            with patience:
                if after < (head := self.head()):
                    page = self.read(after, until=head, events=events, limit=PAGE)
                    after = page[-1].position if len(page) == PAGE else head
            yield from page
            if len(page) < PAGE:
                self.wait(after, LOOK_S)

    def wait(self, after: int, seconds: float) -> None:
        """Returns when this process has written something later, or after that time."""
        with self._changed:
            if self._newest <= after:
                self._changed.wait(seconds)

    def wake(self, position: int) -> None:
        with self._changed:
            self._newest = max(self._newest, position)
            self._changed.notify_all()

    def forget(self, subject: str) -> bool:
        """Deletes the subject's key, for good, and tells so by an event. Their sealed fields read as if never known;
        what was kept of them in snapshots goes too. False if there was no key."""
        checks.text("subject", subject)
        with self.connections.lent() as connection, connection.transaction():
            if not self.keys.forget(connection, subject):
                return False
            connection.execute(self.sql("DELETE FROM {}.snapshot WHERE %s = ANY(subjects)"), (subject,))
            saved = rows.tell(self, connection, rows.SUBJECTS, subject, Forgotten(subject))
        self.wake(saved)
        return True

    def tick(self, quiet: str | timedelta = QUIET) -> bool:
        """Appends `Ticked` if nothing was appended for that long; whether it did."""
        query = self.sql("SELECT clock_timestamp() - at FROM {}.event ORDER BY position DESC LIMIT 1")
        with self.connections.lent() as connection, connection.transaction():
            row = connection.execute(query).fetchone()
            if row is not None and row[0] < durations.parse(quiet):
                return False
            saved = rows.tell(self, connection, rows.CLOCK, "clock", Ticked())
        self.wake(saved)
        return True

    def ticking(self, quiet: str | timedelta = QUIET) -> AbstractContextManager[None]:
        """Ticks while the store is quiet, in a thread for the time of a `with` block. Several processes may."""
        return ticking(self, quiet)

    def on(self, connection: Connection | None) -> AbstractContextManager[Connection]:
        return self.connections.lent() if connection is None else nullcontext(connection)

    def _last_of(self, command: str | None) -> int:
        found = self.handled(command or "")
        return found.position if found else 0


def _forked() -> None:
    for store in _STORES:
        store.connections.begin()
        store._begin()


os.register_at_fork(after_in_child=_forked)


def _conflict(changed: Sequence[Aggregate], place: int, stands: int) -> ConflictFound:
    owners = [each for each in changed for _ in each.pending]
    one = owners[place - 1]
    return ConflictFound(
        aggregate=one.__aggregate__.name, id=one.id, expected=one.version - len(one.pending), found=stands
    )


def _refuse_gap(after: int, found: Iterable[Recorded[Any]]) -> None:
    for each in found:
        if each.position != after + 1:
            raise PositionGap(after=after, found=each.position)
        after = each.position


def _shown(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
