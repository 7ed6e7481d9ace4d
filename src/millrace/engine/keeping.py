"""Dead letters beside the run's loop: a thread writes them, because a broker that does not answer would hold up
everything else, a stop included.

What could not be written is tried again. Nothing is forgotten meanwhile: a file remembers up to which offsets all is
done (`deadletters`), so that the next run makes up for what this one could not.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from millrace.engine import failures
from millrace.engine.deadletters import DeadLetters, joined
from millrace.engine.progress import Span
from millrace.engine.restarts import MOST_TRIES_ONCE, Restarts
from millrace.engine.session import jvm_ended
from millrace.errors import DeadLettersOwed, MillraceError

# How long the end of a run waits for the last ones. A broker that is there needs a second.
FINISH_S = 20.0
# What takes longer is told of before it has failed: it may wait for Spark's slots, which flows hold that wait for a
# broker.
SLOW_S = 30.0
_LOOK_S = 0.5

# A flow, and the outside name of a topic that it reads.
_Place: TypeAlias = tuple[str, str]


@dataclass
class _Due:
    """What a flow has read of a topic, and its letters are not known to be written."""

    letters: DeadLetters
    span: Span
    tries: Restarts = field(default_factory=Restarts)
    trouble: DeadLettersOwed | None = None
    begun: float | None = None


class Keeping(threading.Thread):
    def __init__(self, log: Path) -> None:
        super().__init__(name="dead letters", daemon=True)
        self._log = log
        self._spark: SparkSession | None = None
        self._due: dict[_Place, _Due] = {}
        self._changed = threading.Condition()
        self._ended = False

    def begin(self, spark: SparkSession) -> None:
        self._spark = spark
        self.start()

    def note(self, flow: str, letters: DeadLetters, span: Span) -> None:
        """A flow has committed an epoch that read this."""
        with self._changed:
            held = self._due.setdefault((flow, span.outside), _Due(letters, span))
            if held.span is not span:
                held.span = joined(held.span, span)
            self._changed.notify_all()

    def troubles(self) -> dict[str, DeadLettersOwed]:
        """The flows whose letters could not be written so far, and why."""
        slow = time.monotonic() - SLOW_S
        with self._changed:
            told = [(flow, due.trouble or self._slow(due, slow)) for (flow, _), due in self._due.items()]
        return {flow: trouble for flow, trouble in told if trouble is not None}

    @property
    def busy(self) -> bool:
        """Whether there is something to write; what failed often enough for a run that has an end does not count."""
        with self._changed:
            return any(due.tries.in_a_row < MOST_TRIES_ONCE for due in self._due.values())

    def finish(self, wait_s: float) -> DeadLettersOwed | None:
        """Ends after one more try for each, and gives why some could not be written in that time."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            before = {place: due.trouble for place, due in self._due.items()}
            for due in self._due.values():
                due.tries, due.trouble = Restarts(), None
            self._changed.notify_all()
            while any(due.trouble is None for due in self._due.values()) and self.is_alive():
                if (left_s := deadline - time.monotonic()) <= 0:
                    break
                self._changed.wait(min(left_s, _LOOK_S))
            self.end()
            owed = [
                due.trouble or before.get(place) or self._owed(due, f"not within {wait_s:.0f} s")
                for place, due in self._due.items()
            ]
            self._due.clear()
        return owed[0] if owed else None

    def end(self) -> None:
        """After what it is at, which nobody waits for."""
        self._ended = True

    def run(self) -> None:
        while not self._ended:
            with self._changed:
                found = self._ready()
                if found is None:
                    self._changed.wait(_LOOK_S)
            if found is not None and not self._attempt(*found):
                return

    def _ready(self) -> tuple[_Place, _Due] | None:
        now = time.monotonic()
        return next(((place, due) for place, due in self._due.items() if due.tries.due(now)), None)

    def _attempt(self, place: _Place, due: _Due) -> bool:
        """Whether there is any use in going on: not without Spark's process, of whose end the run will say."""
        assert self._spark is not None
        span, due.begun = due.span, time.monotonic()
        try:
            due.letters.keep(self._spark, span)
        except Exception as error:
            hung_up = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
            if self._ended or (hung_up and jvm_ended()):
                return False
            self._failed(due, error)
        else:
            with self._changed:
                due.tries, due.trouble, due.begun = Restarts(), None, None
                if due.span is span:  # otherwise more has come meanwhile
                    self._due.pop(place, None)
                self._changed.notify_all()
        return True

    def _failed(self, due: _Due, error: Exception) -> None:
        reason = error.what if isinstance(error, MillraceError) else failures.reason_of(error)
        with self._changed:
            due.trouble, due.begun = self._owed(due, reason), None
            due.tries.failed(time.monotonic(), reason, random.random())  # noqa: S311 -- apart is enough
            self._changed.notify_all()

    def _slow(self, due: _Due, before: float) -> DeadLettersOwed | None:
        begun = due.begun is not None and due.begun < before
        return self._owed(due, f"writing them takes longer than {SLOW_S:.0f} s") if begun else None

    def _owed(self, due: _Due, reason: str) -> DeadLettersOwed:
        return DeadLettersOwed(topic=due.letters.source.name, reason=reason, log=self._log)
