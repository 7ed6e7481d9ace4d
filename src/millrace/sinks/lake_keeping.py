"""What a lake table needs beside its epochs: small files are written together, old versions let go, and its size is
seen. A thread of its own does that, with the table opened for itself.

What holds: no epoch fails by it. Files are prepared beside the stream; only the commit that names them takes its turn
with the epochs' own (`turn`), and what an epoch has meanwhile replaced is left alone. What goes wrong here is told, and
tried again later.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from millrace.config import Settings
from millrace.errors import MillraceError
from millrace.lakehouse import Catalog, LakeTable
from millrace.lakehouse.compacting import AT_ONCE_FILES, compact, debt
from millrace.lakehouse.retention import forget, size_bytes
from millrace.sinks.tasks import reason_of

if TYPE_CHECKING:
    from millrace.sinks.lake import Lake

# Versions are let go when a tenth of their time has passed, not more often than the first and at least as the second.
_OFTENEST, _SELDOM = timedelta(minutes=1), timedelta(hours=1)
# After a failure, how long nothing is tried.
_AGAIN_S = 60.0
# How long a flow that ends waits for a commit that is being made.
END_S = 10.0

_logger = logging.getLogger("millrace.sinks")


class Keeping(threading.Thread):
    """Of one writer; `after` is told of each version that it committed. `turn` is held by whoever commits; what is
    written together goes to the folder `place`, which is nobody else's."""

    def __init__(self, sink: Lake, settings: Settings, place: str, turn: threading.Lock, *, keyed: bool) -> None:
        super().__init__(name=f"keeper of {sink.name}", daemon=True)
        self._sink, self._settings, self._place = sink, settings, place
        self._turn, self._keyed = turn, keyed
        self._news, self._ended = threading.Event(), threading.Event()
        self._forgot: float | None = None
        self._held_back, self._troubled = 0.0, False
        self._history_bytes: int | None = None

    @property
    def history_bytes(self) -> int | None:
        """What only older versions have, as of the last look."""
        return self._history_bytes

    @property
    def writes_to(self) -> tuple[str, str]:
        """The table, and the folder in it."""
        return self._sink.table, self._place

    def after(self, debt_files: int) -> None:
        """There is a version, with so many files that are to be written together."""
        if not self._due() and (self._keyed or debt_files < AT_ONCE_FILES):
            return
        if not self.is_alive() and not self._ended.is_set():
            self.start()
        self._news.set()

    def end(self) -> None:
        self._ended.set()
        self._news.set()
        if self.is_alive():
            self.join(END_S)

    def run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            if self._ended.is_set():
                return
            if time.monotonic() < self._held_back:
                continue
            try:
                self.tend()
                self._troubled = False
            except Exception as error:  # whatever it is, the stream goes on
                self._held_back = time.monotonic() + _AGAIN_S
                if not self._troubled:
                    reason = error.sentence() if isinstance(error, MillraceError) else reason_of(error)
                    _logger.warning("%s is not tidied for now: %s", self._sink.name, reason)
                self._troubled = True

    def tend(self) -> None:
        with Catalog(self._settings).opened(self._sink.table) as table:
            # Tables with keys are tidied by their epochs.
            if self._sink.compact and not self._keyed and debt(table) >= AT_ONCE_FILES:
                compact(table, alike=True, place=self._place, turn=self._turn, ended=self._ended.is_set)
            if not self._ended.is_set() and self._due():
                self._forget(table)

    def _due(self) -> bool:
        keep = self._sink.keep
        pause = _SELDOM if keep is None else min(_SELDOM, max(_OFTENEST, keep / 10))
        return self._forgot is None or time.monotonic() - self._forgot >= pause.total_seconds()

    def _forget(self, table: LakeTable) -> None:
        if self._sink.keep is not None:
            forget(table, datetime.now(UTC) - self._sink.keep, self._turn)
        self._forgot = time.monotonic()
        with contextlib.suppress(OSError):  # somebody else lets files go
            self._history_bytes = max(0, size_bytes(table) - sum(each.size_bytes for each in table.files()))


def still_writes(table: str, place: str) -> bool:
    """Whether somebody whom a writer before left behind, in a commit that nobody answers, may yet make it."""
    return any(isinstance(each, Keeping) and each.writes_to == (table, place) for each in threading.enumerate())
