"""The way to a server that can be cut: starting a large server again takes longer than all of its tests."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Way:
    """Passes bytes on from a port of its own to `port`, both ways, until it is cut."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._sockets: list[socket.socket] = []
        self._listening = self._opened(0)
        self.port: int = self._listening.getsockname()[1]

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        self.close()
        try:
            yield
        finally:
            self._listening = self._opened(self.port)

    def close(self) -> None:
        """Whoever is connected is told so, and nobody else is let in."""
        for each in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def _opened(self, port: int) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
        return listening

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = listening.accept()
                there = socket.create_connection(self._to)
                self._sockets += [here, there]
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while some := source.recv(65_536):
            target.sendall(some)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
