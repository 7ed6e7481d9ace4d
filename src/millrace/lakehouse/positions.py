"""Where a place in a database's log is in the topics of a capture, and when what a version has was changed there."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millrace.errors import LakePositionUnknown, MillraceError

if TYPE_CHECKING:
    from millrace.lakehouse.table import LakeTable, Note
    from millrace.log import Log, Record

# What Debezium calls the records of the snapshot with which a capture begins.
_FIRST = ("first", "first_in_data_collection", "true", "last_in_data_collection", "last")


def ends_at(log: Log, topic: str, lsn: int, marked: int = 0, *, itself: bool = False) -> dict[int, int]:
    """By partition, the next offset after all that was committed by then: what stands at that very place was not, and
    counts only with `itself`. The whole topic is read. `marked` is up to where its capture says that everything is
    there.

    A change stands in the log before its transaction's commit, and in the topic behind it. So nothing that was
    committed by then comes after the last change from before. Where the topic was compacted, that one may be gone; the
    record that follows on what is left is then taken, or the end where nothing is left, which is never too early. The
    first snapshot has all that was committed before it, and is needed whole; one of a repair has changes before it.
    """
    found = {number: end for number, (_, end) in log.topics.offsets(topic).items()}
    after, changed = set(found), set[int]()
    newest = None
    for record in log.read(topic):
        if record.partition in after:
            found[record.partition] = record.offset
            after.remove(record.partition)
        source = _source_of(record)
        place = source.get("lsn")
        if not isinstance(place, int):
            continue
        newest = max(newest or 0, place)
        snapshot = source.get("snapshot") in _FIRST
        if place < lsn + itself or (snapshot and record.partition not in changed):
            found[record.partition] = record.offset + 1
            after.add(record.partition)
        if not snapshot:
            changed.add(record.partition)
    _refuse_unseen(topic, lsn, newest, marked)
    return found


def _refuse_unseen(topic: str, lsn: int, newest: int | None, marked: int) -> None:
    if newest is None and not marked:
        reason = "none of its records has one, as those of PostgreSQL have"
        raise LakePositionUnknown(topic=topic, lsn=_text(lsn), reason=reason)
    if (reached := max(newest or 0, marked)) < lsn:
        raise LakePositionUnknown(topic=topic, lsn=_text(lsn), reason=f"so far it reaches up to LSN {_text(reached)}")


def _text(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def freshness_s(log: Log, table: LakeTable) -> float | None:
    """How long the oldest change of the last epoch that the table holds took from its database (of other topics: from
    its arrival) to the version that shows it. An epoch that is owed has no version. None where nobody can say: without
    the topic, and of an epoch without records."""
    for version in reversed(table.versions()):
        if version.note is not None and version.note.own is None:
            # In words of somebody's own, epochs do not say what they read.
            with contextlib.suppress(MillraceError, ValueError, TypeError, AttributeError):
                made = _oldest(log, version.note)
                return None if made is None else max(0.0, (version.at - made).total_seconds())
            return None
    return None


def _oldest(log: Log, note: Note) -> datetime | None:
    """When the first records were made that an epoch had read; on a compacted topic these may be later ones."""
    found = []
    for source in json.loads(note.ranges):
        for outside, parts in source.items():
            topic = log.settings.unnamed(outside) or outside
            for number, (first, end) in parts.items():
                if (first or 0) < end:
                    records = log.read(topic, first or 0, partition=int(number), limit=1)
                    found += [_made_at(record) for record in records if record.offset < end]
    return min(filter(None, found), default=None)


def _made_at(record: Record) -> datetime | None:
    made_ms = _source_of(record).get("ts_ms")
    if isinstance(made_ms, int) and made_ms > 0:
        return datetime.fromtimestamp(made_ms / 1000, UTC)
    return record.time


def _source_of(record: Record) -> dict[str, Any]:
    """Of a record of a capture; with schemas on, the envelope is inside."""
    try:
        value = record.json()
    except ValueError:  # it is no JSON
        return {}
    envelope = value.get("payload", value) if isinstance(value, dict) else None
    source = envelope.get("source") if isinstance(envelope, dict) else None
    return source if isinstance(source, dict) else {}
