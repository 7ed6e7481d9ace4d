"""Snapshots: the state of an aggregate at a version, so that a load need not apply all events. Never more than a hint.

One is used only if the code is that which made it (its fingerprint), and if the event of its version stands in the
store at the position that it names; otherwise the events are applied from the first on, and it is made anew. Deleting
all of them changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from millrace.errors import AggregateInvalid
from millrace.events import fingerprint
from millrace.events.aggregate import Aggregate
from millrace.events.checks import function, written
from millrace.events.connections import Connection
from millrace.events.handlers import logger
from millrace.events.rows import SUBJECTS
from millrace.events.values import Codec, of_state

if TYPE_CHECKING:
    from millrace.events.store import Store

# Given the aggregate, and how many events were applied since its snapshot.
Policy: TypeAlias = Callable[[Aggregate, int], bool]


def every(events: int) -> Policy:
    """A snapshot whenever so many events stand after the last one."""
    if isinstance(events, bool) or not isinstance(events, int) or events < 1:
        raise ValueError(f"every({events!r}): a whole number of events from 1 on")
    return lambda _, since: since >= events


class Snapshots:
    """The snapshots of one class of aggregates."""

    def __init__(self, store: Store, kind: type[Aggregate], policy: Policy) -> None:
        function("snapshots", policy, "snapshots=every(100)")
        self.store, self.kind, self.policy = store, kind, policy
        self.fingerprint = fingerprint.of_aggregate(kind)
        self.codecs: dict[str, Codec] = {}
        self._told = False
        for name, hint in kind.__aggregate__.state.items():
            try:
                self.codecs[name] = of_state(hint)
            except TypeError as error:
                remedy = "give it one that can be kept (docs/guide/event-sourcing.md), or load it without snapshots"
                raise AggregateInvalid(
                    aggregate=kind.__aggregate__.name, reason=f"{name}: {error}", remedy=remedy
                ) from None

    def encode(self, aggregate: Aggregate) -> dict[str, Any]:
        own, found = vars(aggregate), {}
        for name in self.codecs.keys() & own.keys():
            try:
                found[name] = self.codecs[name].encode(own[name])
            except (TypeError, ValueError) as error:
                kind, remedy = type(aggregate).__aggregate__.name, "let its annotation say what it holds"
                raise AggregateInvalid(aggregate=kind, reason=f"{name}: {error}", remedy=remedy) from None
        return found

    def decode(self, id: str, version: int, state: dict[str, Any]) -> Aggregate:
        made = self.kind(id)
        vars(made).update({name: self.codecs[name].decode(value) for name, value in state.items()}, _version=version)
        return made

    def keep(self, aggregate: Aggregate, position: int, subjects: set[str]) -> None:
        """Writes one, unless there is a newer one of this code, or somebody in it was forgotten meanwhile."""
        query = self.store.sql(
            "INSERT INTO {}.snapshot AS old (aggregate, id, version, position, fingerprint, state, subjects) "
            "VALUES (%s, %s, %s, %s, %s, %s::text::json, %s) ON CONFLICT (aggregate, id) DO UPDATE SET "
            "version = excluded.version, position = excluded.position, fingerprint = excluded.fingerprint, "
            "state = excluded.state, subjects = excluded.subjects "
            "WHERE old.version < excluded.version OR old.fingerprint <> excluded.fingerprint"
        )
        try:
            state = written(self.encode(aggregate))
        except (AggregateInvalid, ValueError) as error:  # a hint that cannot be given: the events are there
            if not self._told:
                logger.warning("no snapshots are made: %s", error)
            self._told = True
            return
        values = (
            aggregate.__aggregate__.name,
            aggregate.id,
            aggregate.version,
            position,
            self.fingerprint,
            state,
            sorted(subjects),
        )
        with self.store.connections.lent() as connection, connection.transaction():
            if not subjects or self._known(connection, position, subjects):
                connection.execute(query, values)

    def _known(self, connection: Connection, position: int, subjects: set[str]) -> bool:
        """Whether nobody of them was forgotten since that event; not even one who has come back, and has a key."""
        if not self.store.keys.held(connection, subjects):
            return False
        query = "SELECT 1 FROM {}.event WHERE aggregate = %s AND id = ANY(%s) AND position > %s LIMIT 1"
        values = (SUBJECTS, sorted(subjects), position)
        return connection.execute(self.store.sql(query), values).fetchone() is None
