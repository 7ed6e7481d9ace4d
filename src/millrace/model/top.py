"""The first rows of each key in an order, epoch by epoch.

- The rows of a key are those that came; where they are known by something (`of`), the last of each: by time, and of
  the same time the one that is first in order; without times, those of a later epoch.
- Updates: what the epoch's rows changed in the first n, rank by rank, what went before what came.
- A row with a ttl goes when the watermark reaches its time and the ttl, rounded up to a sixteenth of the ttl; what that
  changes is told after what the epoch's rows changed. A row that would be gone when it comes is refused.
- A window's rows go, and nothing more is told of them, when the watermark reaches its end and the grace. A row that
  comes after is refused, and one that comes after the end is late. `final`: the first n are told once when the end is
  reached, and again, whole, after each epoch that changed them.
- `closed`: the rows come when their window has closed, and none of them is late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PARTS = 16
MILLISECOND = 1_000


class Row(NamedTuple):
    """`place` is what it is ordered by, with `of` behind it; `end` that of its window."""

    key: Any
    time: int
    place: Any
    of: Any = None
    end: int = 0
    value: Any = None


class Told(NamedTuple):
    row: Row
    rank: int
    diff: int = 1


@dataclass
class Epoch:
    told: list[Told] = field(default_factory=list)
    refused: list[tuple[Row, int]] = field(default_factory=list)
    allowed: int = 0


@dataclass
class Top:
    n: int
    updates: bool
    replacing: bool = False
    timed: bool = True
    windowed: bool = False
    closed: bool = False
    grace: int = 0
    ttl: int = 0
    held: dict[Any, list[Row]] = field(default_factory=dict)

    def epoch(self, rows: Iterable[Row], watermark: int) -> Epoch:
        out = Epoch()
        taken: dict[Any, list[Row]] = {}
        for row in rows:
            over = self._over(row)
            if over is not None and not self.closed and over <= watermark:
                if over + self.grace <= watermark:
                    out.refused.append((row, watermark - over))
                    continue
                out.allowed += 1
            taken.setdefault(row.key, []).append(row)
        changed = {key: self._take(key, new, out) for key, new in taken.items()}
        self._end(watermark, out, {key for key, is_changed in changed.items() if is_changed})
        return out

    def first(self, key: Any) -> list[Row]:
        return sorted(self.held.get(key, []), key=lambda row: row.place)[: self.n]

    def _take(self, key: Any, new: list[Row], out: Epoch) -> bool:
        """Whether the first are others now."""
        before, held = self.first(key), self.held.setdefault(key, [])
        best_last = sorted(new, key=lambda row: row.place, reverse=True)
        for row in sorted(best_last, key=lambda row: row.time if self.timed else 0):
            old = next((each for each in held if self.replacing and each.of == row.of), None)
            if old is not None:
                if self.timed and (old.time > row.time or (old.time == row.time and old.place < row.place)):
                    continue
                held.remove(old)
            held.append(row)
        return self._changes(before, key, out)

    def _changes(self, before: list[Row], key: Any, out: Epoch) -> bool:
        after = self.first(key)
        if self.updates:
            pairs = [(rank, row) for rank, row in enumerate(before, 1) if after[rank - 1 : rank] != [row]]
            out.told += [Told(row, rank, -1) for rank, row in pairs]
            pairs = [(rank, row) for rank, row in enumerate(after, 1) if before[rank - 1 : rank] != [row]]
            out.told += [Told(row, rank) for rank, row in pairs]
        return before != after

    def _end(self, watermark: int, out: Epoch, changed: set[Any]) -> None:
        for key, rows in list(self.held.items()):
            if self.windowed:
                end = rows[0].end
                if not self.updates and (key in changed or key in self._waiting) and end <= watermark:
                    out.told += [Told(row, rank) for rank, row in enumerate(self.first(key), 1)]
                    self._waiting.discard(key)
                elif key in changed:
                    self._waiting.add(key)
                if end + self.grace <= watermark:
                    del self.held[key]
            elif self.ttl:
                before = self.first(key)
                self.held[key] = [row for row in rows if (self._over(row) or 0) > watermark]
                self._changes(before, key, out)

    _waiting: set[Any] = field(default_factory=set)

    def _over(self, row: Row) -> int | None:
        """When the row no longer counts."""
        if self.windowed:
            return row.end
        if not self.ttl:
            return None
        part = max(1, self.ttl // MILLISECOND // PARTS) * MILLISECOND
        return -((-row.time - self.ttl) // part) * part
