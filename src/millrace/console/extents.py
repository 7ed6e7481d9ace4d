"""The topics of an app as the broker sees them now: how many records, how fast they come, how fresh the newest is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from millrace.config import Settings
from millrace.errors import MillraceError
from millrace.flow import Graph, Topic
from millrace.log import Extent, Log

EVERY_S = 2.0
# Over how long a topic's rate is measured.
RATE_S = 10.0


@dataclass(frozen=True)
class TopicLook:
    """`rate` is None until it was looked at twice."""

    name: str
    partitions: Mapping[int, Extent]
    rate: float | None

    @property
    def offsets(self) -> int:
        return sum(extent.last - extent.first for extent in self.partitions.values())

    @property
    def newest(self) -> datetime | None:
        return max((extent.newest for extent in self.partitions.values() if extent.newest), default=None)


@dataclass(frozen=True)
class Extents:
    """The topics that are there, by name."""

    topics: Mapping[str, TopicLook]

    def behind(self, reached: Mapping[str, Mapping[int, int]]) -> int | None:
        """Offsets behind these places, by topic and partition; None where no topic of them is known."""
        known = [name for name in reached if name in self.topics]
        if not known:
            return None
        return sum(
            max(extent.last - reached[name].get(number, extent.first), 0)
            for name in known
            for number, extent in self.topics[name].partitions.items()
        )


class Broker:
    """Looks at the topics that a graph names and at those of captured tables, which `more` says."""

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self._settings = settings
        self._names = {topic.name for topic in graph.nodes if isinstance(topic, Topic)}
        self._seen: dict[str, deque[tuple[float, int]]] = {}
        self._log: Log | None = None
        self.more: frozenset[str] = frozenset()

    def look(self) -> Extents:
        try:
            log = self._log = self._log or Log(self._settings)
            found = log.topics.extents(self._names | self.more)
        except MillraceError:
            self._log = None  # a server that comes back may have another address
            raise
        now = time.monotonic()
        looks = {name: TopicLook(name, extents, self._rate(name, extents, now)) for name, extents in found.items()}
        return Extents(looks)

    def _rate(self, name: str, extents: Mapping[int, Extent], now: float) -> float | None:
        end = sum(extent.last for extent in extents.values())
        seen = self._seen.setdefault(name, deque())
        if seen and seen[-1][1] > end:  # it was deleted and made anew
            seen.clear()
        seen.append((now, end))
        while len(seen) > 2 and now - seen[0][0] > RATE_S:
            seen.popleft()
        took_s = now - seen[0][0]
        return (end - seen[0][1]) / took_s if took_s > 0 else None
