"""What a checkpoint tells without Spark: a flow's epochs on a time line and how far it has read, also of stopped flows.

Spark writes a file when an epoch is planned (`offsets/N`: a line of its own, a line of JSON that says when, then a line
of JSON a source) and one when it is committed (`commits/N`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from millrace.engine.definition import CHECKPOINT

MOST_EPOCHS = 100


@dataclass(frozen=True)
class Epoch:
    """Seconds since 1970. `ended` is None while it has not been committed: it is being done, or was interrupted."""

    number: int
    began: float
    ended: float | None


def epochs(folder: Path, most: int = MOST_EPOCHS) -> list[Epoch]:
    """The newest epochs of the flow with this folder, the oldest first."""
    offsets, commits = folder / CHECKPOINT / "offsets", folder / CHECKPOINT / "commits"
    return [found for number in _numbers(offsets)[-most:] if (found := _epoch(offsets, commits, number))]


def reached(folder: Path) -> dict[str, dict[int, int]]:
    """The next offset that the flow will read, by the outside name of its topics and partition: as of its last
    committed epoch. Empty before that, and where it cannot be told."""
    numbers = _numbers(folder / CHECKPOINT / "commits")
    if not numbers:
        return {}
    found: dict[str, dict[int, int]] = {}
    try:
        lines = (folder / CHECKPOINT / "offsets" / str(numbers[-1])).read_text(encoding="utf-8").splitlines()
        for line in lines[2:]:
            for topic, places in (json.loads(line) if line.startswith("{") else {}).items():
                if isinstance(places, dict):
                    found[topic] = {int(number): int(offset) for number, offset in places.items()}
    except (OSError, ValueError, TypeError):
        return {}
    return found


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    except OSError:
        return []


def _epoch(offsets: Path, commits: Path, number: int) -> Epoch | None:
    try:
        with (offsets / str(number)).open(encoding="utf-8") as file:
            file.readline()
            began = json.loads(file.readline())["batchTimestampMs"] / 1_000
    except (OSError, ValueError, KeyError, TypeError):  # Spark took it away, or it is being written
        return None
    try:
        ended = (commits / str(number)).stat().st_mtime
    except OSError:
        return Epoch(number, began, None)
    return Epoch(number, began, max(ended, began))
