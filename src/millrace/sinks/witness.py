"""A ledger in the target, and a copy of it beside the checkpoint, by which it is seen that somebody emptied the target:
with its rows its ledger went too, and what follows would be written as if nothing had been there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millrace.errors import SinkTargetGone
from millrace.failpoint import FailPoint
from millrace.sinks.contract import Sink
from millrace.sinks.ledger import Entry, Epoch, FileLedger, due


class WitnessedLedger:
    """`read` and `write` are those of the ledger in the target, which decides."""

    def __init__(
        self,
        sink: Sink,
        flow: str,
        folder: Path,
        read: Callable[[], Entry | None],
        write: Callable[[Epoch], None],
    ) -> None:
        self._sink, self._flow = sink, flow
        self._copy, self._read, self._write = FileLedger(folder), read, write

    def due(self, epoch: Epoch) -> bool:
        held = self._read()
        if held is None and epoch.checked:
            self.check_empty()
        return due(self._sink.name, epoch, held, self._sink.where)

    def write(self, epoch: Epoch) -> None:
        FailPoint.SINK_BEFORE_LEDGER.reached(self._sink.name)
        self._write(epoch)
        FailPoint.SINK_BETWEEN_LEDGERS.reached(self._sink.name)
        self._copy.write(epoch)

    def check_empty(self) -> None:
        """That nothing is known to be there."""
        known = self._read() or self._copy.held()
        if known is not None:
            facts = {"sink": self._sink.name, "flow": self._flow, "epoch": known.number}
            raise SinkTargetGone(**facts, where=self._sink.where)
