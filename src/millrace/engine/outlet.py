"""A flow whose epochs nothing divides and that does more than Spark's own sink: a stream with its topic, or a topic
alone, with sinks; or a stream whose topic is written at most once."""

from __future__ import annotations

from pyspark.sql import DataFrame

from millrace.engine.delivering import Delivering
from millrace.engine.fanout import addressed
from millrace.engine.held import holding
from millrace.engine.topic_sink import TopicSink
from millrace.flow import Stream, Topic


class Outlet:
    """Called with each epoch's rows: a stream's results go to its topic, as ever, and to its sinks."""

    def __init__(self, of: Stream | Topic, topic_sink: TopicSink, sinks: Delivering | None = None) -> None:
        self._of, self._topic_sink, self._sinks = of, topic_sink, sinks

    def __call__(self, rows: DataFrame, number: int) -> None:
        with holding(rows) as held:
            if isinstance(self._of, Stream) and not self._topic_sink.silent:
                settings = self._topic_sink.log.settings
                self._topic_sink.put(addressed(self._of, rows, settings), number)
            if self._sinks is not None:
                self._sinks.deliver({self._of: rows}, number, held)
