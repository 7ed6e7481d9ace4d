"""As much of AMQP 0-9-1 as it takes to put one durable message into a queue, confirmed, and to take one out."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRWPair
from urllib.parse import urlsplit

METHOD, HEADER, BODY = 1, 2, 3
LIMIT_S = 30


@dataclass
class Channel:
    stream: BufferedRWPair

    def send(self, kind: int, payload: bytes, channel: int = 1) -> None:
        self.stream.write(struct.pack(">BHL", kind, channel, len(payload)) + payload + b"\xce")
        self.stream.flush()

    def receive(self) -> bytes:
        _, _, size = struct.unpack(">BHL", self.stream.read(7))
        return self.stream.read(size + 1)[:-1]

    def call(self, ids: tuple[int, int], arguments: bytes, channel: int = 1) -> bytes:
        """A method and its answer, whose id is the next one: `open` is 10, `open-ok` is 11."""
        self.send(METHOD, struct.pack(">HH", *ids) + arguments, channel)
        answer = self.receive()
        assert struct.unpack(">HH", answer[:4]) == (ids[0], ids[1] + 1), answer
        return answer[4:]


@contextmanager
def channel(url: str) -> Iterator[Channel]:
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port or 5672), LIMIT_S) as wire, wire.makefile("rwb") as stream:
        stream.write(b"AMQP\x00\x00\x09\x01")
        opened = Channel(stream)
        stream.flush()
        opened.receive()  # start
        login = f"\0{at.username}\0{at.password}".encode()
        answer = _table() + _short("PLAIN") + struct.pack(">L", len(login)) + login + _short("en_US")
        opened.send(METHOD, struct.pack(">HH", 10, 11) + answer, 0)
        tune = opened.receive()
        opened.send(METHOD, struct.pack(">HH", 10, 31) + tune[4:10] + b"\0\0", 0)  # no heartbeats
        opened.call((10, 40), _short("/") + _short("") + b"\0", 0)
        opened.call((20, 10), _short(""))
        yield opened


def put(url: str, queue: str, body: bytes) -> None:
    """Returns when the broker has confirmed that the message is on disk."""
    with channel(url) as opened:
        opened.call((50, 10), b"\0\0" + _short(queue) + b"\2" + _table())  # durable
        opened.call((85, 10), b"\0")
        opened.send(METHOD, struct.pack(">HHH", 60, 40, 0) + _short("") + _short(queue) + b"\0")
        opened.send(HEADER, struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2))  # persistent
        opened.send(BODY, body)
        assert opened.receive()[:4] == struct.pack(">HH", 60, 80), "the broker refused it"


def take(url: str, queue: str) -> bytes:
    with channel(url) as opened:
        opened.call((60, 70), b"\0\0" + _short(queue) + b"\1")
        opened.receive()  # the header
        return opened.receive()


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _table() -> bytes:
    return struct.pack(">L", 0)
