"""Where flows stand, as offsets of consumer groups, so that every tool for Kafka sees their lag.

For each flow the group `<app>.<flow>`. A flow's place is in its checkpoint, and these offsets are never read back: they
may come late or not at all, and a broker that does not answer holds up nobody.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from millrace.engine.progress import Span
from millrace.errors import KafkaUnreachable, MillraceError
from millrace.log import GroupPlace, Log

EVERY_S = 5.0
# How long the end of a run waits for the last ones.
FINISH_S = 5.0

_logger = logging.getLogger("millrace.engine")


class Places(threading.Thread):
    """A thread that now and then commits what has changed."""

    def __init__(self, log: Log, app: str) -> None:
        super().__init__(name="places of flows", daemon=True)
        self._log, self._app = log, app
        self._changed: dict[str, dict[str, dict[int, int]]] = {}
        self._guard = threading.Lock()
        self._groups: dict[str, GroupPlace] = {}
        self._ended = threading.Event()
        self._said: set[tuple[str, str]] = set()

    def note(self, flow: str, spans: Iterable[Span]) -> None:
        """An epoch that read up to there is committed."""
        offsets = {span.outside: {int(number): end for number, end in span.end.items()} for span in spans}
        if offsets:
            with self._guard:
                self._changed[flow] = offsets

    def run(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._commit()
        self._commit()
        for group in self._groups.values():
            group.close()

    def end(self) -> None:
        """After the last ones, which nobody waits for."""
        self._ended.set()

    def finish(self) -> None:
        """The last ones, if the broker answers soon."""
        self.end()
        if self.is_alive():
            self.join(FINISH_S)

    def _commit(self) -> None:
        with self._guard:
            changed, self._changed = self._changed, {}
        troubles = set()
        while changed:
            flow, offsets = next(iter(changed.items()))
            try:
                if flow not in self._groups:
                    self._groups[flow] = self._log.place(f"{self._app}.{flow}")
                self._groups[flow].tell(offsets)
            except MillraceError as error:
                away = isinstance(error, KafkaUnreachable)
                who = "consumer groups do not show the lag of flows" if away else f"{flow} does not show its lag"
                if (who, error.code) not in self._said:
                    _logger.warning("%s: %s %s", who, error.code, error.what)
                troubles.add((who, error.code))
                if away:  # the others would wait in vain as long
                    break
            del changed[flow]
        with self._guard:
            self._changed = {**changed, **self._changed}
        self._said = troubles
