"""Messages published to RabbitMQ by pika alone, from several processes, each confirmed by the server."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from time import monotonic
from typing import Any

import pika

from bench.sinks.rows import row_of

WAITING = 2_000
START_LIMIT_S = 60


def published(url: str, queue: str, numbers: range, processes: int) -> float:
    """How long it takes from when all are connected until all of it is confirmed, in seconds."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1)
    parts = [numbers[first::processes] for first in range(processes)]
    running = [context.Process(target=_publish, args=(url, queue, part, barrier)) for part in parts]
    for each in running:
        each.start()
    barrier.wait(START_LIMIT_S)
    began = monotonic()
    for each in running:
        each.join()
    assert not any(each.exitcode for each in running)
    return monotonic() - began


def _publish(url: str, queue: str, numbers: range, barrier: Any) -> None:
    messages = [(f"{number:064d}", json.dumps(row_of(number)).encode()) for number in numbers]
    _Publisher(url, queue, messages, barrier.wait).run()


class _Publisher:
    def __init__(self, url: str, queue: str, messages: list[tuple[str, bytes]], ready: Callable[[], Any]) -> None:
        self._queue, self._messages, self._ready = queue, messages, ready
        self._sent = self._confirmed = 0
        self._connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_close_callback=lambda *_: self._connection.ioloop.stop(),
        )

    def run(self) -> None:
        self._connection.ioloop.start()
        assert self._confirmed == len(self._messages)

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._settled, callback=self._begin)

    def _begin(self, _: Any) -> None:
        self._ready()
        self._publish()

    def _publish(self) -> None:
        while self._sent < len(self._messages) and self._sent - self._confirmed < WAITING:
            identity, body = self._messages[self._sent]
            self._channel.basic_publish(
                "", self._queue, body, pika.BasicProperties(message_id=identity, delivery_mode=2)
            )
            self._sent += 1
        if self._confirmed == len(self._messages):
            self._connection.close()

    def _settled(self, frame: Any) -> None:
        """Confirmations may come out of order: without `multiple` each is one."""
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        if frame.method.multiple:
            self._confirmed = max(self._confirmed, frame.method.delivery_tag)
        else:
            self._confirmed += 1
        self._publish()
