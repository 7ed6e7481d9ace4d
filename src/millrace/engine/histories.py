"""How far back the topics of a flow keep the past of their tables, found out at its first start and remembered.

A topic that is compacted has every change of its last so many days, and for each key the one before these: so its
table is known from then on. One that was captured begins with a snapshot, and what was before that is not in it. One
whose oldest records were deleted may have lost the row of any key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice

from pyspark.sql import SparkSession

from millrace.engine.definition import AnySource
from millrace.engine.sources import Source
from millrace.flow.histories import Kept, kept
from millrace.kernel.times import now_ms
from millrace.log import Log

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Histories:
    """`known` is what an earlier start found."""

    def __init__(
        self, spark: SparkSession, log: Log, sources: tuple[AnySource, ...], known: Mapping[str, Kept]
    ) -> None:
        self._spark, self._log = spark, log
        self._sources = {source.name: source for source in sources}
        self._known, self._found = known, dict[str, Kept]()

    @contextmanager
    def told(self) -> Iterator[None]:
        """While a flow is planned, its operators may ask."""
        token = kept.set(self._of)
        try:
            yield
        finally:
            kept.reset(token)

    def found(self) -> tuple[tuple[str, Kept], ...]:
        return tuple(sorted(self._found.items()))

    def _of(self, topic: str) -> Kept:
        if topic not in self._found:
            self._found[topic] = self._known.get(topic) or self._looked(self._sources[topic])
        return self._found[topic]

    def _looked(self, source: AnySource) -> Kept:
        config, offsets = self._log.topics.config(source.name), self._log.topics.offsets(source.name)
        compacted = "compact" in config.get("cleanup.policy", "delete")
        lost = any(first > 0 for first, _ in offsets.values()) and not compacted
        bounds = [self._now_us(source) - int(config.get("min.compaction.lag.ms", 0)) * 1_000] if compacted else []
        if isinstance(source, Source):
            return Kept(max(bounds, default=None), whole=not lost and source.bounds.start is None)
        return Kept(max([*bounds, self._begun_us(source, offsets)]), whole=not lost)

    def _begun_us(self, source: AnySource, offsets: Mapping[int, tuple[int, int]]) -> int:
        """When the first change of a captured table was that the topic has; if it has none, now."""
        firsts = [
            _committed_us(record.value, record.time)
            for number, (first, end) in offsets.items()
            if first < end
            for record in islice(self._log.read(source.name, partition=number, limit=1), 1)
        ]
        return min(firsts, default=self._now_us(source))

    def _now_us(self, source: AnySource) -> int:
        return now_ms(self._spark, source.data.time) * 1_000


def _committed_us(value: bytes | None, written: datetime | None) -> int:
    """As the kernel reads it from Debezium's envelope; of a record that has none, when it was written."""
    try:
        envelope = json.loads(value or b"{}")
        source = (envelope.get("payload") or envelope).get("source") or {}
    except (ValueError, AttributeError):
        source = {}
    if isinstance(source.get("ts_us"), int):
        return int(source["ts_us"])
    if isinstance(source.get("ts_ms"), int):
        return int(source["ts_ms"]) * 1_000
    return 0 if written is None else (written - _EPOCH) // timedelta(microseconds=1)
