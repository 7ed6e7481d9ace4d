"""Where a place in a database's log is in the topics of a capture, and when what a version has was changed there."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millrace.errors import MillraceError

if TYPE_CHECKING:
    from millrace.lakehouse.table import LakeTable, Note
    from millrace.log import Log, Record


def ends_at(log: Log, topic: str, lsn: int) -> dict[int, int]:
    """By partition, the next offset after all that was committed up to there. The whole topic is read.

    A change stands in the log before its transaction's commit, and in the topic behind it. So nothing that was
    committed by then comes after the last change from before. Where the topic was compacted, that one may be gone; the
    record that follows on what is left is then taken, which is never too early.
    """
    ends = {number: end for number, (_, end) in log.topics.offsets(topic).items()}
    found = dict.fromkeys(ends, 0)
    after: set[int] = set()
    for record in log.read(topic):
        if record.partition in after:
            found[record.partition] = record.offset
            after.remove(record.partition)
        place = _lsn(record.json())
        if place is not None and place <= lsn:
            after.add(record.partition)
    return found | {number: ends[number] for number in after}


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
    with contextlib.suppress(ValueError):  # it is no JSON
        made_ms = _source(record.json()).get("ts_ms")
        if isinstance(made_ms, int) and made_ms > 0:
            return datetime.fromtimestamp(made_ms / 1000, UTC)
    return record.time


def _lsn(value: Any) -> int | None:
    place = _source(value).get("lsn")
    return place if isinstance(place, int) else None


def _source(value: Any) -> dict[str, Any]:
    """Of a record of a capture; with schemas on, the envelope is inside."""
    envelope = value.get("payload", value) if isinstance(value, dict) else None
    source = envelope.get("source") if isinstance(envelope, dict) else None
    return source if isinstance(source, dict) else {}
