"""Ctrl-C and SIGTERM while an app runs, or a queue is drained.

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

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130  # what shells expect of a command that was interrupted


class Signals:
    """A context in which both signals are ours. Use it in the main thread."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self.asked = threading.Event()
        self._on_first = on_first
        self._graceful = False
        self._interrupted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in _SIGNALS:
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
        """0 after a clean stop, however it was asked for: that is how a run without an end is meant to end."""
        return _INTERRUPTED if self._interrupted else 0

    def _came(self, *_: int | FrameType | None) -> None:
        if self._graceful and not self.asked.is_set():
            self.asked.set()
            self._on_first()
        else:
            self._interrupted = True
            raise KeyboardInterrupt
