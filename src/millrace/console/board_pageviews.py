"""The ten pages of each minute that were looked at most: as counted, and beside it as a sketch has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from millrace.console.board import Board

EXACT, SKETCH = "busiest", "busiest_about"
SINCE = timedelta(hours=1)
MOST_MINUTES = 60


@dataclass(frozen=True)
class Line:
    """A page of a minute. `views` is as counted, None if it was not among the ten; `least` and `most` are what the
    sketch says, None if it did not name it."""

    url: str
    rank: int | None
    views: int | None
    least: int | None
    most: int | None

    @property
    def right(self) -> bool | None:
        """Whether the sketch says a range in which the count is; None where one of them is not known."""
        if self.views is None or self.least is None or self.most is None:
            return None
        return self.least <= self.views <= self.most


@dataclass
class _Minute:
    exact: dict[str, tuple[int, int]] = field(default_factory=dict)
    sketch: dict[str, tuple[int, int]] = field(default_factory=dict)


class PageviewBoard(Board):
    topics: ClassVar[Mapping[str, timedelta | None]] = dict.fromkeys((EXACT, SKETCH), SINCE)

    def __init__(self) -> None:
        super().__init__()
        self._minutes: dict[str, _Minute] = {}

    def take(self, topic: str, row: Mapping[str, Any]) -> None:
        end = str(row.get("window_end", ""))
        minute = self._minutes.setdefault(end, _Minute())
        url = str(row.get("url", ""))
        if topic == EXACT:
            minute.exact[url] = (int(row["rank"]), int(row["views"]))
        else:
            minute.sketch[url] = (int(row["at_least"]), int(row["at_most"]))
        while len(self._minutes) > MOST_MINUTES:
            del self._minutes[min(self._minutes)]

    def minutes(self) -> list[str]:
        """When they ended, the newest first; one of which only half is told is not among them yet."""
        return sorted((end for end, each in self._minutes.items() if each.exact and each.sketch), reverse=True)

    def lines(self, end: str) -> list[Line]:
        """By rank, and then those that only the sketch has."""
        minute = self._minutes.get(end, _Minute())
        found = [
            Line(url, *minute.exact.get(url, (None, None)), *minute.sketch.get(url, (None, None)))
            for url in {**minute.exact, **minute.sketch}
        ]
        return sorted(found, key=lambda each: (each.rank is None, each.rank or -(each.least or 0), each.url))
