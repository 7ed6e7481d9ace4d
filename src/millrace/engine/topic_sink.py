"""How a flow's records reach their topics: by Spark's own Kafka sink, at least once, or by the kernel's, exactly once.

Exactly once is two-phase commit (docs/design/0021): before the flow starts, what an earlier run left is brought to an
end; and each epoch says its number, so that one which is done again is not written again. At most once is Spark's sink
too: an epoch is noted as begun before it is written, and one that is noted is not written, nor is a task's part twice.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine.output import write
from millrace.engine.plan import Flow
from millrace.errors import ServerError
from millrace.kernel import delivering
from millrace.log import DataSource, Log
from millrace.log.topics import LIMIT
from millrace.sinks.ledger import Epoch, FileLedger

# Beside Spark's own files: who begins a checkpoint anew begins this anew.
BEGUN = "begun"
# What a record's own headers take at the most: an id; and in a changelog, of which epoch it is.
ID_BYTES, EPOCH_BYTES = 48, 128
# The topic's own limit is the one that counts; the client's default is lower than what that may be. It cannot send more
# than it buffers: this is its default for that.
LARGEST_BYTES = 32 * 1024 * 1024
# As in `SinkOptions.java`. A batch that is larger than its topic takes is cut to this size by Kafka's client, again and
# again if that is larger too.
BATCH_BYTES = 131_072

_logger = logging.getLogger("millrace.engine")


@dataclass(frozen=True)
class TopicSink:
    """Of one flow; `name` is what its transactional ids begin with. One that is `silent` is not written: its flow is
    done once more, for a sink alone."""

    log: Log
    name: str
    checkpoint: Path
    exactly_once: bool
    silent: bool = False
    at_most_once: bool = False
    batch_bytes: int = BATCH_BYTES

    @classmethod
    def of(cls, flow: Flow, log: Log, app: str, checkpoint: Path) -> TopicSink:
        # A log in a test's folder has no transactions: there an epoch is written whole, at least once.
        exactly_once = flow.delivery == "exactly once" and log.data_source.format == "kafka"
        name, at_most_once = f"{log.settings.named(app)}.{flow.name}", flow.delivery == "at most once"
        written = [stream.output.name for stream in flow.streams] + ([flow.view.name] if flow.view else [])
        batch_bytes = min((_limit(topic, log) for topic in written), default=BATCH_BYTES)
        return cls(log, name, checkpoint.absolute(), exactly_once, at_most_once=at_most_once, batch_bytes=batch_bytes)

    @classmethod
    def at_least_once(cls, log: Log) -> TopicSink:
        """For whoever only looks at a flow."""
        return cls(log, "", Path(), False)

    @property
    def sink(self) -> DataSource:
        if not self.exactly_once:
            return self.plain
        return replace(self.log.data_source, format=delivering.FORMAT, options=self._options)

    @property
    def plain(self) -> DataSource:
        """Spark's own sink."""
        return replace(self.log.data_source, options=self._kafka)

    def fitting(self, records: DataFrame, topic: str | None = None, *, letters: bool = True) -> DataFrame:
        """Without those that are larger than their topic takes: they go to its dead letters, as rows do that other
        sinks' targets refuse. A topic that may not lack one has no `letters`: there such a record ends the flow.
        `topic` is that of records that do not say it."""
        data = self.log.data_source
        if data.format != "kafka":  # a test's folder takes everything
            return records
        columns = set(records.columns)
        key = F.col("key") if "key" in columns else F.lit(None).cast("string")
        to = F.lit(topic) if topic is not None else F.col("topic")
        record = F.struct(key.alias("key"), F.col("value").alias("value"), to.alias("topic"))
        inside = self.log.settings.named("")
        beside = 0 if "headers" not in columns else ID_BYTES if letters else EPOCH_BYTES
        fits = delivering.fits(record, self.name, self._kafka, inside=inside, letters=letters, beside=beside)
        return records.where(fits)

    def outsized(self) -> int:
        """How many went to dead letters so, since the session began."""
        return delivering.outsized(self.name) if self.log.data_source.format == "kafka" else 0

    def epoch(self, number: int) -> DataSource:
        """The same for the rows of one epoch, written as a batch."""
        sink = self.sink
        return replace(sink, options={**sink.options, "epoch": str(number)}) if self.exactly_once else sink

    def put(self, records: DataFrame, number: int) -> None:
        """Writes the records of one epoch, which say their topic."""
        records = self.fitting(records)
        if not self.at_most_once:
            write(records, self.epoch(number))
        elif self._begins(number):
            write(delivering.tried_once(records, "value"), self.epoch(number))
        else:
            told = "%s does not write epoch %d again, and at most once was asked for: some of it may be missing"
            _logger.warning(told, self.name, number, extra={"event": "lost", "flow": self.name})
            # State that an epoch leaves is written while its rows are computed.
            records.write.format("noop").mode("overwrite").save()

    def _begins(self, number: int) -> bool:
        begun = FileLedger(self.checkpoint / BEGUN)
        held = begun.held()
        if held is not None and held.number >= number:
            return False
        begun.write(Epoch(self.name, number, ""))
        return True

    def begin(self, spark: SparkSession) -> None:
        """Also for a flow that delivers at least once from now on: what it prepared before would stay open."""
        if self._transactional:
            delivering.begin(spark, self._options)
        if not self.exactly_once:
            self.end()

    def end(self) -> None:
        if self._transactional:
            with contextlib.suppress(Py4JError, OSError):  # a JVM that is gone holds nothing
                delivering.end(self.checkpoint)

    @property
    def _transactional(self) -> bool:
        return self.exactly_once or (self.checkpoint / delivering.LEDGER).exists()

    @property
    def _options(self) -> dict[str, str]:
        return {**self._kafka, "flow": self.name, "checkpoint": str(self.checkpoint)}

    @property
    def _kafka(self) -> dict[str, str]:
        data = self.log.data_source
        if data.format != "kafka":
            return dict(data.options)
        options = {"kafka.max.request.size": str(LARGEST_BYTES), **data.options}
        if self.batch_bytes < BATCH_BYTES:
            options["kafka.batch.size"] = str(self.batch_bytes)
        return options


def _limit(topic: str, log: Log) -> int:
    """How large a batch a topic takes, as far as that matters."""
    if log.data_source.format != "kafka":
        return BATCH_BYTES
    try:
        told = log.topics.config(topic).get(LIMIT) if log.topics.exists(topic) else None
    except ServerError:  # who may write a topic need not be allowed to see how it is configured
        told = None
    return min(int(told or BATCH_BYTES), BATCH_BYTES)
