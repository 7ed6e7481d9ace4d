"""The sinks of a captured table against its topic: what is missing in them, surplus or different, while changes go on.

What is promised: a key that is told of was settled. The ledger is asked first, then the sink is read, then the topic to
its end of that moment. A key of which the topic has no record from the ledger's place on was in the sink before it was
read, and nothing that came later could have touched it: it must be equal. Keys that were on their way are looked at
again, when the flow has come further; those that change each time are counted as unsettled.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millrace.config import Settings
from millrace.engine import definition, lock, running
from millrace.engine.fanout import Fanout
from millrace.engine.feeding import fed
from millrace.engine.plan import Flow, flows_of
from millrace.engine.rebuild import can_be_rebuilt, site_of
from millrace.engine.running import Planned
from millrace.engine.tables import TableSource, known
from millrace.flow import Delivery, Graph, Table
from millrace.log import Log
from millrace.sinks.comparing import Differences, compare
from millrace.sinks.ledger import Entry
from millrace.sinks.rebuilding import VERIFIED, Rebuilding, Site

LOOKS = 4
# How long a flow that runs is waited for, until a sink holds what the topic had.
WAIT_S = 30.0
_LOOK_S = 0.5
# Keys on their way that are known by name; with more, nothing is told that was not settled.
MOST_MOVING = 500_000


@dataclass(frozen=True)
class SinkVerified:
    """What a comparison found of one sink. `unsettled` keys were on their way each time that they were looked at;
    `runs` tells whether the flow does, so that they arrive. `left_out` is why it was not compared, if it was not."""

    sink: str
    flow: str
    rows: int = 0
    differences: Differences | None = None
    unsettled: int = 0
    runs: bool = False
    left_out: str | None = None

    @property
    def clean(self) -> bool:
        """One that holds nothing to be compared says nothing against it."""
        return self.left_out is not None or not (self.unsettled or self.differences is None or self.differences.count)

    def text(self) -> str:
        if self.left_out is not None:
            return f"{self.sink} was not compared: {self.left_out}"
        assert self.differences is not None
        if self.clean:
            return f"{self.sink} is true: {self.rows:,} rows, all as in the topic"
        told = f"{self.sink} is not true: {self.differences.text()} ({self.rows:,} rows in the topic)"
        if not self.differences.count:
            told = f"{self.sink} cannot be judged yet"
        if self.unsettled:
            when = "verify again" if self.runs else "run the flow, then verify again"
            told += f"; {self.unsettled:,} keys are on their way: {when}"
        return told


@dataclass
class VerifySinks:
    """Of the flow of a table that an app captures; `topic` is the table's. Nothing is locked, and nothing changed."""

    graph: Graph
    settings: Settings
    log: Log
    topic: str

    def __post_init__(self) -> None:
        self.flow = self._flow()
        self._folder = definition.folder_of(self.settings, self.graph.app, self.flow.name if self.flow else "")

    def _flow(self) -> Flow | None:
        for flow in flows_of(self.graph):
            if flow.shared is not None and flow.sinks and known(flow.shared, self.log).topic == self.topic:
                return flow
        return None

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.flow.sinks) if self.flow else ()

    def run(self, spark: SparkSession) -> list[SinkVerified]:
        if self.flow is None:
            return []
        made = running.planned(spark, self.flow, self.log, self.graph.app, once=True, owes=False)
        return [self._verified(made, self.flow, delivery) for delivery in self.flow.sinks]

    def _verified(self, made: Planned, flow: Flow, delivery: Delivery) -> SinkVerified:
        outside = f"{self._folder.parent.name}.{flow.name}"
        if not can_be_rebuilt(delivery.sink):
            kind = delivery.sink.kind
            return SinkVerified(delivery.name, flow.name, left_out=f"a {kind} holds nothing that could be compared")
        site = site_of(made, delivery, self.settings, outside, self._folder, VERIFIED)
        rebuilding = delivery.sink.rebuilding(site)
        assert rebuilding is not None
        with contextlib.closing(rebuilding):
            try:
                return _Looking(made, flow, delivery, rebuilding, site, self.log, self._folder).run()
            finally:
                rebuilding.discard()


@dataclass
class _Looking:
    made: Planned
    flow: Flow
    delivery: Delivery
    rebuilding: Rebuilding
    site: Site
    log: Log
    folder: Path

    def __post_init__(self) -> None:
        (source,) = self.made.sources
        assert isinstance(source, TableSource)
        self.source = source

    def run(self) -> SinkVerified:
        name, flow = self.delivery.name, self.flow.name
        if self.rebuilding.held() is None:
            return SinkVerified(name, flow, left_out="it holds nothing of the flow yet")
        found, rows, unsettled = Differences(), 0, set[str]()
        for look in range(LOOKS):
            self._await()
            differences, moving, known_by_name = self._look()
            rows = differences.wanted
            if look:  # only what was on its way before is still to be judged
                differences = differences.without(set(differences.keys) - unsettled)
            on_their_way = set(differences.keys) & moving if known_by_name else set(differences.keys)
            settled = differences.without(on_their_way)
            found = _together(found, settled)
            unsettled = on_their_way
            if not unsettled:
                break
        return SinkVerified(name, flow, rows, found, len(unsettled), self._runs())

    def _look(self) -> tuple[Differences, set[str], bool]:
        """What differs; the keys that were on their way while it was looked at, and whether those are all."""
        held = self.rebuilding.held()
        assert held is not None
        ends = self._ends(held)
        found = compare(lambda: self.rebuilding.there("live"), self._wanted, keyed=self.rebuilding.keyed)
        if self.rebuilding.expires:
            found = found.without([key for key, kind in found.keys.items() if kind == "missing"])
        if not found.count:
            return found, set(), True
        keys = self.source.keys_after(self.made.spark, ends)
        own = set(self.site.feed.key or self.site.key) <= set(self.source.captured.key)
        named = self.rebuilding.names(keys) if own and isinstance(self.delivery.of, Table) else None
        if named is None:  # what came later may be of any key
            return found, set(), not keys.take(1)
        moving = named.distinct().take(MOST_MOVING + 1)
        return found, {key for (key,) in moving if key is not None}, len(moving) <= MOST_MOVING

    def _wanted(self) -> Iterable[tuple[str, str | None]]:
        """As the topic has it now, read anew each time."""
        rows = self.source.rows_now(self.made.spark, versioned=True)
        return self.rebuilding.wanted(self._fed(rows))

    def _fed(self, rows: DataFrame) -> DataFrame:
        frames = Fanout(self.flow, self.made.topic_sink).frames(rows)
        return fed(frames[self.delivery.of], self.site.feed, 0)

    def _ends(self, held: Entry) -> dict[int, int]:
        """Up to where the sink holds the topic, by partition. One that it has read nothing of is not in its ledger."""
        read = json.loads(held.ranges)[0].get(self.source.outside, {})
        there = self.log.topics.offsets(self.source.name)
        return {n: min(max(first, read.get(str(n), (0, 0))[1]), last) for n, (first, last) in there.items()}

    def _await(self) -> None:
        """Until the sink holds what the topic has now; a flow that does not run will not come."""
        wanted = {number: end for number, (_, end) in self.log.topics.offsets(self.source.name).items()}
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and self._runs():
            held = self.rebuilding.held()
            ends = {} if held is None else self._ends(held)
            if all(ends.get(number, 0) >= end for number, end in wanted.items()):
                return
            time.sleep(_LOOK_S)

    def _runs(self) -> bool:
        return lock.holder(self.folder, self.flow.name) is not None


def _together(one: Differences, two: Differences) -> Differences:
    return Differences(
        two.wanted,
        one.missing + two.missing,
        one.surplus + two.surplus,
        one.different + two.different,
        {**one.keys, **two.keys},
    )


def shown(verified: Iterable[SinkVerified]) -> Iterator[dict[str, str]]:
    """Differing keys, for people."""
    for each in verified:
        for key, kind in each.differences.keys.items() if each.differences else ():
            yield {"sink": each.sink, "row": kind, "key": key}
