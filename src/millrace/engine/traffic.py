"""What threads of the driver write to topics while an app runs: made-up events, and rows of lake tables."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from datetime import UTC, datetime
from random import Random
from typing import Any, Protocol

from millrace.engine.failures import first_line
from millrace.engine.lake_topics import LakeThread
from millrace.errors import MillraceError, ServerError, TrafficFailed
from millrace.flow import Graph, Traffic
from millrace.flow.keys import record_key
from millrace.flow.loading import user_line
from millrace.log import Log

_TICK_S = 0.05

_logger = logging.getLogger("millrace.engine")


class TrafficThread(threading.Thread):
    """Writes one Traffic's events at its rate until stopped."""

    def __init__(self, traffic: Traffic, log: Log) -> None:
        super().__init__(name=f"traffic {traffic.name}", daemon=True)
        self.traffic = traffic
        self._failure: MillraceError | None = None
        self.written = 0
        self._log = log
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            self._write()
        except MillraceError as error:
            self._failure = error
        except Exception as error:
            self._failure = self._failed(error)

    @property
    def told(self) -> str:
        return f"made-up traffic {self.traffic.name}"

    def again(self) -> TrafficThread:
        return TrafficThread(self.traffic, self._log)

    def failure(self) -> MillraceError | None:
        """Why it ended by itself, if it did."""
        return self._failure

    def stop(self, timeout_s: float) -> None:
        self._ended.set()
        self.join(timeout_s)

    def _write(self) -> None:
        random = Random(self.traffic.seed)  # noqa: S311 -- made-up events want to be repeatable, not secret
        started = time.monotonic()
        with self._log.writer(self.traffic.topic.name) as writer:
            while not self._ended.wait(_TICK_S):
                due = int((time.monotonic() - started) * self.traffic.rate)
                # After a pause (a laptop that slept) it goes on at its rate instead of making up for hours.
                if due - self.written > self.traffic.rate * 5:
                    started, due = time.monotonic() - self.written / self.traffic.rate, self.written
                for n in range(self.written, due):
                    row = self._row(random, n)
                    writer.write(row, key=record_key(self.traffic.topic.key, row))
                    self.written += 1

    def _row(self, random: Random, n: int) -> dict[str, Any]:
        maker = self.traffic.maker
        try:
            made = maker(random, n) if len(inspect.signature(maker).parameters) > 1 else maker(random)
            row = dict(made)
        except Exception as error:
            raise self._failed(error) from error
        if self.traffic.topic.time:
            row.setdefault(self.traffic.topic.time, datetime.now(UTC))
        return row

    def _failed(self, error: Exception) -> TrafficFailed:
        where = user_line(error) or self.traffic.where
        kind, reason = type(error).__name__, first_line(str(error))
        return TrafficFailed(name=self.traffic.name, kind=kind, reason=reason, where=where)


class Maker(Protocol):
    """A thread that writes to topics beside the flows. `told` is what a person calls it."""

    @property
    def told(self) -> str: ...

    def start(self) -> None: ...

    def stop(self, timeout_s: float) -> None: ...

    def failure(self) -> MillraceError | None: ...

    def again(self) -> Maker: ...


def makers_of(graph: Graph, log: Log, *, traffic: bool, lakes: bool) -> list[Maker]:
    """Made-up traffic, and what follows tables of the lake: unless each flow's are brought up to date as it starts, or
    somebody else feeds them."""
    found: list[Maker] = [TrafficThread(each, log) for each in graph.traffic if traffic]
    return [*found, *(LakeThread(each, log) for each in graph.lake_topics if lakes)]


def renew(makers: list[Maker]) -> None:
    """Raises what a maker's function raised. One that met a server's trouble begins anew, as flows do."""
    for place, maker in enumerate(makers):
        failure = maker.failure()
        if isinstance(failure, ServerError):
            _logger.warning("%s begins anew: %s", maker.told, failure)
            makers[place] = maker.again()
            makers[place].start()
        elif failure is not None:
            raise failure
