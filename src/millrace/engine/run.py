"""A run: all flows of an app, from start to a clean stop.

What holds: a flow is started only while its lock is held; a stop lets the epoch at hand end, so that every offset that
was written has its commit; the dead letters of every epoch that was heard of are written before the run ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.engine import definition, failures, lock, running
from millrace.engine.deadletters import DeadLetters
from millrace.engine.progress import Progress, Span
from millrace.engine.running import RunningFlow
from millrace.engine.session import close, jvm_lives, kill, log_file, session
from millrace.engine.traffic import TrafficThread
from millrace.errors import FlowUnknown, MillraceError, SessionGone, nearest
from millrace.flow import App, Graph, Stream
from millrace.log import Log

# An epoch that has not ended by then is interrupted; it will be done again.
STOP_S = 60.0
_LOOK_S = 0.02
_LOCK_LOOK_S = 2.0


@dataclass
class Run:
    """The flows of an app on Spark. Use it as a context: leaving it stops what still runs, cleanly.

    `only` names the flows to run (all otherwise), `fresh` those that forget their checkpoint first, `once` ends each
    flow when it has read what is there now. A given `spark` is used and left running.
    """

    app: App
    settings: Settings
    master: str | None = None
    only: Collection[str] = ()
    fresh: Collection[str] = ()
    once: bool = False
    traffic: bool = True
    spark: SparkSession | None = None

    graph: Graph = field(init=False)
    flows: dict[str, RunningFlow] = field(default_factory=dict, init=False)
    aside: dict[str, Path] = field(default_factory=dict, init=False)
    makers: list[TrafficThread] = field(default_factory=list, init=False)
    _waiting: list[Stream] = field(default_factory=list, init=False)
    _letters: dict[str, DeadLetters] = field(default_factory=dict, init=False)
    _own_session: bool = field(default=False, init=False)
    _locks_seen: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.graph = self.app.graph()
        names = [stream.name for stream in self.graph.streams]
        for name in (*self.only, *self.fresh):
            if name not in names:
                raise FlowUnknown(
                    app=self.graph.app, kind="stream", name=name, hint=nearest(name, names), known=", ".join(names)
                )
        self._log = Log(self.settings)
        self._log_file = log_file(self.settings)

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple(stream for stream in self.graph.streams if not self.only or stream.name in self.only)

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
        for stream in self.streams:
            lock.refuse_if_held(self._folder(stream), stream.name)
        for topic in self.graph.topics:
            self._log.topics.ensure(topic.name, partitions=topic.partitions)

    def start(self) -> None:
        self.prepare()
        if self.spark is None:
            self._own_session = True
            self.spark = session(self.settings, self.master, self.settings.named(self.graph.app))
        self._waiting = list(self.streams)
        self._start_ready()
        if self.traffic:
            self.makers = [TrafficThread(traffic, self._log) for traffic in self.graph.traffic]
            for maker in self.makers:
                maker.start()

    def poll(self) -> list[Progress]:
        """What happened since the last time. Raises the error of a flow, or of traffic, that ended by itself."""
        heard = self._hear(self.flows.values())
        self._raise_failure()
        if time.monotonic() - self._locks_seen > _LOCK_LOOK_S:
            for flow in self.flows.values():
                flow.lock.check()
            self._locks_seen = time.monotonic()
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

    def _leave(self, kind: type[BaseException] | None) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.kill()
        elif kind is None:
            self.stop()
        else:
            with contextlib.suppress(MillraceError):  # the error at hand is the one to tell about
                self.stop()

    def _raise_failure(self) -> None:
        found = [flow.failure() for flow in self.flows.values()] + [maker.failure() for maker in self.makers]
        for failure in found:
            if failure is not None:
                raise failure

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
        for stream in list(self._waiting):
            if not self.once or not self._fed(stream):
                self._waiting.remove(stream)
                self._start_flow(stream)

    def _fed(self, stream: Stream) -> bool:
        busy = [*self._waiting, *(flow.stream for flow in self.flows.values() if flow.active)]
        return any(other is not stream and other.output in stream.reads for other in busy)

    def _start_flow(self, stream: Stream) -> None:
        assert self.spark is not None
        flow, aside = running.start(
            self.spark, stream, self._log, self.graph.app, once=self.once, fresh=stream.name in self.fresh
        )
        self.flows[stream.name] = flow
        if aside:
            self.aside[stream.name] = aside
        for source in flow.sources:
            if source.topic.name not in self._letters:
                folder = definition.folder_of(self.settings, self.graph.app, "_dead")
                self._letters[source.topic.name] = DeadLetters(source, folder, self._log)
        self._keep(flow, flow.committed())

    def _hear(self, flows: Iterable[RunningFlow]) -> list[Progress]:
        heard = []
        for flow in flows:
            for progress, spans in flow.news():
                self._keep(flow, spans)
                heard.append(progress)
        return heard

    def _keep(self, flow: RunningFlow, spans: list[Span]) -> None:
        assert self.spark is not None
        names = {source.outside: source.topic.name for source in flow.sources}
        for span in spans:
            if span.outside in names:
                try:
                    self._letters[names[span.outside]].keep(self.spark, span)
                except (Py4JError, PySparkException) as error:
                    raise failures.run_failed(flow.stream, error, self._log_file) from error

    def _folder(self, stream: Stream) -> Path:
        return definition.folder_of(self.settings, self.graph.app, stream.name)
