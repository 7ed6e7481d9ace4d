"""A run: all flows of an app, from start to a clean stop.

What holds: a flow is started only while its lock is held; a stop lets the epoch at hand end, so that every offset that
was written has its commit; the dead letters of every epoch that was heard of are written before the run ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace.capture import Captures, status, truncates
from millrace.config import Settings
from millrace.engine import definition, failures, lock, running
from millrace.engine.deadletters import DeadLetters
from millrace.engine.plan import Flow, flows_of
from millrace.engine.progress import Progress, Span
from millrace.engine.replay import Replay
from millrace.engine.running import RunningFlow
from millrace.engine.session import close, jvm_lives, kill, log_file, session
from millrace.engine.sources import Source
from millrace.engine.tables import TableSource, known
from millrace.engine.traffic import TrafficThread
from millrace.errors import (
    CaptureFailed,
    FlowUnknown,
    MillraceError,
    RowUnreadable,
    SessionGone,
    SlotLost,
    TableBroken,
    TableChanged,
    nearest,
)
from millrace.flow import App, Graph, Table
from millrace.log import Log

# An epoch that has not ended by then is interrupted; it will be done again.
STOP_S = 60.0
_LOOK_S = 0.02
_LOCK_LOOK_S = 2.0
_TEND_S = 10.0
_SNAPSHOT_LOOK_S = 0.5

_logger = logging.getLogger("millrace.engine")


@dataclass
class Run:
    """The flows of an app on Spark. Use it as a context: leaving it stops what still runs, cleanly.

    `only` names the flows to run (all otherwise), `fresh` those that forget their checkpoint first, `once` ends each
    flow when it has read what is there now. A given `spark` is used and left running, and so is a given `log`.
    With `replay` the flows run once more, into outputs of their own. `trigger` is how often a flow looks for records;
    `captures` says whether to see to the app's captures.
    """

    app: App
    settings: Settings
    master: str | None = None
    only: Collection[str] = ()
    fresh: Collection[str] = ()
    once: bool = False
    traffic: bool = True
    spark: SparkSession | None = None
    log: Log | None = None
    captures: bool = True
    trigger: str = running.TRIGGER
    replay: Replay | None = None

    graph: Graph = field(init=False)
    flows: dict[str, RunningFlow] = field(default_factory=dict, init=False)
    aside: dict[str, Path] = field(default_factory=dict, init=False)
    makers: list[TrafficThread] = field(default_factory=list, init=False)
    _waiting: list[Flow] = field(default_factory=list, init=False)
    _letters: dict[str, DeadLetters] = field(default_factory=dict, init=False)
    _own_session: bool = field(default=False, init=False)
    _locks_seen: float = field(default=0.0, init=False)
    _tended: float = field(default=0.0, init=False)
    _snapshots_seen: float = field(default=0.0, init=False)
    _unread: dict[Flow, list[str]] = field(default_factory=dict, init=False)
    _troubles: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.graph = self.app.graph()
        names = [stream.name for stream in self.graph.streams]
        for name in (*self.only, *self.fresh):
            if name not in names:
                raise FlowUnknown(
                    app=self.graph.app, kind="stream", name=name, hint=nearest(name, names), known=", ".join(names)
                )
        if self.replay is not None:
            self.graph = self.replay.graph(self.graph, self.only)
            self.once = self.once or self.replay.until is not None
        self._log = self.log or Log(self.settings)
        self._captures = Captures(self.settings, self._log)
        self._log_file = log_file(self.settings)

    @property
    def planned(self) -> tuple[Flow, ...]:
        """The flows to run. One that several streams share runs for all of them, or its readers would drift apart."""
        wanted = set(self.only)
        flows = flows_of(self.graph)
        return tuple(flow for flow in flows if not wanted or wanted & {stream.name for stream in flow.streams})

    def __enter__(self) -> Run:
        try:
            self.start()
        except BaseException as error:
            self._leave(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: TracebackType | BaseException | None) -> None:
        if kind is not None and issubclass(kind, Py4JError | OSError) and not jvm_lives():
            self.kill()
            raise SessionGone(log=self._log_file) from None
        self._leave(kind)

    def prepare(self) -> None:
        """What needs no Spark, and so is told in a second: refuses a flow that runs elsewhere, makes topics."""
        for flow in self.planned:
            lock.refuse_if_held(self._folder(flow), flow.name)
        for database in self.graph.databases if self.captures else ():
            self._captures.ensure(database.capture)
        for topic in self.graph.topics:
            self._log.topics.ensure(topic.name, partitions=topic.partitions)

    def start(self) -> None:
        self.prepare()
        if self.spark is None:
            self._own_session = True
            self.spark = session(self.settings, self.master, self.settings.named(self.graph.app))
        self._waiting = list(self.planned)
        self._start_ready()
        if self.traffic and self.replay is None:
            self.makers = [TrafficThread(traffic, self._log) for traffic in self.graph.traffic]
            for maker in self.makers:
                maker.start()

    def poll(self) -> list[Progress]:
        """What happened since the last time. Raises the error of a flow, or of traffic, that ended by itself."""
        heard = self._hear(self.flows.values())
        self._adapt()
        self._raise_failure()
        if time.monotonic() - self._locks_seen > _LOCK_LOOK_S:
            for flow in self.flows.values():
                flow.lock.check()
                flow.mark_seen()
            self._locks_seen = time.monotonic()
        if time.monotonic() - self._tended > _TEND_S:
            for database in self.graph.databases if self.captures else ():
                self._tend(database.capture.name)
            self._tended = time.monotonic()
        self._start_ready()
        return heard

    @property
    def done(self) -> bool:
        """Whether nothing runs and nothing waits to run: with `once`, everything has been read."""
        return not self._waiting and not any(flow.active for flow in self.flows.values())

    def stop(self, wait_s: float = STOP_S) -> list[Progress]:
        """Ends everything: made-up traffic, then each flow after its epoch, then the session if it is the run's own.

        Gives what was heard at last, and raises what ended a flow by itself. Flows that have not ended after `wait_s`
        are interrupted.
        """
        self._waiting.clear()
        for maker in self.makers:
            maker.stop(wait_s)
        try:
            self._end_flows(wait_s)
            heard = self._hear(self.flows.values())
            self._raise_failure()
        except KeyboardInterrupt:
            self.kill()
            raise
        except BaseException:
            self._let_go()
            raise
        self._let_go()
        return heard

    def kill(self) -> None:
        """Ends everything at once. The epoch at hand is lost and done again by the next run."""
        if self._own_session:
            self.flows.clear()
            self.makers.clear()
            kill()
            self.spark, self._own_session = None, False
        else:
            self.stop(wait_s=0)

    def abandon(self) -> None:
        """Discards the flows of a session that goes on, as a crash would: the epoch at hand is lost, nothing is heard
        or written any more, and what Spark holds in memory of their state is gone."""
        assert self.spark is not None
        for flow in self.flows.values():
            flow.stop_now()
            flow.lock.release()
        self.flows.clear()
        self._waiting.clear()
        java: Any = self.spark._jvm
        getattr(getattr(java.org.apache.spark.sql.execution.streaming.state, "StateStore$"), "MODULE$").stop()

    def _leave(self, kind: type[BaseException] | None) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.kill()
        elif kind is None:
            self.stop()
        else:
            with contextlib.suppress(MillraceError):  # the error at hand is the one to tell about
                self.stop()

    def _tend(self, capture: str) -> None:
        """A server that is away is waited for, and told of once; a gap in the changes ends the run."""
        try:
            self._captures.tend(capture)
            for line in truncates.mend(self._captures, capture):
                _logger.warning(line)
        except (SlotLost, CaptureFailed):
            raise
        except MillraceError as error:
            if str(error) not in self._troubles:
                _logger.warning("capture %s: %s", capture, error)
            self._troubles.add(str(error))
        else:
            self._troubles.clear()

    def _adapt(self) -> None:
        """Starts a flow again that met a table which somebody changed, if it can go on with it."""
        for flow in list(self.flows.values()):
            failure = flow.failure()
            if isinstance(failure, TableChanged | RowUnreadable) and self._adapted(flow, failure):
                flow.lock.release()
                del self.flows[flow.flow.name]
                self._start_flow(flow.flow, fresh=())

    def _raise_failure(self) -> None:
        for flow in self.flows.values():
            if (failure := flow.failure()) is not None:
                raise failure
        for maker in self.makers:
            if (failure := maker.failure()) is not None:
                raise failure

    def _adapted(self, flow: RunningFlow, failure: TableChanged | RowUnreadable) -> bool:
        """Whether the flow can go on with a table that was changed: its columns are looked up again, and are other ones
        now. (Rows are kept as text, so the flow's state does not mind.)"""
        for source in flow.sources:
            if not isinstance(source, TableSource) or source.captured.name != failure.facts["table"]:
                continue
            capture = source.table.capture
            if capture is None:
                return False
            # A value may be too large for its column's type because that was made wider.
            columns = json.loads(str(failure.facts.get("columns", "null")))
            changed = self._captures.refresh(capture.name, {source.captured.name: [tuple(columns)]} if columns else {})
            change = changed.get(source.captured.name)
            if change is None:  # nothing happened, or another flow of this run has looked before
                return known(source.table, self._log) != source.captured
            if change.breaks:
                raise TableBroken(flow=flow.flow.name, table=source.captured.name, reason=change.breaks)
            _logger.warning("%s goes on: %s", flow.flow.name, "; ".join(change.words))
            return True
        return False

    def _let_go(self) -> None:
        for flow in self.flows.values():
            flow.lock.release()
        self.flows.clear()
        self.makers.clear()
        if self._own_session and self.spark is not None:
            close(self.spark)
        elif self._own_session:
            kill()
        if self._own_session:
            self.spark, self._own_session = None, False

    def _end_flows(self, wait_s: float) -> None:
        stops = [(flow, flow.clean_stop()) for flow in self.flows.values() if flow.active]
        deadline = time.monotonic() + wait_s
        try:
            while (stops := [each for each in stops if not each[1].step()]) and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        finally:
            for flow, stop in stops:
                stop.release()
                flow.stop_now()

    def _start_ready(self) -> None:
        """Starts the flows that may start: all at once, but with `once` each after those that feed it have ended."""
        self._look_at_snapshots()
        for flow in list(self._waiting):
            if (not self.once or not self._fed(flow)) and not self._unread.get(flow):
                self._waiting.remove(flow)
                self._start_flow(flow, self.fresh)

    def _look_at_snapshots(self) -> None:
        """A flow's first events must not meet a table of which only some rows are read yet: it waits for the rest."""
        soon = time.monotonic() - self._snapshots_seen < _SNAPSHOT_LOOK_S
        if not self._waiting or not self.captures or soon:
            return
        for flow in self._waiting:
            tables = self._captured(flow) if self._is_new(flow) else []
            unread = [table.name for table in tables if self._is_unread(table)]
            if unread and flow not in self._unread:
                _logger.warning("%s waits until all rows of %s are read", flow.name, ", ".join(unread))
            self._unread[flow] = unread
        self._snapshots_seen = time.monotonic()

    def _captured(self, flow: Flow) -> list[Table]:
        """The tables that a flow reads beside something else; one that it reads alone may come bit by bit."""
        if flow.shared is not None:
            return []
        return [source for source in flow.reads if isinstance(source, Table) and source.capture is not None]

    def _is_new(self, flow: Flow) -> bool:
        begun = running.committed(self._folder(flow) / definition.CHECKPOINT)
        return not begun or any(stream.name in self.fresh for stream in flow.streams)

    def _is_unread(self, table: Table) -> bool:
        assert table.capture is not None
        names = status.unread(self._captures, table.capture.name)
        return any(table.table in (name, name.partition(".")[2]) for name in names)

    def _fed(self, flow: Flow) -> bool:
        busy = [*self._waiting, *(running.flow for running in self.flows.values() if running.active)]
        return any(other.feeds(flow) for other in busy)

    def _start_flow(self, flow: Flow, fresh: Collection[str]) -> None:
        assert self.spark is not None
        started, aside = running.start(
            self.spark,
            flow,
            self._log,
            self.graph.app,
            once=self.once,
            fresh=fresh,
            trigger=self.trigger,
            replay=self.replay,
        )
        self.flows[flow.name] = started
        if aside:
            self.aside[flow.name] = aside
        for source in started.sources if self.replay is None else ():
            if isinstance(source, Source) and source.name not in self._letters:
                folder = definition.folder_of(self.settings, self.graph.app, "_dead")
                self._letters[source.name] = DeadLetters(source, folder, self._log)
        self._keep(started, started.committed())

    def _hear(self, flows: Iterable[RunningFlow]) -> list[Progress]:
        heard = []
        for flow in flows:
            for progress, spans in flow.news():
                self._keep(flow, spans)
                heard.append(progress)
        return heard

    def _keep(self, flow: RunningFlow, spans: list[Span]) -> None:
        assert self.spark is not None
        names = {source.outside: source.name for source in flow.sources if isinstance(source, Source)}
        for span in spans:
            if names.get(span.outside) in self._letters:
                try:
                    self._letters[names[span.outside]].keep(self.spark, span)
                except (Py4JError, PySparkException) as error:
                    raise failures.run_failed(flow.flow, error, self._log_file) from error

    def _folder(self, flow: Flow) -> Path:
        return definition.folder_of(self.settings, self.graph.app, flow.name)
