"""Connections of the HTTP server: limits that uvicorn does not have, and WebSockets that never wait for a slow client.

What is told to all is written to each connection at once, as bytes that are made once; what a client has not taken yet
stays in its connection's buffer, and one that lets too much pile up is dropped. So nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State

# What a client has not taken yet of what it was told.
BACKLOG_BYTES = 1024 * 1024
# How long it may take to say what it wants, and in how many bytes.
HEAD_S, HEAD_BYTES = 10.0, 32 * 1024
# How long it may leave an answer, or a part of it, untaken.
TAKE_S = 30.0
# After it was told why it is dropped, a client may read that for so long.
FAREWELL_S = 10.0

# Codes of WebSocket's close, from those that are for applications.
UNWELCOME, REVOKED, TOO_SLOW, TOO_LARGE, BEHIND = 4400, 4401, 4408, 4413, 4503

EXTENSION = "millrace.socket"


def framed(text: str) -> bytes:
    """As a server sends it: the same bytes for every client."""
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=False)


class Requests(HttpToolsProtocol):
    """A client that sends its request in drips or without end, or does not take its answer, is cut off."""

    _timer: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _reading_head = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        if self._writing is not None:
            self._writing.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._reading_head:
            self._unwatch()
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self.transport.abort()
        elif self._timer is None and not self.transport.is_closing():
            self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
        super().resume_writing()

    def on_message_begin(self) -> None:
        self._reading_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._reading_head = False
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        self._unwatch()
        super().handle_websocket_upgrade()

    def _watch(self) -> None:
        self._timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Socket(WebSocketsSansIOProtocol):
    """A WebSocket. The app finds it in its scope, under `extensions`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.dropped: tuple[int, str] | None = None
        # It would log the headers of each handshake, and with them tokens.
        self.conn.debug = False

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):  # otherwise the handshake was refused
            self.scope["extensions"][EXTENSION] = {"socket": self}

    def tell(self, frame: bytes) -> None:
        """Writes it now, or drops the client; never waits."""
        if self.close_sent or self.transport.is_closing() or self.conn.state is not State.OPEN:
            return
        if self.transport.get_write_buffer_size() > BACKLOG_BYTES:
            self.drop(TOO_SLOW, f"more than {BACKLOG_BYTES} bytes were waiting to be taken")
            return
        self.transport.write(frame)

    def drop(self, code: int, reason: str) -> None:
        """Says why, behind what the client has not read yet, and hangs up."""
        if self.dropped is not None or self.transport.is_closing():
            return
        self.dropped = (code, reason)
        if not self.close_sent and self.conn.state is State.OPEN:
            self.conn.send_close(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.close()
        self.loop.call_later(FAREWELL_S, self.transport.abort)

    def keepalive_timeout(self) -> None:
        """It does not answer pings: whatever waits for it is given up."""
        super().keepalive_timeout()
        self.transport.abort()
