"""A thread that follows a topic for as long as a server lives."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

AGAIN_S = 1.0


class Following(threading.Thread, ABC):
    """Follows until it is ended. When that fails, `failed` is told, and it is tried again."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.ended = threading.Event()

    def end(self) -> None:
        self.ended.set()

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                self.follow()
            except Exception as error:
                self.failed(error)
            self.ended.wait(AGAIN_S)

    @abstractmethod
    def follow(self) -> None:
        """Until `ended`, or until something fails."""

    @abstractmethod
    def failed(self, error: Exception) -> None: ...
