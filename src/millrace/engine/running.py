"""One flow while it runs: built from its definition, started as a query, watched, and stopped between two epochs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace.engine import definition, failures, output
from millrace.engine.lock import Lock, acquire
from millrace.engine.progress import Progress, Span, progress_of, spans_of
from millrace.engine.session import log_file
from millrace.engine.sources import Source, kafka_options
from millrace.engine.stopping import CleanStop, epochs
from millrace.errors import MillraceError, RecordsGone
from millrace.flow import Stream
from millrace.log import Log

# How often a flow looks for new records. Less is quicker and costs more: every look asks the broker, every epoch
# writes a checkpoint.
TRIGGER = "500 milliseconds"

# Reports of epochs that Spark keeps for the run to fetch. One that is missed costs a second look for dead letters.
_REPORTS_KEPT = 100

# How long an interrupted epoch may take to notice.
_STOP_NOW = "15s"


@dataclass
class RunningFlow:
    """A started flow and what has been heard of it."""

    stream: Stream
    sources: tuple[Source, ...]
    folder: Path
    lock: Lock
    query: StreamingQuery
    log: Path
    _last_epoch: int = field(default=-1, init=False)

    @property
    def active(self) -> bool:
        """Whether its thread still works: a query that was asked to stop calls itself ended at once, and is not."""
        return bool(self.query._jsq.streamingQuery().queryExecutionThread().isAlive())

    def news(self) -> list[tuple[Progress, list[Span]]]:
        """The epochs since the last time, oldest first, each with the offsets that it read."""
        metrics = {source.outside: source.metric for source in self.sources}
        fresh = []
        # As JSON and only the new ones: PySpark's own `recentProgress` makes hundreds of calls into the JVM.
        reports = self.query._jsq.recentProgress()
        for place in reversed(range(len(reports))):
            each = reports[place]
            if each.batchId() <= self._last_epoch:
                break
            report = json.loads(each.json())
            if "addBatch" in report["durationMs"]:  # otherwise it tells that there was nothing to do
                fresh.append((progress_of(self.stream.name, report), spans_of(report, metrics)))
        if fresh:
            self._last_epoch = fresh[0][0].epoch
        return fresh[::-1]

    def failure(self) -> MillraceError | None:
        error = self.query.exception()
        return failures.run_failed(self.stream, error, self.log) if error is not None else None

    def clean_stop(self) -> CleanStop:
        return CleanStop(self.query, self.folder / definition.CHECKPOINT)

    def stop_now(self) -> None:
        with contextlib.suppress(PySparkException, Py4JError):  # it did not end in time; its JVM will
            self.query.stop()

    def committed(self) -> list[Span]:
        """What the last committed epoch had read up to, from the checkpoint."""
        return committed(self.folder / definition.CHECKPOINT)


def start(
    spark: SparkSession,
    stream: Stream,
    log: Log,
    app: str,
    *,
    once: bool = False,
    fresh: bool = False,
) -> tuple[RunningFlow, Path | None]:
    """Starts one flow; with `fresh` its old checkpoint is set aside first, and its new place returned too."""
    settings, spark_log = log.settings, log_file(log.settings)
    folder = definition.folder_of(settings, app, stream.name)
    lock = acquire(spark, folder, stream.name)
    try:
        aside = definition.set_aside(folder) if fresh else None
        sources = tuple(Source.of(topic, settings, f"{app}.{stream.name}") for topic in dict.fromkeys(stream.reads))
        own = spark.newSession()
        own.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_REPORTS_KEPT))
        own.conf.set("spark.sql.streaming.stopTimeout", _STOP_NOW)
        old = definition.remembered(folder)
        if old is not None:
            # Spark pins it in the checkpoint anyway; said here it is the same in the plan that people look at.
            own.conf.set("spark.sql.shuffle.partitions", str(old.partitions))
        partitions = int(own.conf.get("spark.sql.shuffle.partitions") or 0)
        new = definition.Definition.of(stream, sources, partitions, log)
        if old is not None:
            definition.check(stream, sources, folder, old, new)
            _refuse_gap(stream, sources, folder, log)
        records, mode = build(own, stream, sources, spark_log)
        definition.remember(folder, new)
        writer = (
            records.writeStream.format("kafka")
            .queryName(f"{app}.{stream.name}")
            .outputMode(mode)
            .options(**kafka_options(settings))
            .option("topic", settings.named(stream.output.name))
            .option("checkpointLocation", str(folder / definition.CHECKPOINT))
        )
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=TRIGGER)
        # The query's thread takes over the pool of the thread that starts it.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", stream.name)
        try:
            query = writer.start()
        except Exception as error:
            raise failures.start_failed(stream, error, spark_log) from error
        finally:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    except BaseException:
        lock.release()
        raise
    return RunningFlow(stream, sources, folder, lock, query, spark_log), aside


def build(spark: SparkSession, stream: Stream, sources: tuple[Source, ...], log: Path) -> tuple[DataFrame, str]:
    """The records that a flow writes and Spark's output mode for them; the user's function is called here."""
    frames = {source.topic: source.stream(spark) for source in sources}
    try:
        result: Any = stream.body(*(frames[topic] for topic in stream.reads))
    except MillraceError:
        raise
    except Exception as error:
        raise failures.body_failed(stream, error, log) from error
    return output.records(stream, result), output.output_mode(stream, result)


def _refuse_gap(stream: Stream, sources: tuple[Source, ...], folder: Path, log: Log) -> None:
    """A flow whose next records are gone is told so before it starts; Spark would take two minutes to find out."""
    names = {source.outside: source.topic.name for source in sources}
    for span in committed(folder / definition.CHECKPOINT):
        held = log.topics.offsets(names[span.outside])
        for number, offset in span.end.items():
            first, last = held.get(int(number), (0, 0))
            if not first <= offset <= last:
                reason = f"partition {number} of {span.outside} holds {first} to {last}, the next was {offset}"
                raise RecordsGone(flow=stream.name, reason=reason, where=stream.where)


def committed(checkpoint: Path) -> list[Span]:
    done = epochs(checkpoint / "commits")
    if not done:
        return []
    lines = (checkpoint / "offsets" / str(done[-1])).read_text(encoding="utf-8").splitlines()
    spans = []
    for line in lines[2:]:  # the format's version, then the epoch's metadata, then one line a source
        for outside, offsets in _offsets(line).items():
            spans.append(Span(outside, offsets, offsets, 0))
    return spans


def _offsets(line: str) -> Mapping[str, Mapping[str, int]]:
    try:
        found = json.loads(line)
    except ValueError:  # "-": nothing was read of this source yet
        return {}
    return found if isinstance(found, dict) else {}
