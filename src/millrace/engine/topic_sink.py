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
from millrace.kernel import delivering
from millrace.log import DataSource, Log
from millrace.sinks.ledger import Epoch, FileLedger

# Beside Spark's own files: who begins a checkpoint anew begins this anew.
BEGUN = "begun"

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

    @classmethod
    def of(cls, flow: Flow, log: Log, app: str, checkpoint: Path) -> TopicSink:
        # A log in a test's folder has no transactions: there an epoch is written whole, at least once.
        exactly_once = flow.delivery == "exactly once" and log.data_source.format == "kafka"
        name, at_most_once = f"{log.settings.named(app)}.{flow.name}", flow.delivery == "at most once"
        return cls(log, name, checkpoint.absolute(), exactly_once, at_most_once=at_most_once)

    @classmethod
    def at_least_once(cls, log: Log) -> TopicSink:
        """For whoever only looks at a flow."""
        return cls(log, "", Path(), False)

    @property
    def sink(self) -> DataSource:
        if not self.exactly_once:
            return self.log.data_source
        return replace(self.log.data_source, format=delivering.FORMAT, options=self._options)

    def epoch(self, number: int) -> DataSource:
        """The same for the rows of one epoch, written as a batch."""
        sink = self.sink
        return replace(sink, options={**sink.options, "epoch": str(number)}) if self.exactly_once else sink

    def put(self, records: DataFrame, number: int) -> None:
        """Writes the records of one epoch, which say their topic."""
        if not self.at_most_once:
            write(records, self.epoch(number))
        elif self._begins(number):
            write(records.withColumn("value", delivering.tried_once(F.col("value"))), self.epoch(number))
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
        return {**self.log.data_source.options, "flow": self.name, "checkpoint": str(self.checkpoint)}
