"""A flow whose window sends late rows to a topic of their own: one operator, two outputs.

A streaming query has one result. So the query gives everything that the window tells, results and refused rows, and
each epoch is divided: refused rows go to their topic, results through the rest of the stream's function, and both are
written in one job. What follows the window in that function sees one epoch at a time and so may not keep state. In real
time there is no such moment: there a refused row is sent to its topic where the window gives it, and goes no further.

Guarantee: as the flow's `delivery` says.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.engine.delivering import Delivering
from millrace.engine.fanout import addressed, stateful
from millrace.engine.held import holding
from millrace.engine.output import TIMES, records
from millrace.engine.plans import analyzed
from millrace.engine.replay import Replay, UpTo
from millrace.engine.topic_sink import TopicSink
from millrace.errors import LateSideKeepsState, LateSideTaken, LateSideTwice
from millrace.flow import Stream
from millrace.flow.lateness import side
from millrace.flow.windows import END, START
from millrace.kernel import windows as kernel
from millrace.kernel.told import KIND, LATE_US, REFUSED, REFUSED_TOO, ROW, stays


class Sides:
    """Called once to plan the flow (`plan`) and then with each epoch's rows."""

    def __init__(
        self,
        stream: Stream,
        frames: list[DataFrame],
        topic_sink: TopicSink,
        replay: Replay | UpTo | None = None,
        at_once: bool = False,
    ) -> None:
        self.stream, self.frames, self.log, self.settings = stream, frames, topic_sink.log, topic_sink.log.settings
        self._topic_sink = topic_sink
        self._replay, self._at_once = replay, at_once
        self.topic: str | None = None
        self.told: DataFrame | None = None
        self.sinks: Delivering | None = None
        self._made = False

    def plan(self, called: Callable[[], DataFrame]) -> DataFrame:
        """What the function gives; `told` is what its window tells, if that sends late rows aside."""
        token = side.set(self._planned)
        try:
            result = called()
        finally:
            side.reset(token)
        if self.told is not None:
            records(self.stream, result)
            found = stateful(analyzed(result), analyzed(self.told))
            if found:
                raise LateSideKeepsState(flow=self.stream.name, operation=found, where=self.stream.where)
        return result

    def _planned(self, build: Callable[[], DataFrame], topic: str) -> DataFrame:
        if self.told is not None:
            raise LateSideTwice(flow=self.stream.name, where=self.stream.where)
        if topic in (self.stream.output.name, *(source.name for source in self.stream.reads)):
            raise LateSideTaken(flow=self.stream.name, topic=topic, where=self.stream.where)
        self.topic, self.told = self._replay.named(topic) if self._replay else topic, build()
        if not self._at_once:
            return self.told
        self._ensure_topic()
        record = F.when(_refused(), self._record(self.told))
        return self.told.where(stays(record, self.settings.named(self.topic), self.log.data_source.options))

    @property
    def divides_epochs(self) -> bool:
        return self.told is not None and not self._at_once

    def _ensure_topic(self) -> None:
        assert self.topic is not None
        if not self._made:
            self.log.topics.ensure(self.topic, partitions=self.stream.output.partitions)
            self._made = True

    def __call__(self, rows: DataFrame, number: int) -> None:
        with holding(rows) as held:  # or the window would run twice
            results = self._results(rows)
            if not self._topic_sink.silent:
                self._ensure_topic()
                self._topic_sink.put(addressed(self.stream, results, self.settings).union(self._late(rows)), number)
            if self.sinks is not None:
                self.sinks.deliver({self.stream: results}, number, held)

    def _results(self, told: DataFrame) -> DataFrame:
        """What the stream's function makes of what its window has told in an epoch."""
        token = side.set(lambda _build, _topic: told)
        try:
            return self.stream.body(*self.frames)
        finally:
            side.reset(token)

    def _late(self, rows: DataFrame) -> DataFrame:
        assert self.topic is not None
        return rows.where(_refused()).select(
            F.lit(None).cast("string").alias("key"),
            self._record(rows).alias("value"),
            F.lit(self.settings.named(self.topic)).alias("topic"),
        )

    @staticmethod
    def _record(rows: DataFrame) -> Column:
        edges = {kernel.START: START, kernel.END: END}  # of a window; other operators have none
        value = F.struct(
            F.col(ROW).alias("row"),
            *(F.col(edge).alias(name) for edge, name in edges.items() if edge in rows.columns),
            (F.col(LATE_US) / 1_000).cast("long").alias("late_ms"),
        )
        return F.to_json(value, TIMES)


def _refused() -> Column:
    return F.col(KIND).isin(REFUSED, REFUSED_TOO)
