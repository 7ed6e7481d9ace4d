"""The first row of each key, epoch by epoch.

- A row that comes is given unless one with the same key was given whose time is less than the ttl from its own, before
  or after it. The rows of an epoch are taken by their times, so that their order does not matter.
- A row before the watermark is late. It counts as long as its time and the grace are not before the watermark;
  otherwise it is refused, because what it might repeat may be forgotten.
- By the time of day it is the same with the time of the epoch for that of the row: nothing is late, and of an epoch's
  rows with the same key any may be the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Row(NamedTuple):
    key: Any
    time: int
    value: Any = None


@dataclass
class Epoch:
    given: list[Row] = field(default_factory=list)
    refused: list[tuple[Row, int]] = field(default_factory=list)
    allowed: int = 0


@dataclass
class Dedup:
    ttl: int
    grace: int
    given: dict[Any, list[int]] = field(default_factory=dict)

    def epoch(self, rows: Iterable[Row], watermark: int) -> Epoch:
        out = Epoch()
        for row in sorted(rows, key=lambda row: row.time):
            if row.time + self.grace < watermark:
                out.refused.append((row, watermark - row.time))
                continue
            out.allowed += row.time < watermark
            before = self.given.setdefault(row.key, [])
            if all(abs(time - row.time) >= self.ttl for time in before):
                before.append(row.time)
                out.given.append(row)
        return out


@dataclass
class ByArrival:
    ttl: int
    given: dict[Any, int] = field(default_factory=dict)

    def epoch(self, keys: Iterable[Any], now: int) -> set[Any]:
        """Those of which a row is given."""
        found = {key for key in keys if key not in self.given or abs(now - self.given[key]) >= self.ttl}
        self.given.update(dict.fromkeys(found, now))
        return found
