"""One table, many readers: each epoch's signed rows go through every reader's function and to its topic, and to the
sinks of the table and of its readers.

The table's state is kept once, in the query before; here is only what follows from an epoch's rows alone. A function
that keeps state over epochs would be wrong here and is refused.

Guarantee: as the flow's `delivery` says; a reader that joins is given the table at least once. A sink's is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.config import Settings
from millrace.engine.delivering import Delivering
from millrace.engine.held import holding
from millrace.engine.output import records, write
from millrace.engine.plan import Flow
from millrace.engine.plans import analyzed, listed
from millrace.engine.topic_sink import TopicSink
from millrace.errors import TableReaderKeepsState
from millrace.flow import Stream
from millrace.flow.nodes import Deliverable
from millrace.sinks.contract import VERSION

# What a stream's plan may hold besides leaves: each row by itself. Everything else remembers rows, or waits for some.
_ROW_BY_ROW = ("Project", "Filter", "SubqueryAlias", "Generate", "Join", "View", "CollectMetrics", "EventTimeWatermark")


class Fanout:
    def __init__(self, flow: Flow, topic_sink: TopicSink, sinks: Delivering | None = None) -> None:
        self.flow, self.log, self.topic_sink, self.sinks = flow, topic_sink.log, topic_sink, sinks

    def check(self, stream: Stream, signed: DataFrame, result: Any) -> None:
        """Refuses what cannot be done epoch by epoch, on the streaming plan, where Spark would keep state."""
        records(stream, result)
        found = stateful(analyzed(result), analyzed(signed))
        if found:
            raise TableReaderKeepsState(flow=stream.name, operation=found, where=stream.where)

    def __call__(self, epoch_rows: DataFrame, number: int) -> None:
        streams = [stream.name for stream in self.flow.streams]

        def put(together: DataFrame) -> None:
            self.topic_sink.put(together, number)

        if self.sinks is None:
            self.write(epoch_rows, streams, put)
            return
        with holding(epoch_rows) as held:
            self.write(held.rows.drop(VERSION), streams, put)
            self.sinks.deliver(self.frames(held.rows), number, held)

    def catch_up(self, rows: DataFrame, streams: Collection[str], sinks: Collection[str]) -> None:
        """Gives those that join the flow the table as it is."""
        with holding(rows) as held:
            sink = self.topic_sink
            self.write(held.rows.drop(VERSION), streams, lambda records: write(sink.fitting(records), sink.plain))
            if self.sinks is not None:
                self.sinks.catch_up(self.frames(held.rows), sinks, held)

    def frames(self, rows: DataFrame) -> dict[Deliverable, DataFrame]:
        """What sinks are given: the table's rows, and what its readers make of them."""
        found: dict[Deliverable, DataFrame] = {}
        for of in dict.fromkeys(delivery.of for delivery in self.flow.sinks):
            found[of] = of.body(rows.drop(VERSION)) if isinstance(of, Stream) else rows
        return found

    def write(self, rows: DataFrame, streams: Collection[str], put: Callable[[DataFrame], None]) -> None:
        """All readers' records in one job; the rows are computed once."""
        outputs = [self._output(stream, rows) for stream in self.flow.streams if stream.name in streams]
        if not outputs:
            return
        together = outputs[0]
        for other in outputs[1:]:
            together = together.union(other)
        kept = len(outputs) > 1 and self.sinks is None
        if kept:
            rows.persist()
        try:
            put(together)
        finally:
            if kept:
                rows.unpersist()

    def _output(self, stream: Stream, rows: DataFrame) -> DataFrame:
        return addressed(stream, stream.body(rows), self.log.settings)


def addressed(stream: Stream, result: Any, settings: Settings) -> DataFrame:
    """An epoch's result as records that say their topic."""
    made = records(stream, result, streaming=False)
    key = F.col("key") if "key" in made.columns else F.lit(None).cast("string").alias("key")
    return made.select(key, "value", F.lit(settings.named(stream.output.name)).alias("topic"))


def stateful(plan: Any, below: Any) -> str | None:
    """The name of the first step above the rows of `below` that needs more than one row."""
    if not plan.isStreaming() or plan.fastEquals(below):
        return None
    name = str(plan.nodeName())
    children = listed(plan.children())
    if name not in _ROW_BY_ROW or sum(child.isStreaming() for child in children) > 1:
        return name
    return next((found for child in children if (found := stateful(child, below))), None)
