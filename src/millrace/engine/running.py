"""One flow while it runs: built from its definition, started as a query, watched, and stopped between two epochs."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millrace import durations
from millrace.engine import definition, failures, lake_topics, realtime, view_outlet, viewing
from millrace.engine.definition import AnySource
from millrace.engine.delivering import Delivering
from millrace.engine.epochs import offsets_in
from millrace.engine.fanout import Fanout
from millrace.engine.histories import Histories
from millrace.engine.lane import END_S
from millrace.engine.lock import Lock, acquire
from millrace.engine.operators import fingerprint, kept, native
from millrace.engine.plan import Flow
from millrace.engine.progress import Progress, Span, progress_of, spans_of
from millrace.engine.replay import Replay, UpTo
from millrace.engine.session import log_file
from millrace.engine.settling import SettledStop, Settling
from millrace.engine.sources import Source
from millrace.engine.standing import SinkStanding
from millrace.engine.stopping import CleanStop, RealTimeStop, epochs
from millrace.engine.tables import TableSource
from millrace.engine.topic_sink import TopicSink
from millrace.engine.viewed import ViewedSource
from millrace.engine.whole import refuse_damaged, sweep
from millrace.engine.writing import Deliver, FlowPlan
from millrace.errors import MillraceError, RecordsGone, TableStale, ViewDeployed
from millrace.flow import Readable, Topic, View
from millrace.flow.operators import noting
from millrace.log import Log

# How often a flow looks for new records. Less is quicker and costs more: every look asks the broker, every epoch
# writes a checkpoint.
TRIGGER = "500 milliseconds"
# Somebody waits for a view to be true of what he has written; and one that nothing happens to asks the broker once.
VIEW_TRIGGER = "100 milliseconds"

# Reports of epochs that Spark keeps for the run to fetch. One that is missed costs a second look for dead letters.
_REPORTS_KEPT = 100

# Touched now and then while a flow runs: since when it is away, if it is.
SEEN = "seen"
DAY_MS = 86_400_000

# In the checkpoint: how far each source's event time had come after each epoch.
CLOCKS = "clocks"

# How long an interrupted epoch may take to notice.
_STOP_NOW = "15s"


@dataclass
class RunningFlow:
    """A started flow and what has been heard of it. `idle` is when it last looked and found nothing new, `slots` how
    many it holds for as long as it runs, as one in real time does; `settling` makes certain what such a view tells;
    `outsized` is how many results, too large for their topic, were heard of."""

    flow: Flow
    sources: tuple[AnySource, ...]
    folder: Path
    lock: Lock
    query: StreamingQuery
    log: Path
    topic_sink: TopicSink
    slots: int = 0
    sinks: Delivering | None = None
    first: bool = False
    settling: Settling | None = None
    outsized: int = 0
    idle: str = field(default="", init=False)
    _last_epoch: int = field(default=-1, init=False)
    _rows_heard: int = field(default=0, init=False)
    _run: str = field(default="", init=False)

    @property
    def active(self) -> bool:
        """Whether its thread still works: a query that was asked to stop calls itself ended at once, and is not."""
        return bool(self.query._jsq.streamingQuery().queryExecutionThread().isAlive())

    def news(self) -> list[tuple[Progress, list[Span]]]:
        """The epochs since the last time, oldest first, each with the offsets that it read."""
        metrics = {source.outside: source.metric for source in self.sources}
        fresh, idle = [], ""
        clocks = self.folder / definition.CHECKPOINT / CLOCKS
        # As JSON and only the new ones: PySpark's own `recentProgress` makes hundreds of calls into the JVM.
        reports = self.query._jsq.recentProgress()
        for place in reversed(range(len(reports))):
            each = reports[place]
            if each.batchId() <= self._last_epoch or each.timestamp() == self.idle:
                break
            report = json.loads(each.json())
            if "addBatch" in report["durationMs"]:  # otherwise it tells that there was nothing to do
                fresh.append((progress_of(self.flow.name, report, clocks), spans_of(report, metrics)))
            else:
                idle = max(idle, report["timestamp"])
        if fresh:
            self._last_epoch = fresh[0][0].epoch
            self._rows_heard += sum(progress.rows_in for progress, _ in fresh)
            fresh[0] = (self._with_outsized(fresh[0][0]), fresh[0][1])
        self.idle = max(self.idle, idle)
        return fresh[::-1]

    def _with_outsized(self, progress: Progress) -> Progress:
        """With the results that went to dead letters since the last time: tasks count them, and Spark's reports of what
        an epoch writes inside `foreachBatch` have no room for them."""
        before, self.outsized = self.outsized, self.topic_sink.outsized()
        return replace(progress, dead=progress.dead + self.outsized - before)

    def under_way(self) -> int | None:
        """Records that one in real time has taken beyond the epochs that were heard of; None where nobody knows: see
        `Taken.java`."""
        if not self.slots or self.settling is not None:
            return None
        self._run = self._run or str(self.query.runId)
        java: Any = SparkContext._jvm
        taken = java.millrace.kernel.Taken.by(self._run)
        return max(taken - self._rows_heard, 0) if taken >= 0 else None

    @property
    def busy(self) -> bool:
        """Whether it works or has to be started again, failed and was not heard yet, or owes its sinks something."""
        if self.active or self.first or self.failure() is not None:
            return True
        return self.sinks is not None and self.sinks.busy

    @property
    def has_read(self) -> bool:
        """Whether it has read what was there at its start, and can go on in real time."""
        return self.first and not self.active and self.failure() is None

    def release(self, wait_s: float = END_S) -> None:
        """Lets go of what it holds, its sinks before its lock: another run may write them when that is free."""
        realtime.let_slots_go(self.folder)
        if self.sinks is not None:
            self.sinks.end(wait_s)
        if self.settling is not None:
            self.settling.end()
        self.topic_sink.end()
        self.lock.release()

    def standing(self) -> Mapping[str, SinkStanding]:
        return {} if self.sinks is None else self.sinks.standings()

    def owes(self) -> MillraceError | None:
        return None if self.sinks is None else self.sinks.owes()

    def failure(self) -> MillraceError | None:
        error = self.query.exception()
        if error is not None and self.sinks is not None and self.sinks.error is not None:
            return self.sinks.error
        if error is None and self.settling is not None and self.settling.error is not None:
            return self.settling.error
        return failures.run_failed(self.flow, error, self.log) if error is not None else None

    def mark_seen(self) -> None:
        with contextlib.suppress(OSError):
            (self.folder / SEEN).touch()

    def clean_stop(self) -> CleanStop | RealTimeStop | SettledStop:
        if self.settling is not None:
            return SettledStop(RealTimeStop(self.query), self.settling)
        if self.slots:
            return RealTimeStop(self.query)
        return CleanStop(self.query, self.folder / definition.CHECKPOINT)

    def stop_now(self) -> None:
        with contextlib.suppress(PySparkException, Py4JError):  # it did not end in time; its JVM will
            self.query.stop()

    def committed(self) -> list[Span]:
        """What the last committed epoch had read up to, from the checkpoint."""
        return committed(self.folder / definition.CHECKPOINT)


def start(
    spark: SparkSession,
    flow: Flow,
    log: Log,
    app: str,
    *,
    once: bool = False,
    fresh: Collection[str] = (),
    trigger: str = TRIGGER,
    replay: Replay | None = None,
    owes: bool = True,
    has_read: bool = False,
) -> tuple[RunningFlow, Path | None]:
    """Starts one flow. Streams that are to begin afresh forget their checkpoint: it is set aside, and its new place
    returned; of a flow with several readers only those begin again, with the table as it is. With `owes`, a sink
    whose server is away does not stop the flow. One in real time that has to read what is there first does that, and
    ends, unless it `has_read`."""
    settings = log.settings
    folder = definition.folder_of(settings, app, flow.name)
    lock, made = acquire(spark, folder, flow.name), None
    try:
        if definition.folder_of(settings, app, flow.name) != folder:  # it was deployed while the lock was waited for
            raise ViewDeployed(view=flow.name, where=flow.where)
        anew = set(fresh) & set(flow.parts)
        aside = definition.set_aside(folder) if len(anew) == len(flow.parts) else None
        if flow.view is not None and log.data_source.format == "kafka":
            # An epoch that was begun is done again, and what it has delivered stays.
            begun = epochs(folder / definition.CHECKPOINT / "offsets")
            view_outlet.begin(flow.view, folder, log, app, afresh=not begun)
        if once and replay is None:
            lake_topics.catch_up(flow, log)
        # A view catches up in large epochs that are certain at once.
        first = flow.view is not None and realtime.runs_so(flow, log, once=once) and not has_read
        made = planned(spark, flow, log, app, once=once, replay=replay, owes=owes, first=first)
        if made.slots or made.slots_later:
            realtime.check_slots(spark, flow, made.slots or made.slots_later)
        if made.slots and not has_read and realtime.reads_first(made.new.kept):
            first = True
            made = planned(spark, flow, log, app, replay=replay, owes=owes, first=True)
        old = made.old
        refuse(flow, made, folder, log)
        sweep(folder / definition.CHECKPOINT)
        if made.sinks is not None:
            made.sinks.begin(made.spark)
        if old is not None and flow.shared is not None:
            joining = (set(made.new.streams) - set(old.streams)) | anew
            _catch_up(made, flow, folder, joining, set(made.new.sinks) - set(old.sinks), log)
        definition.remember(folder, made.new)
        writer = made.writer.queryName(f"{app}.{flow.name}").option(
            "checkpointLocation", str(folder / definition.CHECKPOINT)
        )
        if made.slots:
            writer = writer.trigger(realTime=f"{realtime.trigger_ms(flow)} milliseconds")  # type: ignore[call-overload]
        else:
            pace = _pace(flow) if trigger == TRIGGER else trigger
            ends = once or first
            writer = writer.trigger(availableNow=True) if ends else writer.trigger(processingTime=pace)
        outsized = made.topic_sink.outsized()
        query = _started(spark, flow, made, writer, log)
        realtime.take_slots(folder, made.slots or made.slots_later)
    except BaseException:
        if made is not None and made.sinks is not None:
            made.sinks.end()
        lock.release()
        raise
    settling = None
    if flow.view is not None and made.slots:
        settling = Settling(view_outlet.settler_of(flow.view, folder, log, app), flow.name)
        settling.start()
    log_path = log_file(settings)
    running = RunningFlow(
        flow, made.sources, folder, lock, query, log_path, made.topic_sink, made.slots, made.sinks, first, settling,
        outsized,
    )  # fmt: skip
    return running, aside


def _pace(flow: Flow) -> str:
    """How often a flow looks for new records. All its sinks wait for the one that wants longer epochs, where somebody
    said so; where nobody did, only if all of them would rather."""
    if flow.view is not None:
        return VIEW_TRIGGER
    said = [each.sink.every_ms for each in flow.sinks if each.sink.every_ms is not None]
    rather = [each.sink.pace_ms for each in flow.sinks]
    if said:
        return f"{max(said)} milliseconds"
    alone = not flow.streams and all(each is not None for each in rather)
    return f"{max(each for each in rather if each is not None)} milliseconds" if rather and alone else TRIGGER


@dataclass(frozen=True)
class Planned:
    """A flow as it could be started: nothing runs yet, and nothing was written. `old` is what its checkpoint says it
    was, `new` what it is; `slots` is how many it takes in real time, 0 if it does not run so, and `slots_later` how
    many when it has read what is there."""

    spark: SparkSession
    sources: tuple[AnySource, ...]
    old: definition.Definition | None
    new: definition.Definition
    writer: DataStreamWriter
    topic_sink: TopicSink
    slots: int
    sinks: Delivering | None = None
    slots_later: int = 0


def planned(
    spark: SparkSession,
    flow: Flow,
    log: Log,
    app: str,
    *,
    once: bool = False,
    replay: Replay | UpTo | None = None,
    owes: bool = True,
    deliver: Deliver | None = None,
    folder: Path | None = None,
    first: bool = False,
) -> Planned:
    """`deliver` makes what takes the epochs, if the sinks themselves are not to; a `folder` of one's own is for a flow
    that is done once more. With `first` a flow in real time as it is before that: epoch by epoch."""
    folder = folder or definition.folder_of(log.settings, app, flow.name)
    sources = tuple(source_of(readable, log, f"{app}.{flow.name}", replay) for readable in flow.reads)
    real_time = realtime.runs_so(flow, log, once=once)
    in_real_time = real_time and not first
    if in_real_time:
        sources = realtime.prompt(sources, flow)
    own = spark.newSession()
    own.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_REPORTS_KEPT))
    own.conf.set("spark.sql.streaming.stopTimeout", _STOP_NOW)
    if flow.view is not None:  # whatever the user's own functions are to have
        viewing.suit(own)
    old = definition.remembered(folder)
    if old is not None:
        # Spark pins it in the checkpoint anyway; said here it is the same in the plan that people look at.
        own.conf.set("spark.sql.shuffle.partitions", str(old.partitions))
    partitions = int(own.conf.get("spark.sql.shuffle.partitions") or 0)
    to_be = flow.view is not None and flow.view.of is not None and flow.view.of.epoch_ms is not None
    if old is None and (real_time or to_be) and "spark.sql.shuffle.partitions" not in log.settings.spark.options:
        partitions = min(partitions, realtime.MOST_SHUFFLED)
        own.conf.set("spark.sql.shuffle.partitions", str(partitions))
    new = definition.Definition.of(flow, sources, partitions, log)
    if old is not None:
        definition.check(flow, sources, folder, old, new)  # before the function meets columns that it does not know
    histories = Histories(own, log, sources, dict(old.histories) if old else {})
    topic_sink = TopicSink.of(flow, log, app, folder / definition.CHECKPOINT)
    topic_sink = replace(topic_sink, silent=isinstance(replay, UpTo))
    with noting() as noted, histories.told():
        clocks = folder / definition.CHECKPOINT / CLOCKS
        plan = FlowPlan(own, flow, sources, topic_sink, folder, clocks, once, in_real_time, replay, owes, deliver)
        writer, result, whole = plan.writer(noted)
    new = replace(new, histories=histories.found(), kept=kept(whole))
    slots = 0
    if result is not None:
        new = replace(new, operators=(*noted, *native(result)), fingerprint=fingerprint(result))
        if real_time:
            slots = realtime.slots_of(sources, result, log)
    now, later = (slots, 0) if in_real_time else (0, slots)
    return Planned(own, sources, old, new, writer, topic_sink, now, plan.sinks, later)


def refuse(flow: Flow, made: Planned, folder: Path, log: Log) -> None:
    """Refuses to go on with a checkpoint that is damaged, or does not fit."""
    refuse_damaged(flow, folder / definition.CHECKPOINT)
    if made.old is None:
        return
    definition.check_operators(flow, folder, made.old, made.new)
    _refuse_gap(flow, made.sources, folder, log)
    _refuse_stale(flow, made.sources, folder, log)


def source_of(readable: Readable | View, log: Log, group: str, replay: Replay | UpTo | None = None) -> AnySource:
    if isinstance(readable, Topic):
        return Source.of(readable, log, group, None if replay is None else replay.bounds(readable.name, log))
    if isinstance(readable, View):
        return ViewedSource.of(readable, log, group)
    return TableSource.of(readable, log, group, replay if isinstance(replay, UpTo) else None)


def _started(spark: SparkSession, flow: Flow, made: Planned, writer: DataStreamWriter, log: Log) -> StreamingQuery:
    # The query's thread takes over what the thread that starts it has.
    properties = {"spark.scheduler.pool": flow.name, **(realtime.IN_TASKS if made.slots else {})}
    for name, value in properties.items():
        spark.sparkContext.setLocalProperty(name, value)
    try:
        made.topic_sink.begin(made.spark)
        return writer.start()
    except Exception as error:
        raise failures.start_failed(flow, error, log_file(log.settings)) from error
    finally:
        for name in properties:
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


def _catch_up(
    made: Planned, flow: Flow, folder: Path, streams: Collection[str], sinks: Collection[str], log: Log
) -> None:
    """A reader or a sink that joins a table's flow is given the table as that holds it; then it goes on with the
    others, without a gap and without a repeat."""
    checkpoint = folder / definition.CHECKPOINT
    if not (streams or sinks) or not committed(checkpoint):
        return
    (source,) = made.sources
    assert isinstance(source, TableSource)
    try:
        Fanout(flow, made.topic_sink, made.sinks).catch_up(source.rows_held(made.spark, checkpoint), streams, sinks)
    except (PySparkException, Py4JError) as error:
        raise failures.run_failed(flow, error, log_file(log.settings)) from error


def _refuse_gap(flow: Flow, sources: tuple[AnySource, ...], folder: Path, log: Log) -> None:
    """A flow whose next records are gone is told so before it starts; Spark would take two minutes to find out."""
    names = {source.outside: source.name for source in sources}
    for span in committed(folder / definition.CHECKPOINT):
        held = log.topics.offsets(names[span.outside])
        if len(held) > len(span.end) and any(
            isinstance(source, TableSource) for source in sources if source.outside == span.outside
        ):
            reason = f"{span.outside} had {len(span.end)} partitions and has {len(held)} now, which moves its keys"
            raise RecordsGone(flow=flow.name, reason=reason, where=flow.where)
        for number, offset in span.end.items():
            first, last = held.get(int(number), (0, 0))
            if not first <= offset <= last:
                reason = f"partition {number} of {span.outside} holds {first} to {last}, the next was {offset}"
                raise RecordsGone(flow=flow.name, reason=reason, where=flow.where)


def _refuse_stale(flow: Flow, sources: tuple[AnySource, ...], folder: Path, log: Log) -> None:
    """Tombstones stay for a time. A reader of a table that was away for longer may have missed deletes."""
    done = epochs(folder / definition.CHECKPOINT / "commits")
    marks = [folder / SEEN, *(folder / definition.CHECKPOINT / "commits" / str(epoch) for epoch in done[-1:])]
    seen = max((mark.stat().st_mtime for mark in marks if mark.exists()), default=None)
    for source in sources:
        if not isinstance(source, Source) and seen is not None:
            stay_ms = int(log.topics.config(source.name).get("delete.retention.ms", DAY_MS))
            away_ms = (time.time() - seen) * 1000
            if away_ms > stay_ms:
                unit_ms = DAY_MS if away_ms > DAY_MS else 1_000
                away, stay = durations.spoken(int(away_ms // unit_ms * unit_ms)), durations.spoken(stay_ms)
                raise TableStale(flow=flow.name, table=source.name, away=away, stay=stay, where=flow.where)


def committed(checkpoint: Path) -> list[Span]:
    done = epochs(checkpoint / "commits")
    if not done:
        return []
    read = offsets_in(checkpoint / "offsets" / str(done[-1]))
    return [Span(outside, offsets, offsets, 0) for source in read for outside, offsets in source.items()]
