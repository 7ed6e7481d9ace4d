"""What an app's functions would have Spark do: called with streams that nobody starts, so that no server is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace.config import Kafka, Settings
from millrace.engine import failures, lakes, output
from millrace.engine.fanout import Fanout
from millrace.engine.plan import Flow
from millrace.engine.plans import analyzed
from millrace.engine.running import source_of
from millrace.engine.session import log_file
from millrace.engine.sides import Sides
from millrace.engine.topic_sink import TopicSink
from millrace.engine.viewed import ViewedSource
from millrace.engine.writing import called
from millrace.errors import MillraceError
from millrace.flow import Changes, Stream, Table
from millrace.lakehouse import Catalog
from millrace.log import Log

# Spark's Kafka source wants an address, and asks for nothing there before it is started.
_NOBODY = "127.0.0.1:9"


@dataclass(frozen=True)
class Planned:
    """A stream, the frames that its function was given and the one that it gave; `side` is its topic of late rows."""

    stream: Stream
    inputs: tuple[DataFrame, ...]
    result: DataFrame
    side: str | None


def unknown(flow: Flow, settings: Settings) -> str | None:
    """Why the columns of what it reads cannot be known here, if they cannot."""
    tables = [source.of if isinstance(source, Changes) else source for source in flow.reads]
    captured = [table.name for table in tables if isinstance(table, Table) and table.capture is not None]
    if captured:
        return f"only the running capture knows the columns of {', '.join(captured)}"
    for lake in flow.lakes:
        try:
            with Catalog(settings).opened(lake.table):
                pass
        except MillraceError as error:
            return error.sentence()
    return None


def planned(spark: SparkSession, flow: Flow, settings: Settings) -> Iterator[Planned]:
    """Each stream of a flow. What a run refuses when it plans is refused here, by the same errors."""
    own = spark.newSession()
    log = Log(replace(settings, kafka=Kafka(bootstrap=_NOBODY)))
    topic_sink, spark_log = TopicSink.at_least_once(log), log_file(settings)
    sources = [source_of(source, log, flow.name) for source in flow.reads]
    frames: dict[Any, DataFrame] = {
        each.readable: each.stream(own) for each in sources if not isinstance(each, ViewedSource)
    }
    frames |= {each: lakes.rows(each, own, settings) for each in flow.lakes}
    for stream in flow.streams:
        inputs = tuple(frames[source] for source in stream.reads)
        if flow.shared is not None:
            result = called(stream, frames, spark_log)
            Fanout(flow, topic_sink).check(stream, frames[flow.shared], result)
            yield Planned(stream, inputs, result, None)
            continue
        sides = Sides(stream, list(inputs), topic_sink)
        result = sides.plan(lambda stream=stream: called(stream, frames, spark_log))  # type: ignore[misc]
        output.records(stream, result)
        query, mode = (result, output.output_mode(stream, result)) if sides.told is None else (sides.told, "append")
        _refuse(stream, query, mode, spark_log)
        yield Planned(stream, inputs, result, sides.topic)


def _refuse(stream: Stream, query: DataFrame, mode: str, log: Path) -> None:
    """Asks Spark what it would ask itself when the query is started: whether streams have these operations."""
    java: Any = query.sparkSession._jvm
    modes = java.org.apache.spark.sql.streaming.OutputMode
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    if query.sparkSession.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "false":
        return
    try:
        checker.checkForStreaming(analyzed(query), modes.Update() if mode == "update" else modes.Append())
    except Exception as error:
        raise failures.start_failed(stream, error, log) from error
