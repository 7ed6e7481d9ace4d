"""`Saga`: what follows from events in other aggregates, with deadlines and compensation. (A process manager.)

A step is one transaction: the events that its function's commands emitted, the deadlines that it set, and that the
event was handled. So it happens once, whatever is killed when; if an aggregate was changed meanwhile, the step is done
again from the start. A command that is refused raises `Refused` into the function, which compensates.
What a function does outside of the store (a mail, a payment) may happen more than once: give it the event's position as
its idempotency key.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from millrace import durations
from millrace.errors import ProjectionInvalid
from millrace.events import checks
from millrace.events.again import again
from millrace.events.aggregate import Aggregate
from millrace.events.connections import Connection
from millrace.events.handlers import PAGE, Handler, Handlers, running
from millrace.events.kinds import Recorded
from millrace.events.repository import Repository

if TYPE_CHECKING:
    from millrace.events.store import Saved, Store

Own = TypeVar("Own", bound=Aggregate)
Expired: TypeAlias = Callable[["Work", str], None]


@dataclass
class Work:
    """What one step of a saga does. Nothing of it counts before the step is committed."""

    store: Store
    now: datetime
    aggregates: dict[tuple[str, str], Aggregate] = field(default_factory=dict)
    deadlines: dict[str, datetime | None] = field(default_factory=dict)

    def load(self, kind: type[Own] | Repository[Own], id: str) -> Own:
        """An aggregate to give commands to, or a new one; what it emits is saved with the step."""
        repository = kind if isinstance(kind, Repository) else self.store.repository(kind)
        key = (repository.kind.__aggregate__.name, id)
        if key not in self.aggregates:
            self.aggregates[key] = repository.find(id)
        return self.aggregates[key]  # type: ignore[return-value]

    def later(self, key: str, after: str) -> None:
        """Has the saga's @deadline function called with this key, so long after the event, unless it is called off."""
        self.deadlines[checks.text("the key of a deadline", key)] = self.now + durations.parse(after)

    def call_off(self, key: str) -> None:
        self.deadlines[checks.text("the key of a deadline", key)] = None


def change(store: Store, act: Callable[[Work], None], by: str | None, meta: Mapping[str, Any] | None) -> Saved:
    """What a step does, outside of a saga: see `Store.change`."""

    def once() -> Saved:
        if by is not None and (done := store.handled(by)) is not None:
            return done
        work = Work(store, datetime.now(UTC))
        act(work)
        if work.deadlines:
            reason, remedy = (
                "a deadline is set outside of a saga",
                "let a saga's @on set it: it needs somebody to keep it",
            )
            raise ProjectionInvalid(name=by or "change", reason=reason, remedy=remedy)
        return store.save(*work.aggregates.values(), command=by, meta=meta)

    return again(once)


class Saga:
    """The definition. `begin="now"` leaves out what happened before the saga was first run."""

    def __init__(self, name: str, *, begin: Literal["first", "now"] = "first") -> None:
        if begin not in ("first", "now"):
            raise ProjectionInvalid(name=name, reason=f"it begins {begin!r}", remedy='"first" (event), or "now"')
        self.name, self.handlers, self.begin = name, Handlers(name), begin
        self.expired: Expired | None = None

    def on(self, function: Handler) -> Handler:
        """Registers `function(work, event)`, by the event that its second parameter is annotated with. A third one is
        given the event as recorded."""
        self.handlers.add(function, sys._getframe(1))
        return function

    def deadline(self, function: Expired) -> Expired:
        """Registers what is done with the key of a deadline that has passed: `function(work, key)`."""
        self.expired = function
        return function


class LiveSaga:
    """A saga on one store: `store.saga(transfers)`."""

    def __init__(self, store: Store, definition: Saga) -> None:
        self.store, self.definition, self.name, self.handlers = store, definition, definition.name, definition.handlers

    def catch_up(self, *, now: datetime | None = None) -> int:
        """Handles all events that are committed, then the deadlines that have passed by `now`; until there is nothing
        left, since steps make events too. Gives the position it has come to."""
        self.store.know(*self.handlers.events)
        with self.store.connections.lent() as connection:
            self._begin(connection)
            while True:
                position = self._events(connection)
                if (
                    not self._deadlines(connection, now or datetime.now(UTC))
                    and self.store.head(connection) == position
                ):
                    return position

    def running(self) -> AbstractContextManager[None]:
        """Follows the store in a thread for the time of a `with` block."""
        return running(self.store, self.name, self.catch_up)

    def _begin(self, connection: Connection) -> None:
        first = self.store.head(connection) if self.definition.begin == "now" else 0
        insert = self.store.sql("INSERT INTO {}.reader VALUES (%s, %s, '') ON CONFLICT DO NOTHING")
        connection.execute(insert, (self._row, first))

    @property
    def _row(self) -> str:
        return f"saga__{self.name}"  # no projection's name has two of them

    def _events(self, connection: Connection) -> int:
        row = connection.execute(self.store.sql("SELECT position FROM {}.reader WHERE name = %s"), (self._row,))
        position, head = row.fetchone()[0], self.store.head(connection)  # type: ignore[index]
        while position < head:
            page = self.store.read(position, until=head, events=self.handlers.events, limit=PAGE, connection=connection)
            for recorded in page:
                self._step(connection, recorded.position, partial(self._handle, recorded), recorded.at)
            position = page[-1].position if len(page) == PAGE else head
            self._step(connection, position, lambda _: None, None)
        return int(position)

    def _handle(self, recorded: Recorded[Any], work: Work) -> None:
        self.handlers.call(work, recorded)

    def _deadlines(self, connection: Connection, now: datetime) -> bool:
        """Handles those that have passed; whether there were any."""
        query = self.store.sql("SELECT key, due FROM {}.deadline WHERE saga = %s AND due <= %s ORDER BY due, key")
        due = connection.execute(query, (self.name, now)).fetchall()
        for key, at in due:
            self._step(connection, None, partial(self._expire, connection, key), at)
        return bool(due)

    def _expire(self, connection: Connection, key: str, work: Work) -> None:
        query = self.store.sql("DELETE FROM {}.deadline WHERE saga = %s AND key = %s AND due <= %s")
        if not connection.execute(query, (self.name, key, work.now)).rowcount:
            return  # another process has handled it, or it was called off
        if self.definition.expired is None:
            reason = "it has deadlines, and nothing that is done when they pass"
            raise ProjectionInvalid(name=self.name, reason=reason, remedy=f"write @{self.name}.deadline")
        self.definition.expired(work, key)

    def _step(
        self, connection: Connection, position: int | None, act: Callable[[Work], None], at: datetime | None
    ) -> None:
        again(lambda: self._step_once(connection, position, act, at))

    def _step_once(
        self, connection: Connection, position: int | None, act: Callable[[Work], None], at: datetime | None
    ) -> None:
        saved = None
        with connection.transaction():
            query = self.store.sql("SELECT position FROM {}.reader WHERE name = %s FOR UPDATE")
            row = connection.execute(query, (self._row,)).fetchone()
            if position is not None and row is not None and row[0] >= position:
                return  # another process has handled it
            work = Work(self.store, at or datetime.now(UTC))
            act(work)
            self._keep_deadlines(connection, work)
            if position is not None:
                update = self.store.sql("UPDATE {}.reader SET position = %s WHERE name = %s")
                connection.execute(update, (position, self._row))
            meta = {"saga": self.name, "because": position}
            # Last, since the lock that it takes holds up every other writer until the commit.
            saved = self.store.save(*work.aggregates.values(), meta=meta, connection=connection)
        self.store.wake(saved.position)

    def _keep_deadlines(self, connection: Connection, work: Work) -> None:
        for key, due in work.deadlines.items():
            if due is None:
                query = self.store.sql("DELETE FROM {}.deadline WHERE saga = %s AND key = %s")
                connection.execute(query, (self.name, key))
            else:
                query = self.store.sql(
                    "INSERT INTO {}.deadline VALUES (%s, %s, %s) "
                    "ON CONFLICT (saga, key) DO UPDATE SET due = excluded.due"
                )
                connection.execute(query, (self.name, key, due))
