"""Threads that look again and again, so that a page shows what is known and never waits for a server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from millrace.errors import MillraceError, Unexpected

Found = TypeVar("Found")

_logger = logging.getLogger("millrace.console")


def unforeseen(error: Exception, log: Path) -> Unexpected:
    """What nobody foresaw, for a card on a page; where it happened is in the log."""
    return Unexpected(kind=type(error).__name__, reason=str(error).partition("\n")[0][:300], log=log)


class Looking(threading.Thread, Generic[Found]):
    """Keeps the last answer, when it came, and the reason if the last look had none."""

    def __init__(self, name: str, look: Callable[[], Found], every_s: float, log: Path) -> None:
        super().__init__(name=f"console {name}", daemon=True)
        self.found: Found | None = None
        self.at: float | None = None
        self.trouble: MillraceError | None = None
        self._look, self._every_s, self._log = look, every_s, log
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            self.once()
            self._ended.wait(self._every_s)

    def once(self) -> None:
        try:
            self.found, self.trouble, self.at = self._look(), None, time.time()
        except MillraceError as error:
            self.trouble = error
        except Exception as error:
            if self.trouble is None:
                _logger.exception("%s", self.name)
            self.trouble = unforeseen(error, self._log)

    @property
    def waiting(self) -> bool:
        """Whether the first look has not ended yet."""
        return self.at is None and self.trouble is None

    def end(self) -> None:
        self._ended.set()
