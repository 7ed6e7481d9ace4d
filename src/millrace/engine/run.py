"""A run: all flows of an app, from start to a clean stop.

What holds: a flow is started only while its lock is held; a stop lets the epoch at hand end, so that every offset that
was written has its commit; the dead letters of every epoch that was heard of are written before the run ends. A flow
that fails does not stop the others: it is started again if its failure may pass (`restarts`), and ends otherwise; the
run ends with that error when nothing is left to run, or when it is stopped.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millrace.capture import Captures
from millrace.config import Settings
from millrace.engine import definition, failures, lock, realtime, running
from millrace.engine.applying import Appliers
from millrace.engine.deadletters import DeadLetters
from millrace.engine.handing import Handing
from millrace.engine.keeping import FINISH_S, Keeping
from millrace.engine.places import Places
from millrace.engine.plan import Flow, flows_of, refuse_unknown
from millrace.engine.progress import Progress, Span
from millrace.engine.replay import Replay
from millrace.engine.restarts import MOST_TRIES_ONCE, passes
from millrace.engine.running import RunningFlow
from millrace.engine.session import close, has_ended, jvm_ended, jvm_lives, kill, log_file, partitions, session
from millrace.engine.sources import Source
from millrace.engine.standing import NOT_STARTED, Board, Standing, State, tell_troubles
from millrace.engine.stopping import forget_states
from millrace.engine.tending import Tending
from millrace.engine.traffic import Maker, makers_of, renew
from millrace.engine.waiting import Waiting
from millrace.errors import (
    DeadLettersOwed,
    FlowFailed,
    MillraceError,
    RowUnreadable,
    SessionGone,
    TableChanged,
)
from millrace.flow import Graph, Graphed
from millrace.log import Log

# An epoch that has not ended by then is interrupted; it will be done again.
STOP_S = 60.0
_LOOK_S = 0.02
_LOCK_LOOK_S = 2.0
_TEND_S = 10.0
_REACH_S = 3.0

_logger = logging.getLogger("millrace.engine")


@dataclass
class Run:
    """The flows of an app on Spark. Use it as a context: leaving it stops what still runs, cleanly.

    `only` names the flows to run (all otherwise), `fresh` those that forget their checkpoint first, `once` ends each
    flow when it has read what is there now. A given `spark` is used and left running, and so is a given `log`.
    With `replay` the flows run once more, into outputs of their own. `trigger` is how often a flow looks for records;
    `captures` says whether to see to the app's captures. In a `trial` nothing is started again after a failure, and no
    consumer group is told of.

    `standings` tells how each flow stands, `failed` why one ended that is not started again.
    """

    app: Graphed
    settings: Settings
    master: str | None = None
    only: Collection[str] = ()
    fresh: Collection[str] = ()
    once: bool = False
    traffic: bool = True
    spark: SparkSession | None = None
    log: Log | None = None
    captures: bool = True
    trial: bool = False
    trigger: str = running.TRIGGER
    replay: Replay | None = None

    graph: Graph = field(init=False)
    flows: dict[str, RunningFlow] = field(default_factory=dict, init=False)
    aside: dict[str, Path] = field(default_factory=dict, init=False)
    makers: list[Maker] = field(default_factory=list, init=False)
    standings: dict[str, Standing] = field(default_factory=dict, init=False)
    failed: dict[str, MillraceError] = field(default_factory=dict, init=False)
    _troubled: dict[str, MillraceError] = field(default_factory=dict, init=False)
    _begun: set[str] = field(default_factory=set, init=False)
    _raised: bool = field(default=False, init=False)
    _letters: dict[str, DeadLetters] = field(default_factory=dict, init=False)
    _own_session: bool = field(default=False, init=False)
    _locks_seen: float = field(default=0.0, init=False)
    _tended: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.graph = self.app.graph()
        refuse_unknown(self.graph, (*self.only, *self.fresh))
        if self.replay is not None:
            self.graph, self.replay = self.replay.applied(self.graph, self.only)
        self._log = self.log or Log(self.settings)
        self._captures = Captures(self.settings, self._log)
        self._tending = Tending(self._captures, [each.capture.name for each in self.graph.databases if self.captures])
        self._places = Places(self._log, self.graph.app)
        folder = definition.folders_of(self.settings, self.graph.app)
        self._board, self._handing = Board(folder), Handing(folder, once=self.once)
        self._log_file = log_file(self.settings)
        self._waiting = Waiting((), once=self.once, unread=self._unread, busy=self._busy)
        self._keeping = Keeping(self._log_file)
        self._applying = Appliers(self._log, self.graph.app)

    @property
    def planned(self) -> tuple[Flow, ...]:
        """The flows to run. One that several streams share runs for all of them, or its readers would drift apart."""
        wanted = set(self.only)
        flows = [flow for flow in flows_of(self.graph) if self.replay is None or flow.view is None]
        return tuple(flow for flow in flows if not wanted or wanted & set(flow.parts))

    def __enter__(self) -> Run:
        try:
            self.start()
        except BaseException as error:
            self._leave(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: TracebackType | BaseException | None) -> None:
        if kind is not None and issubclass(kind, Py4JError | OSError) and jvm_ended():
            self.kill()
            raise SessionGone(log=self._log_file) from None
        self._leave(kind)

    def prepare(self) -> None:
        """What needs no Spark, and so is told in a second: refuses a flow that runs elsewhere, makes topics."""
        for flow in self.planned:
            lock.refuse_if_held(self._folder(flow), flow.name)
        for database in self.graph.databases if self.captures else ():
            if self.replay is None:
                self._captures.ensure(database.capture)
            else:
                self._captures.get(database.capture.name)  # a replay changes nothing that lives
        if self.replay is not None:
            self.replay = self.replay.begin(self._folder(self.planned[0]).parent, self._log)
            self.once = self.once or self.replay.ends
        for topic in self.graph.topics:
            self._log.topics.ensure(topic.name, partitions=topic.partitions, retention=topic.retention)

    def start(self) -> None:
        self.prepare()
        if self.spark is None:
            self._own_session = True
            name = self.settings.named(self.graph.app)
            self.spark = session(self.settings, self.master, name, self.slots_wanted())
        self._waiting = Waiting(self.planned, once=self.once, unread=self._unread, busy=self._busy)
        self.standings = {flow.name: Standing.new(flow.name, flow.guarantee) for flow in self.planned}
        if not self.trial:
            self._places.start()
            self._keeping.begin(self.spark)
        self._start_ready()
        if self.replay is None:
            self.makers = makers_of(self.graph, self._log, traffic=self.traffic, lakes=not (self.once or self.trial))
            for maker in self.makers:
                maker.start()

    def poll(self) -> list[Progress]:
        """What happened since the last time. Raises the error of the last flow that could run, or of traffic."""
        # Asked before the news: what a flow did until it failed is heard before it is let go.
        ended = [(flow, failure) for flow in self.flows.values() if (failure := flow.failure()) is not None]
        have_read = [flow for flow in self.flows.values() if flow.has_read]
        heard = self._hear(self.flows.values())
        for flow, failure in ended:
            if self.flows.get(flow.flow.name) is flow:
                self._recover(flow, failure)
        for flow in have_read:
            self._let_flow_go(flow.flow)
            self._waiting.add_read(flow.flow)
        renew(self.makers)
        if time.monotonic() - self._locks_seen > _LOCK_LOOK_S:
            self._check_locks()
            self._locks_seen = time.monotonic()
        if time.monotonic() - self._tended > _TEND_S:
            self._tending.tend()
            self._tended = time.monotonic()
        self._handing.step(self.flows, self._waiting.flows, self._hand_over)
        self._start_ready()
        self._tell_troubles()
        self._board.show(self.standings, time.monotonic())
        return heard

    @property
    def done(self) -> bool:
        """Whether nothing runs and nothing waits to run: with `once`, everything has been read."""
        return self._over and not self._keeping.busy and not self._applying.busy

    @property
    def _over(self) -> bool:
        return not self._waiting.flows and not self._busy() and not self._handing.away

    def stop(self, wait_s: float = STOP_S) -> list[Progress]:
        """Ends everything: made-up traffic, then each flow after its epoch, then the session if it is the run's own.

        Gives what was heard at last, and raises what ended a flow by itself, or keeps one from running. Flows that have
        not ended after `wait_s` are interrupted.
        """
        deadline = time.monotonic() + wait_s
        self._waiting.flows.clear()
        self._handing.end()
        for maker in self.makers:
            maker.stop(wait_s)
        try:
            self._end_flows(wait_s)
            heard = self._hear(self.flows.values())
            self._applying.finish(deadline)
            letters = self._keeping.finish(min(max(deadline - time.monotonic(), 0), FINISH_S))
            owing = [*(flow.owes() for flow in self.flows.values()), *self._applying.troubles().values()]
            owed = letters or next((owed for owed in owing if owed), None)
            self._raise_failure()
            if owed is not None:
                raise owed
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
            self._places.end()
            self._keeping.end()
            self._applying.end()
            for maker in self.makers:
                maker.stop(0)
            kill()
            for flow in self.flows.values():
                flow.release(0)
            self.flows.clear()
            self.makers.clear()
            self.spark, self._own_session = None, False
        else:
            with contextlib.suppress(DeadLettersOwed):  # the next run writes them
                self.stop(wait_s=0)

    def abandon(self) -> None:
        """Discards the flows of a session that goes on, as a crash would: the epoch at hand is lost, nothing is heard
        or written any more, and what Spark holds in memory of their state is gone."""
        assert self.spark is not None
        for flow in self.flows.values():
            flow.stop_now()
            flow.release()
        self.flows.clear()
        self._waiting.flows.clear()
        forget_states()

    def _leave(self, kind: type[BaseException] | None) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.kill()
        elif kind is None:
            self.stop()
        else:
            with contextlib.suppress(MillraceError):  # the error at hand is the one to tell about
                self.stop()

    def _recover(self, flow: RunningFlow, failure: MillraceError) -> None:
        """Starts a flow again that met a table which somebody changed, if it can go on with it; otherwise it failed."""
        try:
            adapted = (
                self.captures
                and isinstance(failure, TableChanged | RowUnreadable)
                and self._tending.adapted(flow, failure)
            )
        except MillraceError as error:
            return self._fail(flow.flow, error)
        if not adapted:
            return self._fail(flow.flow, failure)
        self._let_flow_go(flow.flow)
        self._waiting.flows.append(flow.flow)
        return None

    def _fail(self, flow: Flow, error: MillraceError) -> None:
        """Lets a flow go that failed, to be started again later if that may help. Raises when nothing else is left."""
        self._let_flow_go(flow)
        if self._handing.takes(flow, error, self._hand_over):
            return
        self._board.leave(flow.name, error)
        if self.trial or has_ended(self.spark):
            raise error
        restarts = self._waiting.restarts[flow.name]
        if passes(error) and not (self.once and restarts.in_a_row >= MOST_TRIES_ONCE):
            chance = random.random()  # noqa: S311 -- apart is enough, nobody has to be surprised
            wait_s, news = restarts.failed(time.monotonic(), str(error), chance)
            self._troubled[flow.name] = error
            self._waiting.flows.append(flow)
            self._becomes(flow.name, "restarting", str(error))
            level = logging.WARNING if news else logging.DEBUG
            told = {"event": "restart", "flow": flow.name, "failures": restarts.in_a_row, "wait_s": round(wait_s, 1)}
            _logger.log(level, "%s is started again in %.0f s: %s", flow.name, wait_s, error, extra=told)
            return
        self._end(flow, error)
        if self._over:
            self._raised = True
            raise error  # the others were told when they came

    def _end(self, flow: Flow, error: MillraceError) -> None:
        """For this run."""
        self.failed[flow.name] = error
        self._becomes(flow.name, "failed", str(error))
        for left, because in self._waiting.leave_out(flow):
            self._becomes(left.name, "failed", f"{NOT_STARTED} {because.name} failed")
        if not self._over:  # or the run itself ends with it
            _logger.error("%s", error, extra={"event": "failure", "flow": flow.name, "code": error.code})

    def _let_flow_go(self, flow: Flow) -> None:
        if (started := self.flows.get(flow.name)) is None:
            return
        if started.active:
            started.stop_now()
        if started.active:  # two would write its checkpoint
            raise FlowFailed(flow=flow.name, reason="its epoch could not be interrupted", log=self._log_file)
        self.flows.pop(flow.name).release()

    def _hand_over(self, flow: Flow) -> None:
        self._applying.let_go(flow.name)
        self._let_flow_go(flow)
        self._troubled.pop(flow.name, None)
        self._becomes(flow.name, "ended")

    def _check_locks(self) -> None:
        for flow in list(self.flows.values()):
            try:
                flow.lock.check()
            except MillraceError as error:
                self._fail(flow.flow, error)
            else:
                flow.mark_seen()

    def _raise_failure(self) -> None:
        for flow in self.flows.values():
            if (failure := flow.failure()) is not None:
                self._becomes(flow.flow.name, "failed", str(failure))
                raise failure
        for error in () if self._raised else (*self.failed.values(), *self._troubled.values()):
            raise error
        renew(self.makers)

    def _let_go(self) -> None:
        for flow in self.flows.values():
            if self.standings[flow.flow.name].state == "running":
                self._becomes(flow.flow.name, "ended")
        self._board.show(self.standings, time.monotonic(), at_last=True)
        self._keeping.end()
        self._places.finish()
        self._applying.end()
        for flow in self.flows.values():
            flow.release()
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
        except KeyboardInterrupt:
            if self._own_session:  # it is killed next; the call that was interrupted may have left disorder behind
                stops = []
            raise
        finally:
            for flow, stop in stops:
                stop.release()
                flow.stop_now()

    def _start_ready(self) -> None:
        """Starts the flows that may start: all at once, but with `once` each after those that feed it have ended."""
        for flow in self._waiting.ready():
            try:
                if flow.name in self._troubled:  # perhaps of a broker that is still away, and starting asks it a lot
                    self._log.topics.reach(_REACH_S)
                self._start_flow(flow, () if flow.name in self._begun else self.fresh)
            except MillraceError as error:
                self._fail(flow, error)
            except (Py4JError, PySparkException) as error:
                if not jvm_lives():
                    raise
                self._fail(flow, failures.run_failed(flow, error, self._log_file))
            except OSError as error:  # a full disk; a JVM that is gone hangs up
                if isinstance(error, ConnectionError) or not jvm_lives():
                    raise
                self._fail(flow, FlowFailed(flow=flow.name, reason=str(error), log=self._log_file))

    def _unread(self, flow: Flow) -> list[str]:
        """Of a flow that begins, the tables of which only some rows are read yet."""
        begun = running.committed(self._folder(flow) / definition.CHECKPOINT)
        anew = not begun or any(part in self.fresh for part in flow.parts)
        return self._tending.unread(flow) if self.captures and anew else []

    def _busy(self) -> list[Flow]:
        """The flows at work, and those that failed and were not heard yet: they may come back."""
        return [flow.flow for flow in self.flows.values() if flow.busy]

    def slots_wanted(self) -> int:
        """How many slots a session should have for its flows in real time; 0 if none runs so."""
        shuffled = partitions(self.master or self.settings.spark.master, self.settings.spark.revealed())
        return 0 if self.once else realtime.slots_guessed(self.planned, shuffled, self._log)

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
            owes=not self.trial,
            has_read=self._waiting.take_read(flow),
        )
        self.flows[flow.name] = started
        self._begun.add(flow.name)
        self._applying.begin(flow, self.spark)
        if aside:
            self.aside[flow.name] = aside
        for source in started.sources if self.replay is None and not (flow.view and flow.view.of) else ():
            if isinstance(source, Source) and source.name not in self._letters:
                folder = definition.folder_of(self.settings, self.graph.app, "_dead")
                self._letters[source.name] = DeadLetters(source, folder, self._log)
        self._keep(started, started.committed())
        self._places.note(flow.name, started.committed())
        self._troubled.pop(flow.name, None)
        self._waiting.restarts[flow.name].started(time.monotonic())
        self._becomes(flow.name, "running")
        _logger.info("%s runs", flow.name, extra={"event": "start", "flow": flow.name})

    def _hear(self, flows: Iterable[RunningFlow]) -> list[Progress]:
        heard = []
        for flow in list(flows):
            name, news = flow.flow.name, flow.news()
            for progress, _ in news:
                self._waiting.restarts[name].committed(time.monotonic())
                self.standings[name] = self.standings[name].after(progress)
                heard.append(progress)
            self.standings[name] = self.standings[name].delivering(flow.standing()).taking(flow.under_way())
            if flow.idle:
                self.standings[name] = self.standings[name].sign(datetime.fromisoformat(flow.idle))
            if self.standings[name].state == "running" and not (flow.active or flow.first) and flow.failure() is None:
                self._becomes(name, "ended")
            for _, spans in news:
                self._keep(flow, spans)
                self._places.note(name, spans)
        return heard

    def _tell_troubles(self) -> None:
        owed = {name: owed for name, flow in self.flows.items() if (owed := flow.owes())}
        tell_troubles(self.standings, {**owed, **self._applying.troubles(), **self._keeping.troubles()})

    def _becomes(self, flow: str, state: State, error: str | None = None) -> None:
        self.standings[flow] = self.standings[flow].becomes(state, error)

    def _keep(self, flow: RunningFlow, spans: list[Span]) -> None:
        """Sees to the dead letters of an epoch: at once in a trial, otherwise beside the loop."""
        assert self.spark is not None
        names = {source.outside: source.name for source in flow.sources if isinstance(source, Source)}
        for span in spans:
            letters = self._letters.get(names.get(span.outside, ""))
            if letters is None:
                continue
            if not self.trial:
                self._keeping.note(flow.flow.name, letters, span)
                continue
            try:
                letters.keep(self.spark, span)
            except (Py4JError, PySparkException) as error:
                raise failures.run_failed(flow.flow, error, self._log_file) from error

    def _folder(self, flow: Flow) -> Path:
        return definition.folder_of(self.settings, self.graph.app, flow.name)
