"""Which version of a table is meant: by its number, by a time, or by a place in the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from millrace.errors import LakeVersionUnknown
from millrace.lakehouse.table import LakeTable, Note, Version

_LET_GO = "the versions of then were let go"
_Span: TypeAlias = tuple[int, int]
_NOTHING: _Span = (0, 0)


def numbered(table: LakeTable, number: int) -> Version:
    versions = table.versions()
    found = [each for each in versions if each.number == number]
    if not found:
        said = f"it has {versions[0].number} to {versions[-1].number}" if versions else "it has none yet"
        raise LakeVersionUnknown(table=table.name, asked=f"number {number}", reason=said)
    return _whole(table, found[0], f"number {number}")


def of_time(table: LakeTable, at: datetime) -> Version:
    """The one that was there at that time."""
    versions = table.versions()
    found = [each for each in versions if each.at <= at]
    if not found:
        reason = _LET_GO if _lacks_first(versions) else "its first came later"
        raise LakeVersionUnknown(table=table.name, asked=at.isoformat(), reason=reason)
    return _whole(table, found[-1], at.isoformat())


def that_holds(table: LakeTable, topic: str | None, ends: Mapping[int, int], asked: str) -> Version:
    """The first one that holds a topic's records up to these offsets (by partition, each the next one to read)."""
    versions = table.versions()
    others = _lacks_first(versions)  # that may have been the first one
    for version in versions:
        spans = {} if version.note is None else _spans_of(version.note, topic)
        if spans and all(spans.get(number, _NOTHING)[1] >= end for number, end in ends.items()):
            if others and all(spans.get(number, _NOTHING)[0] >= end for number, end in ends.items()):
                raise LakeVersionUnknown(table=table.name, asked=asked, reason=_LET_GO)
            return _whole(table, version, asked)
        others &= not spans
    raise LakeVersionUnknown(table=table.name, asked=asked, reason="none holds that much of the log yet")


def _lacks_first(versions: Sequence[Version]) -> bool:
    """Whether some were let go. Delta's first, 0, has no rows; Iceberg counts from 1."""
    return bool(versions) and versions[0].number > 1


def read_by(note: Note, topic: str | None = None) -> dict[int, int]:
    """Where an epoch's flow had come to: by partition the next offset to read. Of the one topic that it reads, or of
    the one that is named."""
    return {number: end for number, (_, end) in _spans_of(note, topic).items()}


def topics_of(note: Note) -> dict[str, dict[int, int]]:
    """By topic and partition, the next offset to read."""
    return {topic: {number: end for number, (_, end) in parts.items()} for topic, parts in _all_spans_of(note).items()}


def _spans_of(note: Note, topic: str | None) -> dict[int, _Span]:
    found: dict[int, _Span] = {}
    for name, parts in _all_spans_of(note).items():
        if topic in (None, name):
            found |= parts
    return found


def _all_spans_of(note: Note) -> dict[str, dict[int, _Span]]:
    """By topic and partition, what the epoch read: from where, if that is known, up to where."""
    try:
        sources = json.loads(note.ranges)
        return {
            topic: {int(number): (first or 0, end) for number, (first, end) in parts.items()}
            for each in sources
            for topic, parts in each.items()
        }
    except (ValueError, TypeError, AttributeError):  # in words of somebody's own
        return {}


def records(ranges: str) -> int | None:
    """How many records an epoch read, at most: offsets may be marks of transactions. None where it is not known."""
    try:
        sources = json.loads(ranges)
        return sum(
            int(end) - int(first) for each in sources for parts in each.values() for first, end in parts.values()
        )
    except (ValueError, TypeError, AttributeError):  # in words of somebody's own, or from an unknown beginning on
        return None


def _whole(table: LakeTable, version: Version, asked: str) -> Version:
    if not table.whole(version):
        raise LakeVersionUnknown(table=table.name, asked=asked, reason="its files were let go")
    return version
