"""Ctrl-C and SIGTERM while an app runs.

Before the flows run there is nothing to protect: a signal interrupts. Once they run, the first one asks for a clean
stop and a second one interrupts. Python code may not raise from a handler inside a call to the JVM and go on using it,
which is why asking only sets a flag.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 0}


class Signals:
    """A context in which both signals are ours. Use it in the main thread."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self.asked = threading.Event()
        self._on_first = on_first
        self._graceful = False
        self._number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in _CODES:
            self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def be_graceful(self) -> None:
        """From now on the first signal asks."""
        self._graceful = True

    @property
    def exit_code(self) -> int:
        """What shells expect of Ctrl-C, and 0 for SIGTERM: that is how a run without an end is meant to be ended."""
        return _CODES[signal.Signals(self._number)] if self._number is not None else 0

    def _came(self, number: int, _: FrameType | None) -> None:
        first, self._number = self._number is None, number
        if self._graceful and first:
            self.asked.set()
            self._on_first()
        else:
            raise KeyboardInterrupt
