"""Windows of event time, epoch by epoch, by key.

- A window has closed when the watermark has reached its end. A row is late for it from then on.
- A late row still counts as long as the window's end and the grace are ahead of the watermark; then it is refused.
- A session is made of rows each less than the gap from the next; it ends the gap after its last row. A row belongs to
  the session that it makes together with those that it reaches, and is late if that has closed. Rows of an epoch are
  taken latest first, so that their order does not matter.
- "final": a window tells its result when it has closed, and again after each epoch in which late rows changed it.
  "updates": after each epoch that changed it.
- A result names those that were told before and that it takes the place of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Row(NamedTuple):
    key: Any
    time: int
    value: Any = None


class Result(NamedTuple):
    key: Any
    start: int
    end: int
    values: tuple[Any, ...]
    replaces: tuple[tuple[int, int], ...] = ()


class Refused(NamedTuple):
    row: Row
    start: int
    end: int
    late: int


@dataclass
class Held:
    start: int
    end: int
    rows: list[Row] = field(default_factory=list)
    changed: bool = True
    told: tuple[tuple[int, int], ...] = ()


@dataclass
class Epoch:
    """What came of one: results; rows with a window that refused them; how many rows were late, by what was done."""

    results: list[Result] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    late_refused: int = 0
    late_allowed: int = 0


@dataclass
class Windows:
    """`edges` gives the windows of a time, those that end first in front; None makes sessions with a gap."""

    edges: Callable[[int], list[tuple[int, int]]] | None
    gap: int
    grace: int
    final: bool
    aggregate: Callable[[list[Row]], tuple[Any, ...]]
    held: dict[Any, list[Held]] = field(default_factory=dict)

    def epoch(self, rows: Iterable[Row], watermark: int) -> Epoch:
        out = Epoch()
        for row in sorted(rows, key=lambda row: row.time, reverse=True):
            edges = self.edges(row.time) if self.edges else [(row.time, row.time + self.gap)]
            for place, (start, end) in enumerate(edges):
                self._apply(row, start, end, watermark, place == 0, out)
        for key, windows in list(self.held.items()):
            for window in windows:
                if window.changed and (not self.final or window.end <= watermark):
                    values = self.aggregate(window.rows)
                    out.results.append(Result(key, window.start, window.end, values, tuple(sorted(window.told))))
                    window.changed, window.told = False, ((window.start, window.end),)
            self.held[key] = [window for window in windows if window.end + self.grace > watermark]
        return out

    def _apply(self, row: Row, start: int, end: int, watermark: int, first: bool, out: Epoch) -> None:
        windows = self.held.setdefault(row.key, [])
        if self.edges:
            reached = [window for window in windows if (window.start, window.end) == (start, end)]
        else:
            reached = [window for window in windows if window.start < end and start < window.end]
        last = max([end, *(window.end for window in reached)])
        if last + self.grace <= watermark:
            out.refused.append(Refused(row, start, end, watermark - end))
            out.late_refused += first
            return
        out.late_allowed += first and last <= watermark
        together = Held(min([start, *(window.start for window in reached)]), last)
        for window in reached:
            together.rows += window.rows
            together.told += window.told
            windows.remove(window)
        together.rows.append(row)
        windows.append(together)
