"""Event time against arrival, of the newest records of a topic: how late events come, and what the chosen lag loses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millrace import durations
from millrace.flow.nodes import Topic
from millrace.flow.time import Fixed
from millrace.log import Log, Record
from millrace.log.delays import LAGS_MS, Cost, Delays, delays_of, event_time_us
from millrace.log.record import timestamp_ms

MOST_RECORDS = 5_000
MOST_POINTS = 1_000


@dataclass(frozen=True)
class Arrivals:
    """`points` are (arrival, event time) in ms since 1970. `chosen_ms` is the topic's lag where it is a fixed one, and
    `lost` about how many of the events it would lose, by the longest lag of the table that is not above it."""

    topic: str
    column: str
    points: tuple[tuple[float, float], ...]
    delays: Delays
    chosen: str
    chosen_ms: int | None
    lost: Cost | None


def arrivals(log: Log, topic: Topic, most: int = MOST_RECORDS) -> Arrivals:
    """Raises `TimeAbsent` where no record has a time, and what the log says otherwise. `topic` has a time column."""
    assert topic.time is not None
    points: list[tuple[float, float]] = []
    step = max(most // MOST_POINTS, 1)

    def noted() -> Iterator[Record]:
        for number, record in enumerate(log.newest(topic.name, most)):
            if number % step == 0 and record.time is not None:
                time_us = event_time_us(record, topic.time or "")
                if time_us is not None:
                    points.append((timestamp_ms(record.time), time_us / 1_000))
            yield record

    ahead_ms = durations.LIMIT_MS if topic.ahead_ms is None else topic.ahead_ms
    delays = delays_of(topic.name, topic.time, noted(), ahead_ms=ahead_ms)
    chosen_ms = topic.lateness.lag_ms if isinstance(topic.lateness, Fixed) else None
    chosen = str(topic.lateness) if topic.lateness else "no lateness"
    return Arrivals(topic.name, topic.time, tuple(points), delays, chosen, chosen_ms, _lost(delays, chosen_ms))


def _lost(delays: Delays, chosen_ms: int | None) -> Cost | None:
    """The table ends with the first lag that loses nothing: every longer one loses nothing either."""
    if chosen_ms is None or not delays.costs:
        return None
    below = [cost for cost in delays.costs if cost.lag_ms <= chosen_ms]
    return below[-1] if below else Cost(LAGS_MS[0], delays.events, 1.0)
