"""The ten pages that are looked at most: of the minute that runs, as they change; and of each minute that is over as
counted, and beside it as a sketch has them; and how many counts were corrected by views that came late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from millrace.console.board import Board

NOW, EXACT, SKETCH, COUNTS = "busiest_now", "busiest", "busiest_about", "per_minute"
SINCE = timedelta(hours=1)
NOW_SINCE = timedelta(minutes=3)
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
    all_views: int | None = None


class PageviewBoard(Board):
    """`corrected` are the counts that were told again, of whatever minute, since an hour before somebody looked."""

    topics: ClassVar[Mapping[str, timedelta | None]] = {
        NOW: NOW_SINCE,
        **dict.fromkeys((EXACT, SKETCH, COUNTS), SINCE),
    }

    def __init__(self) -> None:
        super().__init__()
        self.corrected = 0
        self._minutes: dict[str, _Minute] = {}
        # Rank and views, by minute and page: a page's changes are in one partition and so in their order.
        self._now: dict[str, dict[str, tuple[int, int]]] = {}

    def begin(self, topic: str) -> None:
        if topic == NOW:
            self._now.clear()
        if topic == COUNTS:
            self.corrected = 0

    def take(self, topic: str, row: Mapping[str, Any]) -> None:
        if topic == COUNTS:
            self.corrected += row["replaces"] is not None
            return
        end, url = str(row["window_end"]), str(row["url"])
        if topic == NOW:
            self._change(end, url, (int(row["rank"]), int(row["views"])), came=int(row["__diff"]) > 0)
            return
        one, two = (row["rank"], row["views"]) if topic == EXACT else (row["at_least"], row["at_most"])
        told = (int(one), int(two))
        minute = self._minutes.setdefault(end, _Minute())
        (minute.exact if topic == EXACT else minute.sketch)[url] = told
        if topic == SKETCH and row.get("all_views") is not None:
            minute.all_views = int(row["all_views"])
        while len(self._minutes) > MOST_MINUTES:
            del self._minutes[min(self._minutes)]

    def _change(self, end: str, url: str, told: tuple[int, int], *, came: bool) -> None:
        """Of a repeat after a crash, what it takes away may be gone, or be there anew with other views."""
        minute = self._now.setdefault(end, {})
        if came:
            minute[url] = told
        elif minute.get(url) == told:
            del minute[url]
        while len(self._now) > 2:  # when a minute begins, changes of the one before may still come
            del self._now[min(self._now)]

    def now(self) -> tuple[str, list[Line]]:
        """The end of the newest minute of which anything was told, and its pages by rank; "" before there is one."""
        end = max((end for end, pages in self._now.items() if pages), default="")
        found = [Line(url, rank, views, None, None) for url, (rank, views) in self._now.get(end, {}).items()]
        return end, sorted(found, key=lambda each: (each.rank or 0, each.url))

    def bound(self, end: str) -> tuple[int, int | None]:
        """By how many views a count of the sketch may be too small, and of how many."""
        minute = self._minutes.get(end, _Minute())
        return max((most - least for least, most in minute.sketch.values()), default=0), minute.all_views

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
