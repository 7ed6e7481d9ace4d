"""A source's clock: how far event time has come, epoch by epoch.

- The watermark is the least over the partitions of the greatest time each has shown, less the lag. It never goes back.
- A partition is waited for until it was read to its end and has been silent for the idle time; also one that has shown
  nothing yet, which is first known when an epoch lists it. With `once`, such a one is not waited for when it was read
  to its end.
- When no partition is waited for, everything was heard: the greatest time of all counts.
- An adaptive lag is the quantile of the delays seen lately and a margin, within bounds. Delays are counted in buckets
  each of which reaches a tenth further; lately is a hundred thousand events, beyond which all counts are halved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

LATELY = 100_000
STEP = 1.1


class Event(NamedTuple):
    """A record of a source as its clock sees it; `time_us` is None for one that is no event."""

    partition: int
    time_us: int | None
    arrival_us: int = 0


@dataclass
class Partition:
    greatest_us: int | None = None
    heard_ms: int = 0


@dataclass
class Clock:
    lag_ms: int
    idle_ms: int
    quantile: float | None = None
    least_ms: int = 0
    most_ms: int = 0
    margin_ms: int = 0
    once: bool = False

    watermark_ms: int | None = None
    partitions: dict[int, Partition] = field(default_factory=dict)
    delays: Counter[int] = field(default_factory=Counter)

    def epoch(self, events: Iterable[Event], now_ms: int, ended: Mapping[int, bool] | None = None) -> int | None:
        """The watermark after an epoch; `ended` lists the partitions, and whether each was read to its end."""
        ended = ended or {}
        for number in ended:
            partition = self.partitions.setdefault(number, Partition())
            if not partition.heard_ms and not self.once:
                partition.heard_ms = now_ms
        for event in events:
            partition = self.partitions.setdefault(event.partition, Partition())
            partition.heard_ms = now_ms
            if event.time_us is not None:
                partition.greatest_us = max(event.time_us, partition.greatest_us or event.time_us)
                if self.quantile is not None:
                    self.delays[bucket(event.arrival_us - event.time_us)] += 1
        while self.delays.total() > LATELY:
            self.delays = Counter({place: count // 2 for place, count in self.delays.items() if count > 1})
        return self.tick(now_ms, ended)

    def tick(self, now_ms: int, ended: Mapping[int, bool]) -> int | None:
        awaited = [
            partition
            for number, partition in self.partitions.items()
            if not (ended.get(number, True) and now_ms - partition.heard_ms >= self.idle_ms)
        ]
        known = [each.greatest_us for each in self.partitions.values() if each.greatest_us is not None]
        if not known or any(each.greatest_us is None for each in awaited):
            return self.watermark_ms
        reached = min((each.greatest_us for each in awaited if each.greatest_us is not None), default=max(known))
        candidate = reached // 1_000 - self.lag()
        if candidate > max(self.watermark_ms or 0, 0):
            self.watermark_ms = candidate
        return self.watermark_ms

    def lag(self) -> int:
        if self.quantile is None:
            return self.lag_ms
        wanted, below = math.ceil(self.quantile * self.delays.total()), 0
        for place in sorted(self.delays):
            below += self.delays[place]
            if below >= wanted:
                return min(self.most_ms, max(self.least_ms, reach_ms(place) + self.margin_ms))
        return self.most_ms


def bucket(delay_us: int) -> int:
    return 0 if delay_us <= 1_000 else math.ceil(math.log(delay_us / 1_000) / math.log(STEP))


def reach_ms(place: int) -> int:
    return 0 if place == 0 else math.ceil(STEP**place)
