"""Each event with aggregates over its key's events in the time before it, epoch by epoch.

- Of an event at time t, an aggregate takes the events of its key after t - over, up to t, that have come so far:
  itself, and all others at time t.

      over 10 minutes of an event at 12:00      11:50 (-----------------] 12:00
                                                not this one            this one too

- All events of an epoch are there before one of them is answered. So the order within an epoch does not matter; and
  which events have come so far depends on the epochs.
- An event is late when it is before the watermark, and is refused when that is more than the grace ahead of it. One
  that is taken gets the result of its own time, however late it comes.
- Events behind it that were told before, less than `over` after it or at its time, may have other results now. With
  `correct` those that do are told again.
- Results of windows that have closed are not late, however far the watermark is ahead of their end: all of them come in
  the epoch in which it gets there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

RADIUS_KM = 6371.0088
US_AN_HOUR = 3_600_000_000


class Event(NamedTuple):
    key: Any
    time: int
    value: Any = None


class Result(NamedTuple):
    event: Event
    values: tuple[Any, ...]
    corrected: bool = False


class Refused(NamedTuple):
    event: Event
    late: int


@dataclass
class Epoch:
    """What came of one: results (in no order), refused events, and how many were late and taken."""

    results: list[Result] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    late_allowed: int = 0


# What an aggregate makes of the events of an interval, in the order of time, and of the one that asks.
Question = Callable[[list[Event], Event], Any]


@dataclass
class Lookback:
    """`asked` are the aggregates, each with its `over`."""

    asked: Sequence[tuple[int, Question]]
    grace: int
    correct: bool
    closed: bool = False
    held: dict[Any, list[Event]] = field(default_factory=dict)

    def epoch(self, events: Iterable[Event], watermark: int) -> Epoch:
        out = Epoch()
        taken: list[Event] = []
        for event in events:
            late = event.time < watermark and not self.closed
            if late and event.time + self.grace < watermark:
                out.refused.append(Refused(event, watermark - event.time))
                continue
            out.late_allowed += late
            taken.append(event)
        keys = {event.key for event in taken}
        before = [(event, self._values(event)) for key in keys for event in self.held.get(key, ())]
        for event in taken:
            self.held.setdefault(event.key, []).append(event)
        for key in keys:
            self.held[key].sort(key=lambda event: event.time)
        out.results += [Result(event, self._values(event)) for event in taken]
        if self.correct:
            again = [(event, told, self._values(event)) for event, told in before]
            out.results += [Result(event, values, True) for event, told, values in again if values != told]
        return out

    def _values(self, event: Event) -> tuple[Any, ...]:
        def interval(over: int) -> list[Event]:
            return [each for each in self.held[event.key] if event.time - over < each.time <= event.time]

        return tuple(question(interval(over), event) for over, question in self.asked)


class At(NamedTuple):
    """Where a key was, in degrees."""

    time: int
    latitude: float
    longitude: float


def distance(way: Iterable[At]) -> float | None:
    """Kilometres from each place to the next; at the same time by latitude and longitude."""
    places = sorted(way)
    legs = [kilometres(one, two) for one, two in pairwise(places)]
    return math.fsum(legs) if places else None


def speed(way: Iterable[At], here: At | None) -> float | None:
    """Kilometres an hour, from the latest place that is earlier."""
    earlier = [at for at in way if here and at.time < here.time]
    if here is None or not earlier:
        return None
    last = max(earlier)
    return kilometres(last, here) / ((here.time - last.time) / US_AN_HOUR)


def kilometres(one: At, two: At) -> float:
    """Along the great circle, by the haversine formula."""
    north = math.radians(two.latitude - one.latitude) / 2
    east = math.radians(two.longitude - one.longitude) / 2
    chord = (
        math.sin(north) ** 2
        + math.cos(math.radians(one.latitude)) * math.cos(math.radians(two.latitude)) * math.sin(east) ** 2
    )
    return 2 * RADIUS_KM * math.asin(min(1, math.sqrt(chord)))
