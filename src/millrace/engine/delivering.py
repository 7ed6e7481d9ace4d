"""The sinks of a running flow: every epoch's rows go to each of them, at the same time.

What holds: an epoch is computed whole before any sink sees it, also when all of them hold it already (Spark's state of
that epoch is written while it is computed); it ends when each sink holds it or owes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millrace.engine.definition import CHECKPOINT, SINKS
from millrace.engine.epochs import epoch_of, last_committed
from millrace.engine.feeding import fed
from millrace.engine.held import Held
from millrace.engine.lane import END_S, Lane
from millrace.engine.standing import SinkStanding
from millrace.errors import MillraceError
from millrace.flow import Delivery
from millrace.flow.nodes import Deliverable
from millrace.log import Log
from millrace.sinks.contract import Feed
from millrace.sinks.ledger import Epoch


class Delivering:
    """`flow` is the outside name by which ledgers know it. Without `owes`, a sink that cannot write ends the flow."""

    def __init__(self, flow: str, folder: Path, log: Log, feeds: Mapping[Delivery, Feed], *, owes: bool = True) -> None:
        self._flow, self._checkpoint = flow, folder / CHECKPOINT
        self.lanes = [
            Lane(each, feed, flow, folder / SINKS / each.name, log, owes=owes) for each, feed in feeds.items()
        ]
        self.error: MillraceError | None = None

    def begin(self, spark: SparkSession) -> None:
        for lane in self.lanes:
            lane.begin(spark)

    def deliver(self, frames: Mapping[Deliverable, DataFrame], number: int, held: Held) -> None:
        """Gives an epoch to all sinks; `held` is what the frames are made of."""
        self._deliver(frames, epoch_of(self._flow, self._checkpoint, number), self.lanes, held)

    def catch_up(self, frames: Mapping[Deliverable, DataFrame], joining: Iterable[str], held: Held) -> None:
        """Gives sinks that join a table's flow the table as it was after its last epoch."""
        lanes = [lane for lane in self.lanes if lane.delivery.name in set(joining) and lane.delivery.of in frames]
        epoch = last_committed(self._flow, self._checkpoint)
        if lanes and epoch is not None:
            self._deliver(frames, epoch, lanes, held)

    def _deliver(
        self, frames: Mapping[Deliverable, DataFrame], epoch: Epoch, lanes: Iterable[Lane], held: Held
    ) -> None:
        given = [(lane, fed(frames[lane.delivery.of], lane.feed, epoch.number)) for lane in lanes]
        try:
            for lane, rows in given:
                lane.offer(epoch, rows, held)
            for lane, rows in given:
                lane.settle(epoch, rows)
        except MillraceError as error:
            self.error = error
            raise

    def standings(self) -> dict[str, SinkStanding]:
        return {lane.delivery.name: lane.standing() for lane in self.lanes}

    @property
    def busy(self) -> bool:
        return any(lane.busy for lane in self.lanes)

    def owes(self) -> MillraceError | None:
        return next((owed for lane in self.lanes if (owed := lane.owes()) is not None), None)

    def end(self, wait_s: float = END_S) -> None:
        for lane in self.lanes:
            lane.leave()
        for lane in self.lanes:
            lane.end(wait_s)
