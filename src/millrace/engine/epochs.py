"""An epoch as sinks know it: its number, and the offsets that it read, from the checkpoint of its flow.

Spark writes what an epoch is going to read before it begins (`offsets/N`), and it is done with that again after a
crash: so the two files N-1 and N say what N reads, while it runs and afterwards.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from millrace.engine.stopping import epochs
from millrace.sinks.ledger import Epoch, ranges_of

# No topic's name begins so: what stands there is a position of a database, or the time.
POSITION = "@"
NOW = "@@now"
# Offsets by topic and partition, positions by database, and time.
Place: TypeAlias = Mapping[str, Mapping[str, int]]

_HEAD = 2  # the format's version, then the epoch's metadata, then one line a source


def epoch_of(flow: str, checkpoint: Path, number: int) -> Epoch:
    ends, starts = offsets(checkpoint, number), offsets(checkpoint, number - 1)
    sources = []
    for place, end in enumerate(ends):
        start = starts[place] if place < len(starts) else {}
        sources.append(
            {
                topic: {part: [start.get(topic, {}).get(part), last] for part, last in parts.items()}
                for topic, parts in end.items()
            }
        )
    return Epoch(flow, number, ranges_of(sources))


def last_committed(flow: str, checkpoint: Path) -> Epoch | None:
    done = epochs(checkpoint / "commits")
    return epoch_of(flow, checkpoint, done[-1]) if done else None


def offsets(checkpoint: Path, number: int) -> list[Mapping[str, Mapping[str, int]]]:
    """For each source the offsets, by topic and partition, up to which an epoch reads; nothing of one not read yet."""
    path = checkpoint / "offsets" / str(number)
    return offsets_in(path) if path.exists() else []


def offsets_in(path: Path) -> list[Mapping[str, Mapping[str, int]]]:
    return [_offsets(line) for line in path.read_text(encoding="utf-8").splitlines()[_HEAD:]]


def positions(checkpoint: Path, number: int) -> dict[str, int]:
    """Of an epoch that ends where transactions do (`Cut.java`): for each database up to which LSN it has them all."""
    return {name[1:]: each["lsn"] for name, each in _positions(checkpoint, number).items() if name != NOW}


def now_ms(checkpoint: Path, number: int) -> int | None:
    """The time that an epoch is true of, if it has one (`Ticks.java`)."""
    return _positions(checkpoint, number).get(NOW, {}).get("ms")


def _positions(checkpoint: Path, number: int) -> dict[str, Mapping[str, int]]:
    path = checkpoint / "offsets" / str(number)
    found: dict[str, Mapping[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[_HEAD:] if path.exists() else ():
        with contextlib.suppress(ValueError):
            read = json.loads(line)
            found |= {name: each for name, each in read.items() if name.startswith(POSITION)}
    return found


def last_begun(checkpoint: Path) -> Place:
    """Up to where the last epoch reads; nothing of a checkpoint that has none."""
    begun = epochs(checkpoint / "offsets")
    return _everything(checkpoint, begun[-1]) if begun else {}


def has_come(checkpoint: Path, wanted: Place) -> bool:
    """Whether the last committed epoch of a checkpoint is as far as one of another, in all that both read."""
    done = epochs(checkpoint / "commits")
    found = _everything(checkpoint, done[-1]) if done else {}
    read = {name for name in wanted if name in found} if found else wanted.keys()
    return all(found.get(name, {}).get(part, -1) >= end for name in read for part, end in wanted[name].items())


def _everything(checkpoint: Path, number: int) -> Place:
    together: dict[str, Mapping[str, int]] = dict(_positions(checkpoint, number))
    for each in offsets(checkpoint, number):
        together |= each
    return together


def began_ms(checkpoint: Path, number: int) -> int:
    """When an epoch was planned."""
    lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    return int(json.loads(lines[1])["batchTimestampMs"])


def _offsets(line: str) -> Mapping[str, Mapping[str, int]]:
    try:
        found = json.loads(line)
    except ValueError:  # "-": nothing was read of this source yet
        return {}
    if not isinstance(found, dict):
        return {}
    return {topic: parts for topic, parts in found.items() if not topic.startswith(POSITION)}
