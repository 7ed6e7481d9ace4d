"""A flow that has sinks and nothing else that divides its epochs: a stream with its topic, or a topic alone."""

from __future__ import annotations

from pyspark.sql import DataFrame

from millrace.engine.delivering import Delivering
from millrace.engine.fanout import addressed
from millrace.engine.held import holding
from millrace.engine.output import write
from millrace.flow import Stream, Topic
from millrace.log import Log


class Outlet:
    """Called with each epoch's rows: a stream's results go to its topic, as ever, and to its sinks."""

    def __init__(self, of: Stream | Topic, log: Log, sinks: Delivering) -> None:
        self._of, self._log, self._sinks = of, log, sinks

    def __call__(self, rows: DataFrame, number: int) -> None:
        with holding(rows) as held:
            if isinstance(self._of, Stream):
                write(addressed(self._of, rows, self._log.settings), self._log)
            self._sinks.deliver({self._of: rows}, number, held)
