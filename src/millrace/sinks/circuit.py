"""A circuit: a server that failed is left alone for a while, longer each time, and then asked once before it is
trusted.

    closed ──fails──▶ open ──time──▶ half open ──answers──▶ closed
                       ▲                 │
                       └──────fails──────┘

It is one sink's of one flow.
"""

from __future__ import annotations

import threading
import time

from millrace.sinks.http import pause_s

FIRST_S, LONGEST_S = 1.0, 30.0


class Circuit:
    """That of one sink of a flow, in the process that writes it; writers come and go."""

    def __init__(self) -> None:
        self.failures, self.reason = 0, ""
        self._until = 0.0

    def open_s(self) -> float:
        """For how long the server is still left alone."""
        return max(0.0, self._until - time.monotonic())

    def failed(self, reason: str) -> None:
        self._until = time.monotonic() + pause_s(self.failures, FIRST_S, LONGEST_S)
        self.failures, self.reason = self.failures + 1, reason

    def answered(self) -> None:
        self.failures, self.reason, self._until = 0, "", 0.0


_circuits: dict[tuple[str, str], Circuit] = {}
_guard = threading.Lock()


def circuit_of(flow: str, sink: str) -> Circuit:
    with _guard:
        return _circuits.setdefault((flow, sink), Circuit())
