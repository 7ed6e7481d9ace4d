"""`Repository`: aggregates of one class, from the store and back into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from millrace.errors import AggregateUnknown, StoreMisused
from millrace.events import checks, rows
from millrace.events.again import again
from millrace.events.aggregate import Aggregate
from millrace.events.snapshots import Policy, Snapshots

if TYPE_CHECKING:
    from millrace.events.connections import Connection
    from millrace.events.store import Saved, Store

Own = TypeVar("Own", bound=Aggregate)

# The snapshot and the events from its own one on, in one round trip. The event of the snapshot's version comes along to
# vouch for it.
_WITH_SNAPSHOT = """
WITH snapshot AS MATERIALIZED (
    SELECT version, position, state, subjects FROM {}.snapshot WHERE aggregate = %s AND id = %s AND fingerprint = %s
)
SELECT version, position, NULL, NULL, state, NULL, subjects FROM snapshot
UNION ALL
(SELECT version, position, type, schema, data, seals, NULL FROM {}.event
 WHERE aggregate = %s AND id = %s AND version >= coalesce((SELECT version FROM snapshot), 1) ORDER BY version)
"""
_EVENTS = "SELECT version, position, type, schema, data, seals FROM {}.event WHERE aggregate = %s AND id = %s"


class _Loaded(NamedTuple):
    """An aggregate, what was applied since its snapshot, the position of its last event, and whose data is in it."""

    aggregate: Aggregate
    since: int
    position: int
    subjects: set[str]


class Repository(Generic[Own]):
    """Loads and saves aggregates of one class; `snapshots=every(100)` keeps snapshots."""

    def __init__(self, store: Store, kind: type[Own], *, snapshots: Policy | None = None) -> None:
        checks.aggregates(kind)
        self.store, self.kind = store, kind
        store.know(*kind.__aggregate__.applies)
        self.snapshots = None if snapshots is None else Snapshots(store, kind, snapshots)

    def load(self, id: str, *, version: int | None = None, at: datetime | None = None) -> Own:
        """The aggregate as it is; as it was at a version of it; or as it was at a moment."""
        checks.text(f"the id of {self.kind.__aggregate__.name}", id)
        if version is not None:
            checks.number("version", version, 1)
        if at is not None:
            checks.moment("at", at)
            if version is not None:
                reason = "it is asked for at a version too"
                raise StoreMisused(what="at", given=at, reason=reason, remedy="say one of the two")
        if version is not None or at is not None:
            return self._past(id, version, at)
        with self.store.connections.lent() as connection:
            loaded = self._load(connection, id)
        if loaded is None:
            raise AggregateUnknown(aggregate=self.kind.__aggregate__.name, id=id, when="")
        if self.snapshots and self.snapshots.policy(loaded.aggregate, loaded.since):
            self.snapshots.keep(loaded.aggregate, loaded.position, loaded.subjects)
        return loaded.aggregate  # type: ignore[return-value]

    def find(self, id: str) -> Own:
        """The aggregate as it is, or a new one."""
        try:
            return self.load(id)
        except AggregateUnknown:
            return self.kind(id)

    def save(self, aggregate: Own, *, command: str | None = None, meta: Mapping[str, Any] | None = None) -> Saved:
        """Appends what the aggregate emitted; see `Store.save`, which takes several."""
        return self.store.save(aggregate, command=command, meta=meta)

    def change(
        self,
        id: str,
        command: Callable[..., Any],
        *args: Any,
        by: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Saved:
        """Loads, runs a command of the class (`Account.deposit`) and saves; again when somebody else was faster. `by`
        is the command's id: one that was handled before is not run again, not even to be refused."""
        checks.function("the command", command, f"name that of the class: {self.kind.__name__}.{command}")
        return again(lambda: self._change_once(id, command, args, options, by, meta))

    def _change_once(
        self,
        id: str,
        command: Callable[..., Any],
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        by: str | None,
        meta: Mapping[str, Any] | None,
    ) -> Saved:
        if by is not None and (done := self.store.handled(by)) is not None:
            return done
        aggregate = self.find(id)
        command(aggregate, *args, **options)
        return self.store.save(aggregate, command=by, meta=meta)

    def verify(self, id: str) -> bool:
        """Whether the aggregate by its snapshot is what its events say."""
        loaded, folded = self.load(id), self.load(id, version=self.load(id).version)
        return vars(loaded) == vars(folded) or loaded.version != folded.version

    def _load(self, connection: Connection, id: str) -> _Loaded | None:
        if self.snapshots is None:
            return self._folded(connection, id, self._all(connection, id))
        own = (self.kind.__aggregate__.name, id)
        found = connection.execute(
            self.store.sql(_WITH_SNAPSHOT), (*own, self.snapshots.fingerprint, *own), prepare=True
        ).fetchall()
        if not found or found[0][2] is not None:
            return self._folded(connection, id, [row[:6] for row in found])
        version, position, _, _, state, _, subjects = found[0]
        if len(found) < 2 or (found[1][0], found[1][1]) != (version, position):
            # The store is not the one that the snapshot was made of: one restored from a backup, say.
            return self._folded(connection, id, self._all(connection, id))
        try:
            begun = self.snapshots.decode(id, version, state)
        except (KeyError, TypeError, ValueError):
            return self._folded(connection, id, self._all(connection, id))
        return self._folded(connection, id, [row[:6] for row in found[2:]], begun, position, set(subjects))

    def _all(self, connection: Connection, id: str) -> list[Any]:
        query = self.store.sql(f"{_EVENTS} ORDER BY version")
        return connection.execute(query, (self.kind.__aggregate__.name, id), prepare=True).fetchall()

    def _folded(
        self,
        connection: Connection,
        id: str,
        found: list[Any],
        begun: Aggregate | None = None,
        position: int = 0,
        subjects: set[str] | None = None,
    ) -> _Loaded | None:
        if not found and begun is None:
            return None
        aggregate = self.kind(id) if begun is None else begun
        keys = rows.opened_by(self.store, connection, [row[5] for row in found])
        aggregate.fold(
            rows.decoded(self.store, row[2], row[4], row[3], row[1], row[5], keys, self.kind.__aggregate__.name, id)
            for row in found
        )
        whose = (subjects or set()) | {key.subject for key in keys.values()}
        return _Loaded(aggregate, len(found), found[-1][1] if found else position, whose)

    def _past(self, id: str, version: int | None, at: datetime | None) -> Own:
        condition, value = ("version <= %s", version) if at is None else ("at <= %s", at)
        with self.store.connections.lent() as connection:
            query = self.store.sql(f"{_EVENTS} AND {condition} ORDER BY version")
            found = connection.execute(query, (self.kind.__aggregate__.name, id, value)).fetchall()
            loaded = self._folded(connection, id, found)
        if loaded is None or (version is not None and loaded.aggregate.version < version):
            when = f" at version {version}" if at is None else f" at {at}"
            raise AggregateUnknown(aggregate=self.kind.__aggregate__.name, id=id, when=when)
        return loaded.aggregate  # type: ignore[return-value]
