"""One sink of a running flow: a thread of its own writes its epochs, in their order, one at a time.

An epoch is first tried while the flow waits. If the server does not take it in a bounded time, the epoch is *owed*: its
rows are kept on disk (`owed`), the flow goes on, and this thread writes what is owed once the server answers, each
epoch with its own number and ranges. What is owed has a limit; at that the flow waits.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from millrace.engine.held import Held
from millrace.engine.owed import FOLDER, Owed
from millrace.engine.refusals import Refusals
from millrace.engine.restarts import MOST_TRIES_ONCE
from millrace.engine.standing import SinkStanding
from millrace.engine.switching import BEGUN, refuse_unfinished
from millrace.errors import EpochsOwed, MillraceError, ServerError, SinkFailed, UserError
from millrace.failpoint import FailPoint
from millrace.flow import Delivery
from millrace.log import Log
from millrace.sinks.contract import Feed, Writer
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.tasks import reason_of

# How long a flow waits for a sink that fails to take an epoch, and for one that neither fails nor ends: a large epoch
# may take its time.
TRY_S = 10.0
HANGS_S = 60.0
# Between two tries; for what is owed it doubles from the first to the most.
_AGAIN_S, MOST_AGAIN_S = 1.0, 10.0
_LOOK_S = 0.5
# How long the end of a flow waits for what a sink is at; a server that hangs is left behind.
END_S = 15.0

_logger = logging.getLogger("millrace.engine")

# Those that a flow of this process left behind, by their sink's folder. The one that follows waits for their end: two
# would write one target at once, and the older one would put back its ledger, or lose the files that it commits.
_left_behind: dict[Path, Lane] = {}


@dataclass
class _Attempt:
    """An epoch that the flow waits for."""

    epoch: Epoch
    rows: DataFrame
    held: Held
    until: float
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class Lane(threading.Thread):
    """`folder` is the sink's own beside the checkpoint. Without `owes`, what cannot be written fails at once."""

    def __init__(self, delivery: Delivery, feed: Feed, flow: str, folder: Path, log: Log, *, owes: bool = True) -> None:
        super().__init__(name=f"sink {delivery.name}", daemon=True)
        self.delivery, self.feed = delivery, feed
        self._flow, self._folder, self._settings, self._owes = flow, folder, log.settings, owes
        self._pool = folder.parent.parent.name
        self.limit_bytes = log.settings.run.owed_mb * 1_000_000
        self._owed = Owed(folder / FOLDER, delivery.name, delivery.where)
        self._refusals = Refusals(log, delivery.name)
        self._writer: Writer | None = None
        self._attempt: _Attempt | None = None
        self._spark: SparkSession | None = None
        self._changed = threading.Condition()
        self._failures, self._due = 0, 0.0  # of what is owed
        self._trouble: MillraceError | None = None
        self._lasting: MillraceError | None = None
        self._epoch: int | None = None
        self._figures: Mapping[str, float] = {}
        self._lost = 0
        self._skipped = False
        self._ended = self._left = False
        self._before: Lane | None = None

    def begin(self, spark: SparkSession) -> None:
        """Opens the sink: what its target cannot take is told before the flow starts; a server that is away, later."""
        self._spark, self._before = spark, _left_behind.get(self._folder)
        if self._before is not None and not self._before.is_alive():
            del _left_behind[self._folder]
            self._before = None
        refuse_unfinished(self._folder, self.delivery.name, self.delivery.where)
        self._owed.sweep()
        try:
            if not self._waits:
                self._opened()
        except ServerError as error:
            if not self._owes:
                raise
            self._troubled(error)
        self.start()

    def offer(self, epoch: Epoch, rows: DataFrame, held: Held) -> None:
        """Begins to write an epoch, unless older ones are owed, or still written by the lane before this one. `held` is
        what the rows are made of."""
        self._skipped = self._skips(epoch)
        with self._changed:
            self._attempt = None
            if not self._skipped and not self._owed.epochs and not self._waits:
                held.take()
                self._attempt = _Attempt(epoch, rows, held, time.monotonic() + (TRY_S if self._owes else 0.0))
            self._changed.notify_all()

    def settle(self, epoch: Epoch, rows: DataFrame) -> None:
        """Returns when the epoch is written, or owed."""
        if self._lasting is not None:
            raise self._lasting
        if self._skipped or self._written():
            return
        if self.delivery.guarantee == "at most once":
            self._lose(epoch)
        else:
            self._owe(epoch, rows)

    def _written(self) -> bool:
        """Waits for the attempt, if there is one. Raises what will not pass, or may not be owed."""
        attempt = self._attempt
        if attempt is None or not attempt.done.wait(HANGS_S if self._owes else None):
            return False
        if attempt.error is None:
            return True
        if isinstance(attempt.error, ServerError) and self._owes:
            return False
        raise attempt.error

    def standing(self) -> SinkStanding:
        return SinkStanding(
            self.delivery.guarantee,
            self._epoch,
            self._owed.epochs,
            self._owed.bytes,
            self._refusals.kept,
            self._lost,
            None if self._trouble is None else self._trouble.sentence(),
            self._figures,
        )

    @property
    def busy(self) -> bool:
        """Whether something is owed that a run with an end would still wait for."""
        return bool(self._owed.epochs) and self._failures < MOST_TRIES_ONCE and self._lasting is None

    def owes(self) -> MillraceError | None:
        """Why it does not hold all that it was given, if it does not."""
        if not self._owed.epochs:
            return None
        if self._lasting is not None:
            return self._lasting
        reason = "its server was away" if self._trouble is None else self._trouble.what
        return EpochsOwed(sink=self.delivery.name, epochs=self._owed.epochs, reason=reason, where=self.delivery.where)

    def leave(self) -> None:
        """Ends after what it is at."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def end(self, wait_s: float = END_S) -> None:
        self.leave()
        if self.is_alive():
            self.join(wait_s)
        with self._changed:
            self._left = self.is_alive()
        if self._left:
            _left_behind[self._folder] = self
        else:
            self._close()

    @property
    def _waits(self) -> bool:
        return self._owes and self._before is not None and self._before.is_alive()

    def run(self) -> None:
        assert self._spark is not None
        # Its jobs take turns with those of other flows, as the flow's own do.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self._pool)
        while not self._ended:
            with self._changed:
                attempt, head = self._attempt, self._owed.first()
                if attempt is not None and attempt.done.is_set():
                    attempt = None
                idle = attempt is None and (head is None or self._lasting or time.monotonic() < self._due)
                if idle or self._waits:
                    self._changed.wait(_LOOK_S)
                    continue
            if attempt is not None:
                self._try(attempt)
            elif head is not None:
                self._pay(head)
        self._close()

    def _try(self, attempt: _Attempt) -> None:
        """Writes an epoch while the flow waits, more than once if there is time."""
        while True:
            try:
                self._write(attempt.epoch, attempt.rows)
            except Exception as error:
                again = isinstance(error, ServerError) and time.monotonic() + _AGAIN_S < attempt.until
                if isinstance(error, ServerError):
                    self._troubled(error)
                if again and not self._ended and self.delivery.guarantee != "at most once":
                    time.sleep(_AGAIN_S)
                    continue
                attempt.error = error
            attempt.done.set()
            with contextlib.suppress(Py4JError):
                attempt.held.let_go()
            return

    def _pay(self, epoch: Epoch) -> None:
        """Writes the oldest epoch that is owed."""
        assert self._spark is not None
        try:
            self._write(epoch, self._owed.rows(self._spark, epoch, self.feed))
        except UserError as error:
            self._trouble = self._lasting = error
            _logger.error("%s", error, extra=self._told("failure"))
        except Exception as error:
            self._troubled(error if isinstance(error, MillraceError) else self._failed(error))
            self._due = time.monotonic() + min(_AGAIN_S * 2.0**self._failures, MOST_AGAIN_S)
            self._failures += 1
        else:
            FailPoint.OWED_PAID.reached(self.delivery.name)
            with self._changed:
                if self._left:  # the one that follows has it in its books, and finds it in the ledger
                    return
                self._owed.written(epoch)
                if not self._owed.epochs:
                    _logger.info("%s holds again all that it owed", self.delivery.name, extra=self._told("paid"))
                self._changed.notify_all()

    def _write(self, epoch: Epoch, rows: DataFrame) -> None:
        asked = self.delivery.asked
        less = asked in ("at least once", "at most once")
        given = replace(epoch, checked=False, once=asked == "at most once") if less else epoch
        try:
            writer = self._opened()
            FailPoint.SINK_BEFORE.reached(self.delivery.name)
            writer.write(given, rows, lambda refused: self._refusals.keep(self._flow, epoch.number, refused))
        except BaseException:
            self._close()
            raise
        FailPoint.SINK_AFTER.reached(self.delivery.name)
        self._epoch, self._trouble, self._failures, self._due = epoch.number, None, 0, 0.0
        self._figures = writer.figures()

    def _opened(self) -> Writer:
        if self._writer is None:
            self._writer = self.delivery.sink.open(self._settings, self._flow, self.feed, self._folder)
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(Exception):
                self._writer.close()
            self._writer = None

    def _troubled(self, error: MillraceError) -> None:
        news = self._trouble is None or self._trouble.code != error.code
        self._trouble = error
        if news:
            _logger.warning("%s is tried again and again: %s", self.delivery.name, error, extra=self._told("try"))

    def _failed(self, error: Exception) -> SinkFailed:
        return SinkFailed(sink=self.delivery.name, reason=reason_of(error), where=self.delivery.where)

    def _told(self, event: str) -> dict[str, Any]:
        return {"event": event, "flow": self._flow, "sink": self.delivery.name}

    def _owe(self, epoch: Epoch, rows: DataFrame) -> None:
        with self._changed:
            while self._owed.bytes >= self.limit_bytes and not self._ended and self._lasting is None:
                self._changed.wait(_LOOK_S)
        if self._lasting is not None:
            raise self._lasting
        FailPoint.OWED_BEFORE.reached(self.delivery.name)
        self._owed.put(epoch, rows)
        FailPoint.OWED_AFTER.reached(self.delivery.name)
        with self._changed:
            self._attempt = None
            self._changed.notify_all()

    def _skips(self, epoch: Epoch) -> bool:
        """With at most once an epoch is written down before it is tried: whatever then happens, it is not again. One of
        other records under an old number is refused. Numbers may be left out: while more was asked for, none is written
        down."""
        if self.delivery.guarantee != "at most once":
            return False
        begun = FileLedger(self._folder / BEGUN)
        held = begun.held()
        left_out = held is None or epoch.number > held.number + 1
        if not left_out and not due(self.delivery.name, epoch, held, self.delivery.where):
            return True
        begun.write(epoch)
        return False

    def _lose(self, epoch: Epoch) -> None:
        self._lost += 1
        told = "%s does not hold epoch %d, and at most once was asked for: %s"
        _logger.warning(told, self.delivery.name, epoch.number, self._trouble, extra=self._told("lost"))
