"""A flow's definition as a query that is ready to start: its functions are called, and what follows is chosen by what
they gave and where it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millrace.engine import failures, lakes, output, realtime, viewed, viewing
from millrace.engine.definition import AnySource
from millrace.engine.delivering import Delivering
from millrace.engine.fanout import Fanout
from millrace.engine.feeding import feed_of
from millrace.engine.outlet import Outlet
from millrace.engine.plan import Flow
from millrace.engine.replay import Replay, UpTo
from millrace.engine.session import log_file
from millrace.engine.sides import Sides
from millrace.engine.tables import TableSource
from millrace.engine.topic_sink import TopicSink
from millrace.engine.view_outlet import ViewOutlet, tentative
from millrace.engine.viewed import ViewedSource
from millrace.errors import MillraceError
from millrace.flow import Delivery, Stream, View
from millrace.flow.nodes import Deliverable
from millrace.flow.operators import Operator
from millrace.log import Log
from millrace.sinks.contract import VERSION, Feed
from millrace.views import Plan
from millrace.views.changelog import tentative_topic

# Of the sinks of a flow, each with what it will be given, makes what takes its epochs.
Deliver: TypeAlias = Callable[[Mapping[Delivery, Feed]], Delivering]


@dataclass
class FlowPlan:
    """`sinks` is there after `writer`, if the flow has some."""

    spark: SparkSession
    flow: Flow
    sources: tuple[AnySource, ...]
    topic_sink: TopicSink
    folder: Path
    clocks: Path
    once: bool
    in_real_time: bool
    replay: Replay | UpTo | None
    owes: bool
    deliver: Deliver | None = None
    sinks: Delivering | None = field(default=None, init=False)

    @property
    def log(self) -> Log:
        return self.topic_sink.log

    def writer(self, noted: list[Operator]) -> tuple[DataStreamWriter, DataFrame | None, DataFrame]:
        """The query to be started, what the stream's function gives if it is one stream's alone, and what the query is
        of."""
        if self.flow.shared is not None:
            return self._of_table()
        if self.flow.view is not None:
            return self._of_view(self.flow.view)
        frames: dict[Any, DataFrame] = {
            source.readable: source.stream(self.spark, self.clocks, self.once)
            for source in self.sources
            if not isinstance(source, ViewedSource)
        }
        frames |= {each: lakes.rows(each, self.spark, self.log.settings) for each in self.flow.lakes}
        if self.flow.topic is not None:
            return self._of_topic(frames[self.flow.topic])
        return self._of_stream(frames, noted)

    def _of_table(self) -> tuple[DataStreamWriter, None, DataFrame]:
        (source,) = self.sources
        assert isinstance(source, TableSource)
        whole = source.stream(self.spark, self.clocks, self.once, versioned=bool(self.flow.sinks))
        signed = whole.drop(VERSION) if self.flow.sinks else whole
        fanout = Fanout(self.flow, self.topic_sink)
        results: dict[Deliverable, DataFrame] = {source.table: whole}
        for stream in self.flow.streams:
            results[stream] = called(stream, {source.readable: signed}, log_file(self.log.settings))
            fanout.check(stream, signed, results[stream])
        fanout.sinks = self._deliver(results, source.captured.key)
        return whole.writeStream.foreachBatch(fanout).outputMode("append"), None, whole

    def _of_view(self, view: View) -> tuple[DataStreamWriter, DataFrame, DataFrame]:
        plan = viewed.plan_of(view, self.log)
        viewed.refuse(view, plan, self.log)
        if self.flow.epoch_ms is not None:
            viewed.refuse_real_time(view, plan, str(self.spark.sparkContext.master))
        rows = viewing.rows(self.spark, view, plan, self.sources, self.log, self.clocks, self.once)
        if self.in_real_time:
            return self._tentative(view, plan, rows), rows, rows
        outlet = ViewOutlet(view, plan, self.topic_sink, self.folder)
        return rows.writeStream.foreachBatch(outlet).outputMode("append"), rows, rows

    def _tentative(self, view: View, plan: Plan, rows: DataFrame) -> DataStreamWriter:
        """Rows that leave at once: what is certain of them is told when their epoch is (`settling`)."""
        to, topic = self.topic_sink.plain, self.log.settings.named(tentative_topic(view.name))
        records = self.topic_sink.fitting(tentative(rows, view, plan, self.folder), topic, letters=False)
        writer = realtime.settled(records).writeStream.format(to.format).outputMode("update").options(**to.options)
        return writer.option("topic", topic)

    def _of_topic(self, rows: DataFrame) -> tuple[DataStreamWriter, None, DataFrame]:
        assert self.flow.topic is not None
        sinks = self._deliver({self.flow.topic: rows})
        assert sinks is not None
        outlet = Outlet(self.flow.topic, self.topic_sink, sinks)
        return rows.writeStream.foreachBatch(outlet).outputMode("append"), None, rows

    def _of_stream(
        self, frames: Mapping[Any, DataFrame], noted: list[Operator]
    ) -> tuple[DataStreamWriter, DataFrame, DataFrame]:
        (stream,) = self.flow.streams
        sides = Sides(
            stream, [frames[source] for source in stream.reads], self.topic_sink, self.replay, at_once=self.in_real_time
        )
        result = sides.plan(lambda: called(stream, frames, log_file(self.log.settings)))
        if self.flow.epoch_ms is not None and isinstance(result, DataFrame):
            realtime.refuse(stream, result)
        if sides.told is not None and sides.divides_epochs:
            sides.sinks = self._deliver({stream: result})
            return sides.told.writeStream.foreachBatch(sides).outputMode("append"), result, sides.told
        records = output.records(stream, result)
        mode = "update" if self.in_real_time else output.output_mode(stream, result, noted)
        sinks = self._deliver({stream: result})
        if sinks is not None or self.topic_sink.at_most_once:
            outlet = Outlet(stream, self.topic_sink, sinks)
            return result.writeStream.foreachBatch(outlet).outputMode(mode), result, result
        to = self.log.settings.named(stream.output.name)
        fitting = self.topic_sink.fitting(output.identified(records) if self.in_real_time else records, to)
        writer = (
            (realtime.settled(fitting) if self.in_real_time else fitting)
            .writeStream.format(self.topic_sink.sink.format)
            .outputMode(mode)
            .options(**self.topic_sink.sink.options)
            .option("topic", to)
        )
        return writer, result, result

    def _deliver(self, results: Mapping[Deliverable, DataFrame], table: tuple[str, ...] = ()) -> Delivering | None:
        """The sinks, each checked with what it will be given; `table` is the key of the table that is read."""
        feeds = {}
        for delivery in self.flow.sinks:
            schema, of = results[delivery.of].schema, delivery.of
            if isinstance(of, Stream):
                feeds[delivery] = feed_of(delivery, schema, stream=of.key)
            else:
                feeds[delivery] = feed_of(delivery, schema, table=table)
        if not feeds:
            return None
        if self.deliver is not None:
            self.sinks = self.deliver(feeds)
            return self.sinks
        app = self.folder.parent.name
        self.sinks = Delivering(f"{app}.{self.flow.name}", self.folder, self.log, feeds, owes=self.owes)
        return self.sinks


def called(stream: Stream, frames: Mapping[Any, DataFrame], log: Path) -> Any:
    """What the user's function gives."""
    try:
        return stream.body(*(frames[source] for source in stream.reads))
    except MillraceError:
        raise
    except Exception as error:
        raise failures.body_failed(stream, error, log) from error
