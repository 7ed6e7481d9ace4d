"""`Captures`: making, changing, watching and ending captures. The connector does the work; this keeps it honest."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from typing import Concatenate, ParamSpec, TypeVar

from millrace.capture import connector, failures, memory
from millrace.capture.check import Finding
from millrace.capture.connect import Connect
from millrace.capture.database import CapturedTable, address
from millrace.capture.definition import Capture
from millrace.capture.evolution import Change, evolved
from millrace.capture.memory import Remembered
from millrace.capture.postgres_source import PostgresSource, refuse_unreadable
from millrace.capture.secret import reference
from millrace.capture.source import Source
from millrace.config import Settings
from millrace.errors import (
    CaptureChanged,
    CaptureFailed,
    CaptureRefused,
    DatabaseRefused,
    DatabaseUnreachable,
    SlotLost,
)
from millrace.log import Log

START_S = 120.0
_LOOK_S = 0.2

Given = ParamSpec("Given")
Made = TypeVar("Made")

_START_OVER = "its topic cannot go on with that: `millrace capture remove --topics`, then add it again"


def _alone(work: Callable[Concatenate[Captures, Given], Made]) -> Callable[Concatenate[Captures, Given], Made]:
    """One process of a project at a time: two that change a capture at once would leave halves of both."""

    @wraps(work)
    def locked(self: Captures, /, *args: Given.args, **options: Given.kwargs) -> Made:
        self.settings.state_folder.mkdir(parents=True, exist_ok=True)
        with (self.settings.state_folder / "captures.lock").open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return work(self, *args, **options)

    return locked


class Captures:
    """The captures of a project. `log` and Connect are reached when first needed."""

    def __init__(self, settings: Settings, log: Log | None = None) -> None:
        self.settings = settings
        self.log = log or Log(settings)

    @cached_property
    def connect(self) -> Connect:
        return Connect(self.settings)

    def source(self, capture: Capture) -> Source:
        where = address(self.settings, capture.database)
        if where.kind == "mysql":
            from millrace.capture.mysql_source import MysqlSource

            return MysqlSource(self.settings, capture.database, where)
        return PostgresSource(self.settings, capture.database, where)

    def make_database(self, capture: Capture) -> None:
        """In the project's own PostgreSQL, if it is not there; nothing where the settings name databases."""
        if not self.settings.databases:
            PostgresSource(self.settings, capture.database, address(self.settings, capture.database)).make_database()

    def all(self) -> dict[str, Remembered]:
        return memory.read(self.log)

    def get(self, name: str) -> Remembered:
        return memory.one(self.log, name)

    def check(self, capture: Capture) -> tuple[Finding, ...]:
        return self.source(capture).check(self._staged(capture))

    @_alone
    def add(self, capture: Capture, *, wait: bool = True) -> Remembered:
        """Makes the capture, or changes it to this definition; tables that are new to it are snapshotted while the
        others go on."""
        self.connect.plugins()  # a worker that is away is told of before anything is changed
        self.make_database(capture)
        capture, source = self._staged(capture), self.source(capture)
        old = memory.read(self.log).get(capture.name)
        if old is not None:
            _refuse_change(old.capture, capture)
        for finding in source.check(capture):
            if finding.level == "error":
                told = f"{finding.subject}: {finding.what}"
                raise CaptureRefused(name=capture.name, what=told, why=finding.why)
        tables, changes = _evolved(source.describe(capture), old)
        for name, change in changes.items():
            if change.breaks:
                raise CaptureRefused(name=capture.name, what=f"table {name}: {change.breaks}", why=_START_OVER)
        if old is not None:
            kept = tuple(name for name in old.capture.tables if source.whole(name) in {table.name for table in tables})
            self.refuse_gap(replace(old.capture, tables=kept))
        self._refuse_leftovers(capture, [table for table in tables if old is None or table.name not in old.tables])
        new = Remembered(capture, source.address.kind, {table.name: table for table in tables})
        if old is not None:
            unread = _unread(source, old, new, changes)
            if new.kind == "postgres":
                refuse_unreadable(capture, unread)
            new = replace(new, truncates_done=old.truncates_done, unread=unread, repairing=old.repairing)
        source.prepare(capture)
        self._make_topics(capture, tables)
        memory.write(self.log, new)
        outside = self.outside(capture)
        changed = old is not None and self.connect.config(outside) is not None
        if changed:
            # The task with the old tables would take the signal to read the new ones, and do nothing about it.
            self._stop(outside)
        self._configure(capture, source)
        if changed:
            self.connect.resume(outside)
        if wait or old is not None:
            self.wait(capture)
        return self._read_unread(new)

    def _read_unread(self, found: Remembered) -> Remembered:
        """Has the running connector read what is still to be read of a changed capture; an `add` that died left it."""
        if found.unread:
            self.source(found.capture).snapshot(found.capture, found.unread, {})
            found = replace(found, unread=())
            memory.write(self.log, found)
        return found

    def ensure(self, capture: Capture) -> Remembered:
        """The capture as defined, made or changed only if it is not so already; what `run` does at its start."""
        capture = self._staged(capture)
        old = memory.read(self.log).get(capture.name)
        if old is None or old.capture != capture or self.connect.config(self.outside(capture)) is None:
            return self.add(capture)
        if self._has_moved(capture):
            self._follow(capture)
        if self.connect.state(self.outside(capture))[0] == "STOPPED":
            self.resume(capture.name)  # an `add` that died has stopped it; a pause is somebody's wish
            old = self.get(capture.name)
        return self._read_unread(old)

    def _has_moved(self, capture: Capture) -> bool:
        """Whether the database is elsewhere than the connector looks for it: a local server's port may change."""
        config, where = self.connect.config(self.outside(capture)) or {}, self.source(capture).address
        return (config.get("database.hostname"), config.get("database.port")) != (where.host, str(where.port))

    @_alone
    def _follow(self, capture: Capture) -> None:
        """A paused connector stays so."""
        self.refuse_gap(capture)
        self._configure(capture, self.source(capture))

    def outside(self, capture: Capture) -> str:
        return capture.outside(self.settings)

    def wait(self, capture: Capture) -> None:
        """Returns when the connector runs; raises what it failed of."""
        deadline = time.monotonic() + START_S
        while True:
            state, trace = self.connect.state(self.outside(capture))
            if state == "RUNNING":
                return
            if state == "FAILED":
                raise self.failure(capture, trace)
            if time.monotonic() > deadline:
                raise self._waits(capture, state)
            time.sleep(_LOOK_S)

    def failure(self, capture: Capture, trace: str) -> CaptureFailed | SlotLost:
        reason, remedy = failures.told(capture.name, trace)
        if failures.slot_lost(trace):
            return SlotLost(name=capture.name, reason=reason)
        return CaptureFailed(name=capture.name, reason=reason, remedy=remedy)

    def pause(self, name: str) -> None:
        self.connect.pause(self.outside(self.get(name).capture))

    @_alone
    def resume(self, name: str) -> None:
        """Goes on after a pause or a failure; not past a gap."""
        remembered = self.get(name)
        found = remembered.capture
        outside = self.outside(found)
        self.refuse_gap(found)
        if self.connect.config(outside) is None:  # Connect's own memory is gone
            self._configure(found, self.source(found))
        state, _ = self.connect.state(outside)
        self.connect.resume(outside)
        if state == "FAILED":
            self.connect.restart(outside)
            self._until(outside, lambda state: state != "FAILED")
        self.wait(found)
        self._read_unread(remembered)

    def tend(self, name: str) -> None:
        """Starts a failed connector again: a broker or a database that was away is back. Not past a gap: `SlotLost` and
        `CaptureFailed` tell of what waiting does not mend. Whatever else is raised may pass."""
        found = self.get(name).capture
        outside = self.outside(found)
        state, trace = self.connect.state(outside)
        if state == "ABSENT":
            self.refuse_gap(found)
            self._configure(found, self.source(found))
        elif state == "FAILED":
            if failures.slot_lost(trace) or not failures.passing(trace):
                raise self.failure(found, trace)
            self.refuse_gap(found)
            self.connect.restart(outside)

    def refresh(self, name: str, seen: Mapping[str, Sequence[tuple[str, ...]]] | None = None) -> dict[str, Change]:
        """Reads anew what the tables' columns are, after somebody changed them; gives what changed, by table. `seen`
        are shapes of rows in the topic that nobody knew. Tables whose rows must be read again for it are."""
        old = self.get(name)
        source = self.source(old.capture)
        tables, changes = _evolved(source.describe(old.capture), old, seen)
        changed = {table.name: changes[table.name] for table in tables if table != old.tables[table.name]}
        if changed:
            again = tuple(name for name, change in changed.items() if change.resnapshot)
            new = replace(old, tables={table.name: table for table in tables}, unread=(*old.unread, *again))
            memory.write(self.log, new)
            self._read_unread(new)
        return changed

    def refuse_gap(self, capture: Capture) -> None:
        health = self.source(capture).health(capture, self.connect.offsets(self.outside(capture)))
        if health.lost:
            raise SlotLost(name=capture.name, reason=health.lost)

    def snapshot(
        self, name: str, tables: Sequence[str] = (), conditions: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """Reads tables again (all, unless some are named) while changes go on; gives their whole names."""
        found = self.get(name)
        source = self.source(found.capture)
        names = tuple(memory.table(found, source.whole(table)).name for table in tables) or tuple(found.tables)
        state, _ = self.connect.state(self.outside(found.capture))
        if state in ("PAUSED", "STOPPED"):
            remedy = f"`millrace capture resume {name}` first"
            raise CaptureFailed(name=name, reason=f"it is {state.lower()}", remedy=remedy)
        self.wait(found.capture)
        source.snapshot(found.capture, names, conditions or {})
        return names

    @_alone
    def start_over(self, name: str) -> None:
        """After a gap: a new slot, and every table read again from the beginning. Deletes that were missed are left to
        `verify --repair`."""
        found = self.get(name).capture
        outside, source = self.outside(found), self.source(found)
        if self.connect.config(outside) is not None:
            self._stop(outside)
            self.connect.forget_offsets(outside)
        source.clean(found, begins_anew=True)
        source.prepare(found)
        self._configure(found, source)
        self.connect.resume(outside)
        self.wait(found)

    @_alone
    def remove(self, name: str, *, topics: bool = False, force: bool = False) -> list[str]:
        """Ends a capture: connector, slot and publication; with `topics` also everything captured. With `force` even if
        its database does not answer, in which then slot and publication are left."""
        found = self.get(name)
        outside, source = self.outside(found.capture), self.source(found.capture)
        answers = True
        try:
            source.health(found.capture, None)
        except (DatabaseUnreachable, DatabaseRefused):
            answers = False
            if not force:
                raise
        if self.connect.config(outside) is not None:
            self._stop(outside)
            self.connect.forget_offsets(outside)
            self.connect.delete(outside)
        left = f"left in the database: slot {found.capture.slot_name}, publication {found.capture.publication_name}"
        done = source.clean(found.capture) if answers else [left]
        memory.forget(self.log, name)
        captured = [table.topic for table in found.tables.values()] if topics else []
        for topic in [*connector.own_topics(found.capture), *captured]:
            if self.log.topics.exists(topic):
                self.log.topics.delete(topic)
        return done

    def _configure(self, capture: Capture, source: Source) -> None:
        password = reference(self.settings, capture.database, source.address)
        tables = memory.one(self.log, capture.name).tables.values()
        together = {table.name: table.together for table in tables if table.together}
        config = source.config(capture, together, password, self.connect.plugins())
        outside = self.outside(capture)
        failed = self.connect.state(outside)[0] == "FAILED"
        self.connect.put(outside, {"name": outside, **config})
        if failed:  # otherwise it would go on telling of its old failure
            self.connect.restart(outside)
            self._until(outside, lambda state: state != "FAILED")

    def _refuse_leftovers(self, capture: Capture, fresh: Sequence[CapturedTable]) -> None:
        """The topic of an earlier capture may hold rows that were deleted since, which no snapshot takes out."""
        for table in fresh:
            if self.log.topics.exists(table.topic) and any(
                first < last for first, last in self.log.topics.offsets(table.topic).values()
            ):
                why = (
                    f"rows that were deleted since would stay in it: `millrace topic delete {table.topic} --yes` first"
                )
                raise CaptureRefused(name=capture.name, what=f"topic {table.topic} is left of an earlier one", why=why)

    def _make_topics(self, capture: Capture, tables: Sequence[CapturedTable]) -> None:
        kept = {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(capture.history_ms),
            "delete.retention.ms": str(capture.tombstones_stay_ms),
            "max.message.bytes": str(connector.LARGEST_RECORD_BYTES),
        }
        for table in tables:
            if not self.log.topics.ensure(table.topic, partitions=capture.partitions, config=kept):
                self.log.topics.alter(table.topic, config=kept)
        expiring = {"cleanup.policy": "delete", "retention.ms": str(capture.history_ms)}
        for topic in connector.own_topics(capture):
            self.log.topics.ensure(topic, partitions=1, config=expiring)

    def _stop(self, outside: str) -> None:
        self.connect.stop(outside)
        self._until(outside, lambda state: state == "STOPPED")

    def _until(self, outside: str, fits: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not fits(state := self.connect.state(outside)[0]):
            if time.monotonic() > deadline:
                raise _stuck(outside, state)
            time.sleep(_LOOK_S)

    def _waits(self, capture: Capture, state: str) -> CaptureFailed:
        """Why it does not start, by the database's own word if it has one."""
        hindrance = None
        with contextlib.suppress(DatabaseRefused, DatabaseUnreachable):
            hindrance = self.source(capture).hindrance(capture)
        if hindrance is None:
            return _stuck(capture.name, state)
        remedy = "end it, and the capture goes on by itself; `millrace capture status` says when"
        return CaptureFailed(name=capture.name, reason=f"it waits, because {hindrance}", remedy=remedy)

    def _staged(self, capture: Capture) -> Capture:
        return replace(capture, prefix=self.settings.prefix)


def _unread(source: Source, old: Remembered, new: Remembered, changes: Mapping[str, Change]) -> tuple[str, ...]:
    """Tables that are new, that were changed so that their rows must be read again, or whose columns are masked or left
    out otherwise than before; and those that an earlier `add` did not come to."""
    chosen = {
        *(set(old.capture.mask) ^ set(new.capture.mask)),
        *(set(old.capture.exclude) ^ set(new.capture.exclude)),
    }
    found = {source.whole(column.rpartition(".")[0]) for column in chosen}
    found |= {name for name, change in changes.items() if change.resnapshot} | set(old.unread)
    return tuple(name for name in new.tables if name in found or name not in old.tables)


def _stuck(name: str, state: str) -> CaptureFailed:
    reason = f"its connector is {state.lower()} for {START_S:.0f} s"
    return CaptureFailed(
        name=name, reason=reason, remedy="`millrace logs connect` says why; then run the same command again"
    )


def _refuse_change(old: Capture, new: Capture) -> None:
    remedy = f"leave it as it was, or `millrace capture remove {new.name} --topics` first: its topics would not fit"
    for option in ("database", "partitions", "slot"):
        before, after = getattr(old, option), getattr(new, option)
        if before != after:
            raise CaptureChanged(name=new.name, option=option, old=before, new=after, remedy=remedy)


def _evolved(
    tables: Sequence[CapturedTable], old: Remembered | None, seen: Mapping[str, Sequence[tuple[str, ...]]] | None = None
) -> tuple[tuple[CapturedTable, ...], dict[str, Change]]:
    """The tables, and what changed, by table. What is remembered of a table's past (shapes, renamed columns) goes on;
    the rest is as the database says. `seen` are shapes of rows in the topic that nobody knew."""
    before, shapes = old.tables if old else {}, seen or {}
    pairs = {
        table.name: evolved(before[table.name], table, shapes.get(table.name, ()))
        for table in tables
        if table.name in before
    }
    found = tuple(pairs[table.name][0] if table.name in pairs else table for table in tables)
    return found, {name: change for name, (_, change) in pairs.items()}
