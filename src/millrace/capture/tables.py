"""Captured tables from their topics, without Spark and without the database: for the command line and small tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.capture import memory
from millrace.capture.connector import marks_topic
from millrace.capture.database import CapturedTable
from millrace.capture.memory import Remembered
from millrace.capture.reading import decoded
from millrace.errors import RowUnreadable, TableAmbiguous, TablePastGone, TableUnknown, nearest
from millrace.log import Log, Record
from millrace.model import Change, LatestByKey

_AT_ONCE = 10_000
# Among so many offsets at the end of the topic of marks is the last one: transactions take some there.
_MARKS = 100


def find(log: Log, name: str) -> tuple[Remembered, CapturedTable]:
    """A table by `capture.table` or `capture.schema.table`, or without the capture where just one has such a table."""
    known: dict[str, list[tuple[Remembered, CapturedTable]]] = {}
    for capture, found in memory.read(log).items():
        for table in found.tables.values():
            short = table.name.partition(".")[2]
            for each in {table.topic, f"{capture}.{table.name}", f"{capture}.{short}", table.name, short}:
                known.setdefault(each, []).append((found, table))
    fitting = known.get(name, [])
    if len(fitting) > 1:
        names = " or ".join(f"{found.capture.name}.{table.name}" for found, table in fitting)
        raise TableAmbiguous(table=name, names=names)
    if not fitting:
        raise TableUnknown(table=name, database="the captures of this project", hint=nearest(name, known))
    return fitting[0]


def rows(log: Log, table: CapturedTable, at: datetime | None = None) -> Iterator[dict[str, Any]]:
    """The rows as they are now, or as they were `at` a time, by when changes were committed. Refuses a time that the
    topic no longer tells of."""
    latest, records = LatestByKey(), log.read(table.topic)
    for batch in _batches(records if at is None else _until(log, table, at, records)):
        for signed in latest.apply(
            Change(r.topic, (r.key or b"").decode(), r.value, r.partition, r.offset) for r in batch
        ):
            if signed.error:
                place = f"{table.topic} {signed.partition}:{signed.offset}"
                raise RowUnreadable(table=table.name, place=place, reason=signed.error)
    for text in latest.table().values():
        yield decoded(table, text)


def _until(log: Log, table: CapturedTable, at: datetime, records: Iterable[Record]) -> Iterator[Record]:
    """The records of changes that were committed by then."""
    kept_ms = int(log.topics.config(table.topic).get("min.compaction.lag.ms") or 0)
    since = datetime.now(UTC) - timedelta(milliseconds=kept_ms)  # changes from before may have been compacted away
    if at < since:
        raise TablePastGone(table=table.name, at=_shown(at), since=_shown(since))
    first: datetime | None = None
    for record in records:
        first = min(first or record.time or at, record.time or at)
        if (_committed(record) or at) <= at:
            yield record
    if first is not None and at < first:
        raise TablePastGone(table=table.name, at=_shown(at), since=_shown(first))


def _committed(record: Record) -> datetime | None:
    """When its change was committed; of a tombstone, which follows its delete, when it was written."""
    source = {} if record.value is None else (json.loads(record.value).get("source") or {})
    at_ms = source.get("ts_ms")
    return record.time if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC)


def _shown(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def marked(log: Log, topic: str) -> int:
    """Up to which place of its database's log a topic has everything that was committed, as its capture says; 0 where
    none does."""
    for found in memory.read(log).values():
        marks = marks_topic(found.capture)
        if topic in {table.topic for table in found.tables.values()} and log.topics.exists(marks):
            end = log.topics.last(marks)[0]
            told = [int(each.json()["lsn"]) for each in log.read(marks, max(end - _MARKS, 0), partition=0)]
            return max(told, default=0)
    return 0


def changes(
    log: Log, table: CapturedTable, *, follow: bool = False, stop: threading.Event | None = None
) -> Iterator[dict[str, Any]]:
    """Every change that the topic holds: op, before, after, when it was committed, and its place in the log."""
    for record in log.read(table.topic, follow=follow, stop=stop):
        if record.value is None:
            continue
        envelope = json.loads(record.value)
        source = envelope.get("source") or {}
        yield {
            "op": envelope["op"],
            "before": envelope["before"],
            "after": envelope["after"],
            "at_ms": source.get("ts_ms"),
            "lsn": source.get("lsn"),
            "transaction": source.get("txId"),
            "partition": record.partition,
            "offset": record.offset,
        }


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    yield batch
