"""Which version of a table is meant: by its number, by a time, or by a place in the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from millrace.errors import LakeVersionUnknown
from millrace.lakehouse.table import LakeTable, Note, Version


def numbered(table: LakeTable, number: int) -> Version:
    versions = table.versions()
    found = [each for each in versions if each.number == number]
    if not found:
        said = f"it has {versions[0].number} to {versions[-1].number}" if versions else "it has none yet"
        raise LakeVersionUnknown(table=table.name, asked=f"number {number}", reason=said)
    return _whole(table, found[0], f"number {number}")


def of_time(table: LakeTable, at: datetime) -> Version:
    """The one that was there at that time."""
    found = [each for each in table.versions() if each.at <= at]
    if not found:
        raise LakeVersionUnknown(table=table.name, asked=at.isoformat(), reason="its first came later")
    return _whole(table, found[-1], at.isoformat())


def that_holds(table: LakeTable, topic: str | None, ends: Mapping[int, int], asked: str) -> Version:
    """The first one that holds a topic's records up to these offsets (by partition, each the next one to read)."""
    for version in table.versions():
        read = {} if version.note is None else read_by(version.note, topic)
        if read and all(read.get(number, 0) >= end for number, end in ends.items()):
            return _whole(table, version, asked)
    raise LakeVersionUnknown(table=table.name, asked=asked, reason="none holds that much of the log yet")


def read_by(note: Note, topic: str | None = None) -> dict[int, int]:
    """Where an epoch's flow had come to: by partition the next offset to read. Of the one topic that it reads, or of
    the one that is named."""
    found: dict[int, int] = {}
    for name, parts in topics_of(note).items():
        if topic in (None, name):
            found |= parts
    return found


def topics_of(note: Note) -> dict[str, dict[int, int]]:
    """By topic and partition, the next offset to read."""
    try:
        sources = json.loads(note.ranges)
        return {
            topic: {int(number): end for number, (_, end) in parts.items()}
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
