"""Two streams joined within an interval of event time, epoch by epoch.

- A pair is a left and a right row with equal keys, the right one's time within the interval after the left one's.
- A row that comes when the watermark is past its time is late: it is counted and joins nothing. Spark's own join, which
  also gives rows without a pair, asks whether the watermark of the epoch before has reached its time.
- A row without a pair comes out alone, once, after the watermark has passed the time at which a pair could still have
  come: for a left row its time and the interval's end, for a right one its time less the interval's beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Row(NamedTuple):
    key: Any
    time: int
    name: str


@dataclass
class IntervalJoin:
    first: int
    last: int
    left: list[Row] = field(default_factory=list)
    right: list[Row] = field(default_factory=list)
    late: int = 0

    def epoch(self, left: Iterable[Row], right: Iterable[Row], late_before: int) -> None:
        for rows, kept in ((left, self.left), (right, self.right)):
            for row in rows:
                if row.time < late_before:
                    self.late += 1
                else:
                    kept.append(row)

    def pairs(self) -> list[tuple[Row, Row]]:
        return [
            (one, two)
            for one in self.left
            for two in self.right
            if one.key is not None and one.key == two.key and self.first <= two.time - one.time <= self.last
        ]

    def alone(self, watermark: int) -> tuple[list[Row], list[Row]]:
        """Rows without a pair that must have come out by now: left ones, right ones."""
        paired = {row for pair in self.pairs() for row in pair}
        left = [row for row in self.left if row not in paired and row.time + self.last < watermark]
        right = [row for row in self.right if row not in paired and row.time - self.first < watermark]
        return left, right
