"""A sink built again, beside the one that people read: `millrace rebuild`.

What holds: nothing that readers see changes before the switch, and whatever is killed when, running it again ends it.
The flow does not run meanwhile (its lock is held), so the new one is made to hold exactly what the flow's checkpoint
stands for, the last committed epoch, and the flow goes on with the next.

Where the rows come from: of a table, the flow's own state, which is its topic folded up to that epoch (a compacted
topic no longer has a row whose next change is already written). Of a stream or a topic, a replay of what its topics
still hold, up to the same offsets.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millrace.config import Settings
from millrace.engine import definition, failures, lock, running, switching
from millrace.engine.delivering import Delivering
from millrace.engine.epochs import last_committed
from millrace.engine.fanout import Fanout
from millrace.engine.feeding import fed
from millrace.engine.held import Held, holding
from millrace.engine.plan import Flow, flows_of
from millrace.engine.refusals import Refusals
from millrace.engine.replay import UpTo
from millrace.engine.run import Run
from millrace.engine.running import Planned
from millrace.engine.session import close, log_file, session
from millrace.engine.tables import TableSource
from millrace.errors import (
    MillraceError,
    RebuildEmpty,
    RebuildLoses,
    SinkNotRebuilt,
    SinksMissing,
    SinkUnknown,
    nearest,
)
from millrace.flow import App, Delivery, Graph, Stream, Table
from millrace.flow.nodes import Deliverable
from millrace.log import Log
from millrace.sinks.comparing import Differences
from millrace.sinks.contract import Feed, Guarantee, Refuse, RefusedRow, Sink, Writer
from millrace.sinks.ledger import Epoch
from millrace.sinks.rebuilding import REBUILT, Rebuilding, Site

# Of the keys that differ so many are said.
KEYS_SAID = 5
_LOOK_S = 0.2
_SAY_S = 5.0
_REPLAYED = "replayed"
_ANOTHER_NAME = "give it another name in the app: a sink that joins a table is given the table as it is"
_ANOTHER_TOPIC = "`millrace run --from earliest --into NAME` writes what the stream gives to another topic"


@dataclass(frozen=True)
class Rebuilt:
    """What became of a sink. `differences` are those of the old one to the new, `refused` how many rows the target did
    not take."""

    sink: str
    epoch: int
    differences: Differences
    refused: int
    switched: bool


@dataclass
class Rebuild:
    """Of one sink of an app. Without `switch`, it is built and compared and goes again. With `accept`, rows that a
    replay no longer gives may go. A given `spark` is used and left running, and so is a given `log`."""

    app: App
    settings: Settings
    sink: str
    say: Callable[[str], None]
    switch: bool = True
    accept: bool = False
    master: str | None = None
    spark: SparkSession | None = None
    log: Log | None = None

    graph: Graph = field(init=False)
    flow: Flow = field(init=False)
    delivery: Delivery = field(init=False)

    def __post_init__(self) -> None:
        self.graph = self.app.graph()
        self.flow, self.delivery = found(self.graph, self.sink)
        self._log = self.log or Log(self.settings)
        self._folder = definition.folder_of(self.settings, self.graph.app, self.flow.name)
        self._outside = f"{self._folder.parent.name}.{self.flow.name}"

    def run(self) -> list[Rebuilt]:
        """Of the sink, and of those of its flow that have to be built with it."""
        lock.refuse_if_held(self._folder, self.flow.name)
        own = None
        if self.spark is None:
            own = self.spark = session(self.settings, self.master, self.settings.named(self.graph.app))
        try:
            return self._run(self.spark)
        finally:
            if own is not None:
                close(own)
                self.spark = None

    def _run(self, spark: SparkSession) -> list[Rebuilt]:
        with self._locked(spark):
            made = self._planned(spark)
            if (epoch := self._committed()) is not None:
                return [self._rebuilt(made, self.delivery, epoch)]
            stale = [each for each in self.flow.sinks if can_be_rebuilt(each.sink) and self._holds(made, each)]
        if self.delivery not in stale:
            raise RebuildEmpty(flow=self.flow.name, sink=self.sink, where=self.delivery.where)
        names = ", ".join(each.name for each in stale)
        self.say(f"{self.flow.name} was begun anew: it is run to its end first, then {names} are built again")
        self._run_without(spark, stale)
        with self._locked(spark):
            made, epoch = self._planned(spark), self._committed()
            if epoch is None:
                raise RebuildEmpty(flow=self.flow.name, sink=self.sink, where=self.delivery.where)
            return [self._rebuilt(made, each, epoch) for each in stale]

    @contextlib.contextmanager
    def _locked(self, spark: SparkSession) -> Iterator[None]:
        held = lock.acquire(spark, self._folder, self.flow.name)
        try:
            yield
        finally:
            held.release()

    def _planned(self, spark: SparkSession) -> Planned:
        made = running.planned(spark, self.flow, self._log, self.graph.app, once=True, owes=False)
        running.refuse(self.flow, made, self._folder, self._log)
        return made

    def _committed(self) -> Epoch | None:
        return last_committed(self._outside, self._folder / definition.CHECKPOINT)

    def _holds(self, made: Planned, delivery: Delivery) -> bool:
        with self._rebuilding(made, delivery) as (rebuilding, _):
            return rebuilding.held() is not None

    def _rebuilt(self, made: Planned, delivery: Delivery, epoch: Epoch) -> Rebuilt:
        folder = self._folder / definition.SINKS / delivery.name
        with self._rebuilding(made, delivery) as (rebuilding, site):
            if (begun := switching.unfinished(folder)) is not None:
                self.say(f"{delivery.name}: going on with the switch to epoch {begun.number} that was cut off")
                switching.switch(rebuilding, folder, begun)
                if begun.entry == epoch.entry:
                    return Rebuilt(delivery.name, begun.number, Differences(), 0, switched=True)
            self.say(f"{delivery.name}: building another one beside it, up to epoch {epoch.number} of {self._outside}")
            refused: list[RefusedRow] = []
            with contextlib.closing(rebuilding.begin(epoch)) as writer:
                self._fill(made, delivery, epoch, site.feed, writer, refused.extend)
            differences = rebuilding.differences()
            self._tell(delivery.name, differences, refused)
            if not self.switch:
                rebuilding.discard()
                return Rebuilt(delivery.name, epoch.number, differences, len(refused), switched=False)
            self._check_loss(rebuilding, delivery, differences)
            if refused:
                Refusals(self._log, delivery.name).keep(self._outside, epoch.number, refused)
            switching.switch(rebuilding, folder, epoch)
        self.say(f"{delivery.name}: switched; it holds {self._outside} up to epoch {epoch.number}")
        return Rebuilt(delivery.name, epoch.number, differences, len(refused), switched=True)

    def _fill(
        self, made: Planned, delivery: Delivery, epoch: Epoch, feed: Feed, writer: Writer, refuse: Refuse
    ) -> None:
        try:
            if self.flow.shared is not None:
                self._fill_from_state(made, delivery, epoch, feed, writer, refuse)
            else:
                self._fill_by_replay(delivery, epoch, writer, refuse)
        except (PySparkException, Py4JError) as error:
            raise failures.run_failed(self.flow, error, log_file(self.settings)) from error

    def _fill_from_state(
        self, made: Planned, delivery: Delivery, epoch: Epoch, feed: Feed, writer: Writer, refuse: Refuse
    ) -> None:
        (source,) = made.sources
        assert isinstance(source, TableSource)
        with holding(source.rows_held(made.spark, self._folder / definition.CHECKPOINT)) as held:
            self.say(f"{delivery.name}: writing {held.rows.count():,} rows of {source.name}")
            frame = Fanout(self.flow, made.topic_sink).frames(held.rows)[delivery.of]
            writer.write(epoch, fed(frame, feed, epoch.number), refuse)

    def _fill_by_replay(self, delivery: Delivery, epoch: Epoch, writer: Writer, refuse: Refuse) -> None:
        assert self.spark is not None
        own = self._folder / definition.SINKS / delivery.name / _REPLAYED
        shutil.rmtree(own, ignore_errors=True)
        spans = running.committed(self._folder / definition.CHECKPOINT)
        ends = {span.outside: {int(number): end for number, end in span.end.items()} for span in spans}
        replaying: list[_Replaying] = []

        def deliver(feeds: Mapping[Delivery, Feed]) -> Delivering:
            replaying.append(_Replaying(delivery, feeds[delivery], epoch, writer, refuse))
            return replaying[0]

        flow = replace(self.flow, sinks=(delivery,))
        made = running.planned(
            self.spark, flow, self._log, self.graph.app, once=True, replay=UpTo(ends), deliver=deliver, folder=own
        )
        query = (
            made.writer.queryName(f"{self._outside}.{REBUILT}")
            .option("checkpointLocation", str(own / definition.CHECKPOINT))
            .trigger(availableNow=True)
            .start()
        )
        try:
            said = time.monotonic()
            while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]
                if time.monotonic() - said > _SAY_S:
                    said = time.monotonic()
                    self.say(f"{delivery.name}: {replaying[0].rows:,} records replayed")
        except PySparkException:
            if replaying[0].error is not None:
                raise replaying[0].error from None
            raise
        finally:
            query.stop()
        self.say(f"{delivery.name}: {replaying[0].rows:,} results of {len(ends)} topics written")
        shutil.rmtree(own, ignore_errors=True)

    def _tell(self, sink: str, differences: Differences, refused: Sequence[RefusedRow]) -> None:
        told = f"{sink}: {differences.wanted:,} rows are ready; in the old one {differences.text()}"
        keys = [f"{key} ({kind})" for key, kind in list(differences.keys.items())[:KEYS_SAID]]
        self.say(told + (f": {', '.join(keys)}{', …' if differences.count > len(keys) else ''}" if keys else ""))
        if refused:
            self.say(f"{sink}: {len(refused):,} rows were refused, the first because {refused[0].reason}")

    def _check_loss(self, rebuilding: Rebuilding, delivery: Delivery, differences: Differences) -> None:
        """A table's state has all of its rows. A replay has what its topics still hold."""
        if self.flow.shared is not None or self.accept or not differences.surplus:
            return
        rebuilding.discard()
        keys = [key for key, kind in differences.keys.items() if kind == "surplus"][:KEYS_SAID]
        facts = {"sink": delivery.name, "rows": differences.surplus, "keys": ", ".join(keys)}
        raise RebuildLoses(**facts, where=delivery.where)

    @contextlib.contextmanager
    def _rebuilding(self, made: Planned, delivery: Delivery) -> Iterator[tuple[Rebuilding, Site]]:
        site = site_of(made, delivery, self.settings, self._outside, self._folder)
        rebuilding = delivery.sink.rebuilding(site)
        assert rebuilding is not None
        with contextlib.closing(rebuilding):
            yield rebuilding, site

    def _run_without(self, spark: SparkSession, stale: Sequence[Delivery]) -> None:
        """Runs the flow to its end, with nobody in the place of these sinks."""
        run = Run(self.app, self.settings, only=self.flow.parts, once=True, traffic=False, spark=spark, log=self._log)
        nodes = (_nobody(node) if node in stale and isinstance(node, Delivery) else node for node in self.graph.nodes)
        run.graph = Graph.of(self.graph.app, self.graph.where, tuple(nodes))
        with run:
            while not run.done:
                run.poll()
                time.sleep(_LOOK_S)


def found(graph: Graph, sink: str) -> tuple[Flow, Delivery]:
    """A sink by its name, with the flow that writes it; refused if it cannot be built again."""
    if sink in {stream.name for stream in graph.streams}:
        reason = "it is a stream, and who reads its topic knows its offsets"
        raise SinkNotRebuilt(sink=sink, reason=reason, remedy=_ANOTHER_TOPIC)
    if not graph.deliveries:
        raise SinksMissing(app=graph.app, where=graph.where)
    for flow in flows_of(graph):
        for delivery in flow.sinks:
            if delivery.name == sink:
                if not can_be_rebuilt(delivery.sink):
                    reason = f"a {delivery.sink.kind} holds nothing"
                    raise SinkNotRebuilt(sink=sink, reason=reason, remedy=_ANOTHER_NAME, where=delivery.where)
                return flow, delivery
    names = [delivery.name for delivery in graph.deliveries]
    raise SinkUnknown(app=graph.app, sink=sink, hint=nearest(sink, names), known=", ".join(names))


def can_be_rebuilt(sink: Sink) -> bool:
    return type(sink).rebuilding is not Sink.rebuilding


def site_of(
    made: Planned, delivery: Delivery, settings: Settings, flow: str, folder: Path, purpose: str = REBUILT
) -> Site:
    """What the rebuilding of a sink is given. `flow` is the outside name, `folder` that of the flow."""
    assert made.sinks is not None
    feed = next(lane.feed for lane in made.sinks.lanes if lane.delivery.name == delivery.name)
    key = feed.key
    if not key and isinstance(delivery.of, Table):
        key = next(source.captured.key for source in made.sources if isinstance(source, TableSource))
    elif not key and isinstance(delivery.of, Stream):
        key = delivery.of.key
    return Site(settings, made.spark, flow, feed, folder / definition.SINKS / delivery.name, key, purpose)


class _Replaying(Delivering):
    """Gives what a replay makes to the writer of one sink. `epoch` is the one that all of it counts as: what the flow
    writes later is newer."""

    def __init__(self, delivery: Delivery, feed: Feed, epoch: Epoch, writer: Writer, refuse: Refuse) -> None:
        self.lanes, self.error, self.rows = [], None, 0
        self._delivery, self._feed, self._epoch = delivery, feed, epoch
        self._writer, self._refuse = writer, refuse

    def deliver(self, frames: Mapping[Deliverable, DataFrame], number: int, held: Held) -> None:
        self.rows += held.rows.count()
        rows = fed(frames[self._delivery.of], self._feed, self._epoch.number)
        try:
            self._writer.write(Epoch(self._epoch.flow, number, str(number)), rows, self._refuse)
        except MillraceError as error:
            self.error = error
            raise


@dataclass(frozen=True, eq=False)
class _Nobody(Sink):
    """In the place of a sink that is built again afterwards."""

    kind: ClassVar[str] = "nobody"
    guarantee: ClassVar[Guarantee] = "exactly once"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "rows"

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:  # noqa: ARG002 -- the contract
        return _Nothing()


class _Nothing(Writer):
    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        """They are in the flow's state, or in its topics."""


def _nobody(delivery: Delivery) -> Delivery:
    return replace(delivery, sink=_Nobody(delivery.name, delivery.where), asked=None)
