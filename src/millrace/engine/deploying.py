"""`millrace deploy`: views whose SQL changed are built beside the old ones and then take their place.

What holds: until the new one is as far as the old one, nothing of the old one is touched, and whoever runs it goes on.
Then its run lets its flow go (`handing`), and while its lock is held here, the new one goes at least as far, ends, and
one file says that it is the view now (`generations`). That is the moment of the switch: killed before it, the old one
goes on as if nothing had been; after it, what is left to do (`joining`) is done by the next start.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.engine import changes, generations, handing, lock
from millrace.engine.applying import Applying
from millrace.engine.comparing import Compared, compare
from millrace.engine.definition import CHECKPOINT, folders_of, remembered
from millrace.engine.epochs import has_come, last_begun
from millrace.engine.generations import Generation
from millrace.engine.joining import drop, join
from millrace.engine.plan import Flow, refuse_unknown
from millrace.engine.run import Run
from millrace.engine.session import close, session
from millrace.engine.settling import Incarnation
from millrace.engine.stopping import epochs
from millrace.engine.topic_sink import TopicSink
from millrace.engine.view_epochs import ViewEpochs, marks
from millrace.engine.viewed import database_of, plan_of
from millrace.errors import CheckpointDamaged, FlowLocked, MillraceError, RecordsGone, TableStale, ViewNotDeployed
from millrace.failpoint import FailPoint
from millrace.flow import App, Graph, View
from millrace.kernel.calling import operator
from millrace.log import Log
from millrace.views.store import Shape, Store

_LOOK_S, _SAY_S = 0.1, 10.0
# Whoever is so far behind, or less, goes the rest of the way while the old one stands still.
CLOSE_S = 10.0
# How long an old run may take to end its epoch, and the view store to take the new rows.
LET_GO_S, APPLY_S = 120.0, 600.0


@dataclass(frozen=True)
class Deployed:
    """What became of a view: `new` ones were filled, others `switched`, or left as they were."""

    view: str
    outcome: str
    compared: Compared | None = None


@dataclass
class Deploy:
    """Of an app as its code is now; of those of its `views` that changed, or of all that did. `agree` is asked before a
    view is switched, and told how its rows differ if `diff` is set. A given `spark` is used and left running."""

    app: App
    settings: Settings
    say: Callable[[str], None]
    agree: Callable[[str, Compared | None], bool]
    views: Collection[str] = ()
    diff: bool = False
    master: str | None = None
    spark: SparkSession | None = None
    log: Log | None = None

    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        self.graph = self.app.graph()
        refuse_unknown(replace(self.graph, nodes=self.graph.views), self.views)
        self._log = self.log or Log(self.settings)
        self._folder = folders_of(self.settings, self.graph.app)

    def run(self) -> list[Deployed]:
        """One after the other, each after those that it reads."""
        own = None
        if self.spark is None:
            own = self.spark = session(self.settings, self.master, self.settings.named(self.graph.app))
        try:
            wanted = [view for view in self.graph.views if not self.views or view.name in self.views]
            return [self._deploy(view, self.spark) for view in wanted]
        finally:
            if own is not None:
                close(own)
                self.spark = None

    def _deploy(self, view: View, spark: SparkSession) -> Deployed:
        flow = Flow(view.name, (), view=view)
        answer = changes.answer(self.graph.app, flow, self._log, spark)
        if answer.verdict == "refused":
            raise ViewNotDeployed(view=view.name, reason=answer.reason, remedy="see to that first", where=view.where)
        if answer.verdict == "new":
            self._fill(view, spark)
            return Deployed(view.name, "new")
        generation = Generation.read(self._folder / view.name)
        if answer.goes_on:
            self._finish(view, generation, spark)
            return Deployed(view.name, "unchanged")
        self._refuse(view)
        return self._beside(view, generation, spark)

    def _fill(self, view: View, spark: SparkSession) -> None:
        """A view that is not there yet has nothing beside it."""
        self.say(f"{view.name}: filling it; it is new")
        run = Run(self.app, self.settings, only=[view.name], once=True, spark=spark, log=self._log, traffic=False)
        with run:
            self._until(run, lambda: run.done, view.name)

    def _finish(self, view: View, generation: Generation, spark: SparkSession) -> None:
        """A deploy that was cut off after the switch is brought to its end; what was begun and not switched goes."""
        handing.forget(self._folder / view.name)
        if generation.number > generations.FIRST and self._log.topics.exists(
            generations.beside(view.name, generation.number)
        ):
            self.say(f"{view.name}: going on with the switch that was cut off")
            with self._locked(spark, generation.folder(self._folder / view.name), view):
                self._take_place(view, generation)
        begun = generations.beside(view.name, generation.number + 1)
        is_there = (self._folder / begun).exists() or self._log.topics.exists(begun)
        if is_there and lock.holder(self._folder / begun, view.name) is None:
            self.say(f"{view.name}: what was begun for other SQL is thrown away")
            with self._locked(spark, self._folder / begun, view):
                self._discard(begun)

    def _discard(self, name: str) -> None:
        # The checkpoint first: a flow that has one would go on without the rows, one without makes its topics anew.
        shutil.rmtree(self._folder / name / CHECKPOINT, ignore_errors=True)
        drop(name, self._log)
        shutil.rmtree(self._folder / name, ignore_errors=True)

    def _refuse(self, view: View) -> None:
        readers = [each.name for each in self.graph.views if view in each.reads]
        if readers and not self._goes_on(view):
            raise ViewNotDeployed(
                view=view.name,
                reason=f"its columns, key or database are others than before, and {readers[0]} reads it",
                remedy=f"give it another name, or stop the run and `millrace run --fresh {view.name} --fresh …`",
                where=view.where,
            )

    def _goes_on(self, view: View) -> bool:
        """Whether the view's changelog can have the new rows behind the old ones."""
        shape = Shape(view.name, plan_of(view, self._log).columns, view.key)
        with contextlib.closing(Store(self.settings, self.graph.app)) as store:
            same = store.shape_of(view.name) == shape.told()
        told = marks(self._log, view.name)
        return same and bool(told) and told[-1].database == database_of(view)

    def _beside(self, view: View, old: Generation, spark: SparkSession) -> Deployed:
        name = generations.beside(view.name, old.number + 1)
        lock.refuse_if_held(self._folder / name, view.name)
        made = replace(view, name=name, of=view, epoch_ms=None)
        if not is_usable(view, lambda: changes.found(self.graph.app, Flow(name, (), view=made), self._log, spark)):
            self.say(f"{view.name}: what was begun for other SQL is thrown away")
            self._discard(name)
        begun = "going on with" if remembered(self._folder / name) else "building"
        self.say(f"{view.name}: {begun} the new one beside the old")
        run = Run(_Made(self.graph, made), self.settings, only=[name], spark=spark, log=self._log, trial=True)
        current = old.folder(self._folder / view.name)
        with run:
            self._until(run, lambda: self._is_whole(made), view.name)
            self._come_close(run, current, self._folder / name, view.name)
            compared = compare(self._log, view.name, name) if self.diff else None
            if not self.agree(view.name, compared):
                return Deployed(view.name, "left as it was", compared)
            with self._taken_over(run, current, view, spark):
                self._end(run, view, old, spark)
                self._switch(view, old, spark)
        return Deployed(view.name, "switched", compared)

    def _is_whole(self, made: View) -> bool:
        folder = self._folder / made.name
        done = epochs(folder / CHECKPOINT / "commits")
        return bool(done) and ViewEpochs(made, self._log, folder / CHECKPOINT, folder).reached(done[-1]).whole

    def _until(self, run: Run, done: Callable[[], bool], view: str) -> None:
        said = time.monotonic()
        while not done():
            run.poll()
            time.sleep(_LOOK_S)
            if time.monotonic() - said > _SAY_S:
                said = time.monotonic()
                read = sum(standing.rows_in for standing in run.standings.values())
                left = [standing.last.lag_records for standing in run.standings.values() if standing.last]
                more = f", {left[0]:,} to go" if left and left[0] is not None else ""
                self.say(f"{view}: {read:,} records read{more}")

    def _come_close(self, run: Run, old: Path, new: Path, view: str) -> None:
        """Until what the old one has is reached within seconds, or it comes no closer: both may be slow."""
        took_s, last_s = float("inf"), float("inf")
        while took_s > CLOSE_S and took_s <= last_s / 2:
            began, last_s = time.monotonic(), took_s
            self._reach(run, old, new, view)
            took_s = time.monotonic() - began

    def _reach(self, run: Run, old: Path, new: Path, view: str) -> None:
        """Until the new one has come to where the old one is now."""
        # Read once: Spark deletes it after a hundred more epochs, which an old one that goes on soon has.
        aim = last_begun(old / CHECKPOINT)
        self._until(run, lambda: has_come(new / CHECKPOINT, aim), view)

    @contextlib.contextmanager
    def _locked(self, spark: SparkSession, folder: Path, view: View) -> Iterator[None]:
        held = lock.acquire(spark, folder, view.name)
        try:
            yield
        finally:
            held.release()

    @contextlib.contextmanager
    def _taken_over(self, run: Run, folder: Path, view: View, spark: SparkSession) -> Iterator[None]:
        """With the lock of the old one's flow, which its run lets go of between two epochs."""
        deadline = time.monotonic() + LET_GO_S
        with handing.asking(self._folder / view.name, view.name):
            while True:
                try:
                    held = lock.acquire(spark, folder, view.name)
                    break
                except FlowLocked as error:
                    if time.monotonic() > deadline:
                        reason = f"its run does not let it go: {error}"
                        remedy = "stop that run, and deploy again: the new one goes on where it is"
                        raise ViewNotDeployed(view=view.name, reason=reason, remedy=remedy, where=view.where) from None
                run.poll()
            try:
                yield
            finally:
                held.release()

    def _end(self, run: Run, view: View, old: Generation, spark: SparkSession) -> None:
        """Brings the old one to its end, and the new one to where that is or further, and stops it."""
        folder, name = old.folder(self._folder / view.name), generations.beside(view.name, old.number + 1)
        sink = TopicSink.of(Flow(view.name, (), view=view), self._log, self.graph.app, folder / CHECKPOINT)
        sink.begin(spark)  # one that was killed may have left transactions open, or prepared
        sink.end()
        told = max((mark.lsn for mark in marks(self._log, view.name)), default=0)
        operator(spark, "Wanted").set(name, told)
        self._reach(run, folder, self._folder / name, view.name)
        run.stop()

    def _switch(self, view: View, old: Generation, spark: SparkSession) -> None:
        named, number = self._folder / view.name, old.number + 1
        folder = Generation(number).folder(named)
        with self._locked(spark, folder, view):
            joined = epochs(folder / CHECKPOINT / "commits")[-1]
            before = max((mark.epoch for mark in marks(self._log, view.name)), default=-1)
            renews = "" if self._goes_on(view) else self._log.topics.identity(view.name)
            if (spoke := Incarnation.read(old.folder(named))) is not None:
                # Tentative rows are told by a later incarnation than any before, or nobody would listen.
                Incarnation(spoke.number, joined).write(folder)
            new = Generation(number, before + 1 - joined, joined, renews)
            FailPoint.DEPLOY_SWITCHING.reached(view.name)
            new.write(named)
            FailPoint.DEPLOY_SWITCHED.reached(view.name)
            self._take_place(view, new)

    def _take_place(self, view: View, generation: Generation) -> None:
        """In the changelog, and in the view store."""
        join(view, generation.folder(self._folder / view.name), self._log, self.graph.app)
        # Nothing is tentative before the next run.
        applying = Applying(replace(view, epoch_ms=None), plan_of(view, self._log), self._log, self.graph.app)
        applying.start()
        applying.finish(APPLY_S)
        if applying.trouble is not None:
            self.say(f"{view.name}: the next run brings its rows into the view store: {applying.trouble}")


def is_usable(view: View, look: Callable[[], object]) -> bool:
    """Whether what was begun beside a view can be gone on with, which `look` raises if not. It is not thrown away for
    what may pass."""
    try:
        look()
    except (*changes.ANOTHER, CheckpointDamaged, RecordsGone, TableStale):  # which no waiting helps with
        return False
    except MillraceError as error:
        remedy = "see to that first"
        raise ViewNotDeployed(view=view.name, reason=str(error), remedy=remedy, where=view.where) from None
    return True


class _Made:
    """An app with a view that is made beside another one, and nothing else that runs."""

    def __init__(self, graph: Graph, view: View) -> None:
        self._graph = Graph.of(graph.app, graph.where, (*graph.databases, view))

    def graph(self) -> Graph:
        return self._graph
