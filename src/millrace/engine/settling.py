"""A view in real time: its rows leave at once, as tentative ones, and are settled when their epoch is committed.

What holds: a tentative record says of which incarnation (one a start of the flow) and of which epoch it is. An epoch
that Spark has committed is settled: of each key that it touched, the last row goes to the changelog, and then a mark
says so. What an incarnation told of an epoch that was never committed stays tentative for ever, and nobody settles it:
the next start has another number. An epoch may be settled twice after a crash, with the same rows.
"""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millrace.disk import write_whole
from millrace.engine.stopping import RealTimeStop, epochs
from millrace.engine.view_epochs import Reached, ViewEpochs
from millrace.errors import MillraceError, RecordsExpired, RecordsGone, ServerError
from millrace.log import Log
from millrace.log.transactions import Draft, Transactions
from millrace.views.changelog import AFTER, HEAD, TAIL, row_text, tentative_topic
from millrace.views.tentative import Told

INCARNATION = "incarnation.json"
_LOOK_S, _AGAIN_S = 0.02, 1.0
# Records that go to the changelog together.
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Incarnation:
    """`number` counts the starts of a view's flow. Up to `epoch` everything is settled; what is not stands in the topic
    of tentative rows from `places` on."""

    number: int = 0
    epoch: int = -1
    places: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Incarnation | None:
        try:
            raw = json.loads((folder / INCARNATION).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(raw["number"], raw["epoch"], {int(number): place for number, place in raw["places"].items()})

    def write(self, folder: Path) -> None:
        told = {"number": self.number, "epoch": self.epoch, "places": self.places}
        write_whole(folder / INCARNATION, json.dumps(told))


class Settler:
    """Settles the epochs of one view. `name` is the flow's, for its transactions: of two, only the newer settles."""

    def __init__(self, of: ViewEpochs, name: str) -> None:
        self._of, self._name = of, f"{name}.settled"
        self._topic = tentative_topic(of.view.name)
        self._now = Incarnation.read(of.folder) or Incarnation()
        self._writer: Transactions | None = None

    @property
    def _log(self) -> Log:
        return self._of.log

    def begin(self) -> None:
        """At each start of the flow, before it writes anything: settles what was committed, and begins another
        incarnation. Epochs of before that were not in real time have their marks."""
        if self._now.number:
            self._now = replace(self._now, epoch=max(self._now.epoch, self._of.last_marked()))
        self.settle()
        committed = max(epochs(self._of.checkpoint / "commits"), default=-1)
        places = self._log.topics.last(self._topic, committed=False)
        self._now = Incarnation(self._now.number + 1, committed, places)
        self._now.write(self._of.folder)

    @property
    def due(self) -> bool:
        return (self._of.checkpoint / "commits" / str(self._now.epoch + 1)).exists()

    def settle(self) -> None:
        """All epochs that are committed by now."""
        if self._now.number == 0:
            return
        committed = max(epochs(self._of.checkpoint / "commits"), default=-1)
        if committed <= self._now.epoch:
            return
        # What was committed was written before.
        rows = self._told(self._log.topics.last(self._topic, committed=False))
        for number in range(self._now.epoch + 1, committed + 1):
            reached = self._of.reached(number, at_its_end=True)
            self._write(rows.last.get(number + self._of.shift, {}), reached)
            self._of.mark(number, reached)
        self._now = replace(self._now, epoch=committed, places=rows.behind(committed + self._of.shift))
        self._now.write(self._of.folder)

    def _told(self, ends: dict[int, int]) -> _Read:
        read = _Read(ends)
        try:
            with closing(self._log.ranges(self._topic)) as ranges:
                for message in ranges.between(self._now.places, ends):
                    told = Told.of(message)
                    if told.incarnation == self._now.number:
                        read.add(told, message)
        except RecordsExpired as error:
            view = self._of.view
            raise RecordsGone(flow=view.name, reason=error.what, where=view.where) from None
        return read

    def _write(self, rows: dict[bytes, bytes | None], reached: Reached) -> None:
        source = json.dumps({"lsn": reached.lsn, "ts_ms": reached.at_ms})
        headers = ((AFTER, str(reached.after).encode()),)
        drafts = []
        for key, value in rows.items():
            whole = None if value is None else f"{HEAD}{row_text(value)}{TAIL}{source}}}".encode()
            drafts.append(Draft(self._of.view.name, whole, key, headers))
        for first in range(0, len(drafts), _AT_ONCE):
            if self._writer is None:
                self._writer = self._log.transactions(self._name)
            try:
                self._writer.write(drafts[first : first + _AT_ONCE])
            except MillraceError:
                self._writer = None
                raise


class _Read:
    """Of each epoch the last value of each key, and where its first record stands in each partition."""

    def __init__(self, ends: dict[int, int]) -> None:
        self.last: dict[int, dict[bytes, bytes | None]] = {}
        self._ends = ends
        self._first: dict[int, dict[int, int]] = {}

    def add(self, told: Told, message: Any) -> None:
        self.last.setdefault(told.epoch, {})[message.key()] = message.value()
        self._first.setdefault(told.epoch, {}).setdefault(message.partition(), message.offset())

    def behind(self, epoch: int) -> dict[int, int]:
        """Where what came after an epoch begins."""
        places = dict(self._ends)
        for number, first in self._first.items():
            for partition, offset in first.items() if number > epoch else ():
                places[partition] = min(places[partition], offset)
        return places


class Settling(threading.Thread):
    """Beside a flow in real time: settles each epoch as soon as Spark has committed it. `error` is why it ended."""

    def __init__(self, settler: Settler, view: str) -> None:
        super().__init__(name=f"settling {view}", daemon=True)
        self._settler, self._ended = settler, threading.Event()
        self.error: MillraceError | None = None

    def run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                if self._settler.due:
                    self._settler.settle()
            except ServerError:
                self._ended.wait(_AGAIN_S)
            except MillraceError as error:
                self.error = error
                return

    @property
    def busy(self) -> bool:
        """Whether an epoch is committed that is not settled."""
        return self.is_alive() and self._settler.due

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()


class SettledStop:
    """Asks a view in real time to end, and waits until what it told is certain."""

    def __init__(self, stop: RealTimeStop, settling: Settling) -> None:
        self._stop, self._settling = stop, settling

    def step(self) -> bool:
        return self._stop.step() and not self._settling.busy

    def release(self) -> None:
        self._stop.release()
