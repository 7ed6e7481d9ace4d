"""How a capture stands, in words that people read: per table snapshot or streaming, where, how far behind, how fast."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from millrace.capture import connector, failures, truncates
from millrace.capture.captures import Captures
from millrace.capture.database import CapturedTable
from millrace.capture.memory import Remembered
from millrace.capture.source import Health
from millrace.errors import MillraceError
from millrace.log import Log, Record

# Over how long the rate is measured.
SAMPLE_S = 1.0
_SNAPSHOT_DONE = ("COMPLETED", "TABLE_SCAN_COMPLETED")


@dataclass(frozen=True)
class TableStatus:
    """`phase` is waiting, snapshot or streaming; `records` is what the topic has taken, markers of transactions and
    rows read again too, `estimated` how many rows the table has by the database's guess. `lag_s` is from the
    commit of the last change to its place in the topic, `events_per_s` what came during the last second."""

    table: str
    topic: str
    phase: str
    records: int
    estimated: int | None
    events_per_s: float
    lag_s: float | None
    last: datetime | None


@dataclass(frozen=True)
class CaptureStatus:
    """`state` is running, starting, paused, stopped, failed or lost. Bytes are of the database's replication log."""

    capture: str
    state: str
    position: str | None
    behind_bytes: int | None
    kept_bytes: int | None
    error: str | None
    fix: str | None
    tables: tuple[TableStatus, ...]


def status(captures: Captures, name: str, sample_s: float = SAMPLE_S) -> CaptureStatus:
    found = captures.get(name)
    capture, outside = found.capture, captures.outside(found.capture)
    offsets = captures.connect.offsets(outside)
    state, trace = captures.connect.state(outside)
    health, estimates = Health(None, None, None), dict[str, int]()
    error: str | None
    fix: str | None
    try:
        source = captures.source(capture)
        health = source.health(capture, offsets)
        estimates = dict(source.estimates(capture))
    except MillraceError as trouble:  # of the database, or of one table; whatever else is wrong may be for that
        error, fix = trouble.what, trouble.remedy
    else:
        if health.lost:
            state = "LOST"
        error, fix = _trouble(captures, found, health, state, trace)
    return CaptureStatus(
        capture=name,
        state=state.lower(),
        position=_position(offsets),
        behind_bytes=health.behind_bytes,
        kept_bytes=health.kept_bytes,
        error=error,
        fix=fix,
        tables=_tables(captures.log, found, estimates, offsets, sample_s),
    )


def unread(captures: Captures, name: str) -> tuple[str, ...]:
    """The tables whose rows are not all in their topics yet: their snapshot has not begun or not ended."""
    found = captures.get(name)
    offsets = captures.connect.offsets(captures.outside(found.capture))
    phases = _phases(captures.log, found, offsets)
    return tuple(table for table, phase in phases.items() if phase != "streaming" or table in found.unread)


def _trouble(
    captures: Captures, found: Remembered, health: Health, state: str, trace: str
) -> tuple[str, str] | tuple[None, None]:
    """What is wrong, the worst of it, and what to do."""
    name = found.capture.name
    if health.lost:
        fix = f"`millrace capture snapshot {name} --repair` reads the tables again and removes rows deleted meanwhile"
        return health.lost, fix
    if state == "FAILED":
        return failures.told(name, trace)
    if state == "ABSENT":
        return "its connector is gone from Kafka Connect", f"`millrace capture resume {name}` makes it again"
    if found.repairing:
        error = "the repair of a gap was begun and not ended: rows that were deleted in it may be left"
        return error, f"`millrace capture snapshot {name} --repair` does it again"
    if state == "STOPPED" or found.unread:
        return "it was being changed, and that was not ended", f"`millrace capture resume {name}` ends it"
    if truncated := truncates.waiting(captures, name):
        error = f"{', '.join(truncated)} was truncated, and its rows are still in the topic"
        if found.kind == "mysql":
            return error, f"`millrace capture remove {name} --topics`, then `millrace capture add` reads it anew"
        return error, f"`millrace capture resume {name}` removes them (a running app does it by itself)"
    return None, None


def _tables(
    log: Log, found: Remembered, estimates: Mapping[str, int], offsets: Mapping[str, Any] | None, sample_s: float
) -> tuple[TableStatus, ...]:
    before = {name: _end(log, table) for name, table in found.tables.items()}
    began = time.monotonic()
    phases = _phases(log, found, offsets)
    time.sleep(max(0.0, sample_s - (time.monotonic() - began)))
    took_s = time.monotonic() - began
    rows = []
    for name, table in found.tables.items():
        end = _end(log, table)
        last = _last(log, table)
        lag_s, at = _lag(last)
        rate = (end - before[name]) / took_s
        rows.append(TableStatus(name, table.topic, phases[name], end, estimates.get(name), rate, lag_s, at))
    return tuple(rows)


def _phases(log: Log, found: Remembered, offsets: Mapping[str, Any] | None) -> dict[str, str]:
    """From the connector's own notifications, the last word for each table."""
    begun = offsets is not None and not offsets.get("snapshot") and offsets.get("snapshot_completed") is not False
    phases = dict.fromkeys(found.tables, "streaming" if begun else "waiting")
    topic = connector.notification_topic(found.capture)
    if not log.topics.exists(topic):
        return phases
    for record in log.read(topic):
        told = record.json() or {}
        data = told.get("additional_data") or {}
        kind, step = told.get("aggregate_type"), told.get("type")
        named = [
            part for part in (data.get("data_collections") or data.get("scanned_collection") or "").split(",") if part
        ]
        tables = [name for name in found.tables if any(_names(part.strip(), name) for part in named)]
        if kind == "Initial Snapshot" and not named and step == "COMPLETED":
            phases = dict.fromkeys(phases, "streaming")
        elif step in ("STARTED", "IN_PROGRESS"):
            current = data.get("current_collection_in_progress") or ""
            for name in tables or (found.tables if kind == "Initial Snapshot" else ()):
                if kind == "Initial Snapshot" and step == "IN_PROGRESS" and current and not _names(current, name):
                    continue
                phases[name] = "snapshot"
        elif step in _SNAPSHOT_DONE:
            for name in tables:
                phases[name] = "streaming"
    return phases


def _names(told: str, table: str) -> bool:
    """The connector may put the database before the schema."""
    return told == table or told.endswith(f".{table}")


def _end(log: Log, table: CapturedTable) -> int:
    return sum(last - first for first, last in log.topics.offsets(table.topic).values())


def _last(log: Log, table: CapturedTable) -> Record | None:
    """The newest change of a table. Markers of transactions take offsets too, hence the few steps back."""
    newest: Record | None = None
    for number, (first, last) in log.topics.offsets(table.topic).items():
        for back in (4, 64):
            records = [
                record
                for record in log.read(table.topic, max(first, last - back), partition=number)
                if record.value is not None
            ]
            if records:
                if newest is None or (records[-1].time or _NEVER) > (newest.time or _NEVER):
                    newest = records[-1]
                break
    return newest


_NEVER = datetime.min.replace(tzinfo=UTC)


def _lag(record: Record | None) -> tuple[float | None, datetime | None]:
    if record is None or record.time is None:
        return None, None
    try:
        source = json.loads(record.value or b"{}").get("source") or {}
    except ValueError:
        return None, record.time
    if source.get("snapshot") not in (None, "false", False) or "ts_ms" not in source:
        return None, record.time
    return max(0.0, record.time.timestamp() - source["ts_ms"] / 1000), record.time


def _position(offsets: Mapping[str, Any] | None) -> str | None:
    if not offsets:
        return None
    if "lsn" in offsets:
        lsn = int(offsets["lsn"])
        return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
    if "file" in offsets:
        return f"{offsets['file']}:{offsets.get('pos')}"
    return None
