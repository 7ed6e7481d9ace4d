"""The ledger rule: which epoch a sink writes, which it has already, and which do not follow on what it holds.

A sink remembers, for each flow that writes it, the last epoch that it holds: its number and what the flow had read
for it. Where the target can, that stands in the target itself and is written in one step with the rows; otherwise in a
file beside the checkpoint (`FileLedger`), written after them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.disk import write_whole
from millrace.errors import EpochMissing, EpochOlder, EpochOther, Where


@dataclass(frozen=True)
class Epoch:
    """One committed step of a flow: the flow's outside name, its number, and the offsets that it read (`ranges_of`).

    One that is not `checked` is written whatever the ledger holds: somebody asked for less than exactly once. Of one
    that is told `once` a row that somebody may have taken is not sent again: somebody asked for at most once.
    """

    flow: str
    number: int
    ranges: str
    checked: bool = True
    once: bool = False

    @property
    def entry(self) -> Entry:
        return Entry(self.number, self.ranges)


@dataclass(frozen=True)
class Entry:
    """What a ledger holds of a flow: the last epoch."""

    number: int
    ranges: str


def ranges_of(sources: Sequence[Mapping[str, Mapping[str, Sequence[int | None]]]]) -> str:
    """The offsets of an epoch as one spelling: for each source its topics, their partitions, [first, end)."""
    return json.dumps(sources, sort_keys=True, separators=(",", ":"))


def due(sink: str, epoch: Epoch, held: Entry | None, where: Where | None = None) -> bool:
    """Whether an epoch is still to be written, by what the ledger holds of its flow.

    Never by its number alone: an older copy of a checkpoint gives the same numbers to other records.
    """
    if held is None or not epoch.checked:
        return True
    facts = {"sink": sink, "flow": epoch.flow, "epoch": epoch.number}
    if epoch.number == held.number + 1:
        if not _follows(epoch.ranges, held.ranges):
            facts["epoch"] = held.number
            raise EpochOther(**facts, read=epoch.ranges, before=held.ranges, where=where)
        return True
    if epoch.number < held.number:
        raise EpochOlder(**facts, held=held.number, where=where)
    if epoch.number > held.number:
        raise EpochMissing(**facts, held=held.number, where=where)
    if epoch.ranges != held.ranges:
        raise EpochOther(**facts, read=epoch.ranges, before=held.ranges, where=where)
    return False


def _follows(ranges: str, before: str) -> bool:
    """Whether what is read begins where the epoch before it ended, as far as both say it (`ranges_of`)."""
    try:
        sources, earlier = json.loads(ranges), json.loads(before)
        starts = {place: first for place, (first, _) in _places(sources)}
        ends = {place: end for place, (_, end) in _places(earlier)}
    except (ValueError, TypeError, AttributeError):  # in words of somebody's own
        return True
    return all(first is None or first == ends.get(place, first) for place, first in starts.items())


def _places(sources: Any) -> Iterator[tuple[tuple[int, str, str], Sequence[int | None]]]:
    for number, topics in enumerate(sources):
        for topic, parts in topics.items():
            for part, span in parts.items():
                yield (number, topic, part), span


class FileLedger:
    """The ledger of a sink whose target has no place for one: a file in a folder beside the checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.json"

    def held(self) -> Entry | None:
        try:
            raw: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return Entry(int(raw["epoch"]), str(raw["ranges"]))

    def write(self, epoch: Epoch) -> None:
        """A reader, and the next start after a crash, finds the old entry or the new one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, entry_text(epoch))


def entry_text(epoch: Epoch) -> str:
    return json.dumps({"flow": epoch.flow, "epoch": epoch.number, "ranges": epoch.ranges}, indent=2)
