"""Records that do not fit their topic's schema are never lost: they go to the topic's dead letters as they are.

A streaming query cannot write them beside its result (Spark refuses a union after a stateful operator, and the same
source twice in one query). So a flow only counts them; when an epoch had some, its offsets are read once more as a
batch and what does not fit is written. A file, one for each topic of an app, says up to which offsets that has been
done: what a crash left between an epoch's commit and its dead letters is made up for at the next start. At least once,
like the flow itself; several flows that read a topic write its dead letters once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.disk import write_whole
from millrace.engine.output import write
from millrace.engine.progress import Span
from millrace.engine.sources import Source
from millrace.log import Log, deadletters

_EARLIEST = -1

# Spark's and Kafka's own patience adds up to many minutes. What fails is tried again, so none of it is needed here.
_READING = {
    "fetchOffset.numRetries": "1",
    "kafkaConsumer.pollTimeoutMs": "15000",
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "15000",
}
_WRITING = {
    "kafka.max.block.ms": "10000",
    "kafka.request.timeout.ms": "10000",
    "kafka.delivery.timeout.ms": "15000",
}

_logger = logging.getLogger("millrace.engine")
_LARGEST_BYTES = "1000000000"
_HEADERS = "array<struct<key:string,value:binary>>"


def joined(first: Span, then: Span) -> Span:
    """Two spans of a topic as one. Where they do not meet, what lies between is as doubtful as a misfit."""
    end = {**first.end, **{number: max(last, first.end.get(number, 0)) for number, last in then.end.items()}}
    return Span(then.outside, first.start, end, first.dead + then.dead + (then.start != first.end))


class DeadLetters:
    """The dead letters of one topic, as one app finds them."""

    def __init__(self, source: Source, folder: Path, log: Log) -> None:
        self.source = source
        self.written = 0
        # By the topic's identity: one that was deleted and made again begins from its start. Kafka's has slashes.
        identity = log.topics.identity(source.topic.name)
        self._path = folder / f"{source.topic.name}-{identity.replace('/', '_')}.json"
        self._nested = folder / f"{source.topic.name}-{identity}.json"  # as it once was
        self._log = log
        self._done = self._load()

    def keep(self, spark: SparkSession, span: Span) -> int:
        """Sees to it that what an epoch read and did not fit is in the dead letters; says how many went there."""
        start = {number: self._done.get(number, _EARLIEST) for number in span.end}
        open_end = any(start[number] < end for number, end in span.end.items())
        count = self._write(spark, start, span.end) if open_end and self._doubtful(span) else 0
        if open_end:
            self._done |= {number: max(end, self._done.get(number, 0)) for number, end in span.end.items()}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(self._done))
        self.written += count
        return count

    def _doubtful(self, span: Span) -> bool:
        """Whether there may be misfits: the epoch counted some, or records before it were never looked at."""
        begin = span.start or {}
        return span.dead > 0 or any(self._done.get(number, 0) < offset for number, offset in begin.items())

    def _write(self, spark: SparkSession, start: Mapping[str, int], end: Mapping[str, int]) -> int:
        held = self._log.topics.offsets(self.source.topic.name)
        ranges = {number: self._available(number, begin, end[number], held) for number, begin in start.items()}
        # Kept while it is counted and written. (An Observation never fires for a batch written to Kafka.)
        letters = self._letters(self.source.misfits(spark, ranges, end, _READING)).persist()
        try:
            count = letters.count()
            if count:
                outside = self._log.settings.named(self._log.dead.topic(self.source.topic.name))
                # The topic's own limit is the one that counts; the client's default is lower than that.
                options = {**_WRITING, "kafka.max.request.size": _LARGEST_BYTES}
                write(letters.withColumn("topic", F.lit(outside)), self._log.data_source, **options)
        finally:
            letters.unpersist()
        return count

    def _available(self, number: str, begin: int, end: int, held: Mapping[int, tuple[int, int]]) -> int:
        """Where to begin reading; a partition whose offsets are all done stays out by an empty range."""
        first, _ = held.get(int(number), (0, 0))
        if 0 <= begin < first:
            told = "records %d to %d of partition %s of %s are gone; dead letters among them, if any, were not kept"
            _logger.warning(told, begin, first, number, self.source.outside)
        return min(max(begin, first), end)

    def _letters(self, misfits: DataFrame) -> DataFrame:
        """As `millrace.log.deadletters` describes a letter: original bytes and headers, then where and why."""
        added = [
            (deadletters.TOPIC, F.lit(self.source.outside)),
            (deadletters.PARTITION, F.col("partition").cast("string")),
            (deadletters.OFFSET, F.col("offset").cast("string")),
            (deadletters.TIME, F.unix_millis("timestamp").cast("string")),
            (deadletters.REASON, F.col("reason")),
        ]
        pairs = [F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")) for name, value in added]
        own = F.coalesce(F.col("headers"), F.array().cast(_HEADERS))
        return misfits.select("key", "value", F.concat(own, F.array(*pairs).cast(_HEADERS)).alias("headers"))

    def _load(self) -> dict[str, int]:
        """The offsets up to which all is done. A topic that was deleted and made again begins from its start."""
        path = self._path if self._path.exists() else self._nested
        try:
            done = {str(number): int(offset) for number, offset in json.loads(path.read_text()).items()}
        except (OSError, ValueError):
            return {}
        ends = self._log.topics.offsets(self.source.topic.name)
        again = any(offset > ends[int(number)][1] for number, offset in done.items() if int(number) in ends)
        return {} if again else done
