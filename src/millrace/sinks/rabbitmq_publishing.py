"""What a task does for RabbitMQ: publishes its rows, many before the first is confirmed, and returns when every one is.
Workers import this file, and so it imports little.

    row ──publish──▶ waiting ──confirmed──▶ done
                        │ ├──not confirmed (the queue is full)──▶ published again after a pause
                        │ └──too large: the channel closes──▶ refused; the others that waited go on another channel
                        └──returned (the queue is gone)──▶ the epoch fails, and the queue is made anew
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from millrace.errors import MillraceError, SinkFailed, SinkTargetUnfit, SinkUnreachable
from millrace.queues.connection import BLOCKED_S, UNLIKE, URL_FORM, UrlUnfit, client, parameters, reason_of
from millrace.sinks.contract import RefusedRow, Sink

# What may wait for its confirmation: enough to keep the server busy, and little to publish again when it is lost.
WAITING_ROWS, WAITING_BYTES = 2_000, 8 * 1024 * 1024
# Confirmations come back in much less, unless the server has stopped.
ANSWER_S = BLOCKED_S
# How long a queue may be full before that is the epoch's affair, and how long a pause is.
FULL_S, PAUSE_S = 10.0, 0.2
# All is confirmed, and the farewell is a courtesy: a server that holds publishers back does not even read it.
FAREWELL_S = 2.0
_LOOK_S = 0.5
_TOO_LARGE = re.compile(r"message size \d+ (?:bytes )?is larger than (?:the )?configured max size (\d+)")


class _Row(NamedTuple):
    id: str
    text: bytes
    key: str | None
    diff: int
    version: int


class Publishing:
    """With `once` a row that the queue may have is not published again: where others would go on another channel, the
    epoch ends."""

    def __init__(self, sink: Sink, url: str, queue: str, flow: str, *, once: bool = False) -> None:
        self._sink, self._url, self._queue, self._flow, self._once = sink, url, queue, flow, once

    def __call__(self, rows: Iterator[Any]) -> Iterable[RefusedRow]:
        first = next(rows, None)
        if first is None:
            return []  # no connection for a partition without rows
        with told(self._sink):
            every = (_Row(row[0], row[1].encode(), *row[2:]) for row in _again(first, rows))
            return _Publisher(self._sink, self._url, self._queue, self._flow, every, once=self._once).run()


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


class _Publisher:
    """One connection, on the client's own loop: its callbacks are the arrows of the picture above."""

    def __init__(self, sink: Sink, url: str, queue: str, flow: str, rows: Iterator[_Row], *, once: bool) -> None:
        self._sink, self._queue, self._flow, self._rows, self._once = sink, queue, flow, rows, once
        self._pika = client()
        self._parameters = parameters(url)
        self._again: deque[_Row] = deque()
        self._waiting: dict[int, _Row] = {}
        self._waiting_bytes = self._number = 0
        self._refused: list[RefusedRow] = []
        self._error: BaseException | None = None
        self._held_back: str | None = None
        self._done = self._gone = self._dropped = self._paused = False
        self._full_since: float | None = None
        self._heard = time.monotonic()
        self._connection: Any = None
        self._channel: Any = None
        self._loop: Any = None

    def run(self) -> list[RefusedRow]:
        pika = self._pika
        self._loop = pika.adapters.select_connection.IOLoop()
        self._connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=self._opened,
            on_open_error_callback=self._closed,
            on_close_callback=self._closed,
            custom_ioloop=self._loop,
        )
        self._connection.add_on_connection_blocked_callback(self._blocked)
        self._connection.add_on_connection_unblocked_callback(self._unblocked)
        self._loop.call_later(_LOOK_S, self._look)
        try:
            self._loop.start()
        finally:
            self._loop.close()
        if self._error is not None:
            raise self._error
        return self._refused

    # ---- the connection and its channel

    def _opened(self, connection: Any) -> None:
        self._heard = time.monotonic()
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel, self._number = channel, 0
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._settled, callback=lambda _: self._publish())

    def _channel_closed(self, _: Any, error: Any) -> None:
        if not isinstance(error, self._pika.exceptions.ChannelClosedByBroker):
            return  # with its connection, which tells why
        large = _TOO_LARGE.search(error.reply_text) if error.reply_code == UNLIKE else None
        if large is None or self._once:
            self._end(SinkFailed(sink=self._sink.name, reason=error.reply_text, where=self._sink.where))
            return
        self._channel = None
        limit_bytes = int(large[1])
        waited = [*self._waiting.values()]
        self._waiting.clear()
        self._waiting_bytes = 0
        for row in waited:
            if len(row.text) > limit_bytes:
                self._refused.append(RefusedRow(row.key, row.text.decode(), error.reply_text))
        self._again.extendleft(row for row in reversed(waited) if len(row.text) <= limit_bytes)
        self._opened(self._connection)

    def _closed(self, _: Any, error: BaseException) -> None:
        self._gone = True
        if self._held_back is not None and not self._done:
            error = SinkUnreachable(sink=self._sink.name, reason=self._held_back, where=self._sink.where)
        self._end(None if self._done else error)

    def _blocked(self, _: Any, frame: Any) -> None:
        self._held_back = f"it holds publishers back: {frame.method.reason}"

    def _unblocked(self, *_: Any) -> None:
        self._held_back, self._heard = None, time.monotonic()

    # ---- the rows

    def _publish(self) -> None:
        while self._may_publish():
            row = self._next()
            if row is None:
                if not self._waiting and self._error is None:
                    self._done = True
                    self._connection.close()
                    self._loop.call_later(FAREWELL_S, self._end)
                return
            self._number += 1
            self._waiting[self._number] = row
            self._waiting_bytes += len(row.text)
            properties = self._pika.BasicProperties(
                message_id=row.id,
                content_type="application/json",
                delivery_mode=2,
                app_id="millrace",
                headers={
                    "millrace.flow": self._flow,
                    "millrace.diff": row.diff,
                    "millrace.version": row.version,
                },
            )
            self._channel.basic_publish("", self._queue, row.text, properties, mandatory=True)

    def _may_publish(self) -> bool:
        room = len(self._waiting) < WAITING_ROWS and self._waiting_bytes < WAITING_BYTES
        return room and self._channel is not None and not self._paused and not self._done

    def _next(self) -> _Row | None:
        if self._again:
            return self._again.popleft()
        try:
            return next(self._rows, None)
        except Exception as error:  # of Spark's: not through the client's loop
            self._end(error)
            return None

    def _settled(self, frame: Any) -> None:
        """Confirmed, or the opposite: one message, or all up to it."""
        self._heard = time.monotonic()
        tag = frame.method.delivery_tag
        tags = [*takewhile(tag.__ge__, self._waiting)] if frame.method.multiple else [tag]
        rows = [self._waiting.pop(each) for each in tags]
        self._waiting_bytes -= sum(len(row.text) for row in rows)
        if isinstance(frame.method, self._pika.spec.Basic.Ack):
            self._full_since = None
            self._publish()
            return
        self._again.extend(rows)
        self._full_since = self._full_since or self._heard
        if self._heard - self._full_since > FULL_S:
            self._end(SinkFailed(sink=self._sink.name, reason="the queue takes no more", where=self._sink.where))
        elif not self._paused:
            self._paused = True
            self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._paused = False
        self._publish()

    def _returned(self, _: Any, method: Any, *__: Any) -> None:
        reason = f"the queue {self._queue!r} is gone: {method.reply_text}"
        self._end(SinkFailed(sink=self._sink.name, reason=reason, where=self._sink.where))

    # ---- the end

    def _look(self) -> None:
        if time.monotonic() - self._heard > ANSWER_S:
            reason = self._held_back or f"no confirmation within {ANSWER_S} s"
            self._end(SinkUnreachable(sink=self._sink.name, reason=reason, where=self._sink.where))
        else:
            self._loop.call_later(_LOOK_S, self._look)

    def _end(self, error: BaseException | None = None) -> None:
        """Leaves the loop when the connection is gone. One that is still there is dropped: a server that has stopped
        would not answer a farewell."""
        self._error = self._error or error
        if self._gone:
            self._loop.stop()
        elif not self._dropped:
            self._dropped = True
            self._connection._terminate_stream(
                self._pika.exceptions.StreamLostError("dropped")
            )  # it has no public name


@contextlib.contextmanager
def told(sink: Sink) -> Iterator[None]:
    """Errors of the client as ours. None of them holds the URL."""
    workflow = client().adapters.utils.connection_workflow.AMQPConnectorException
    try:
        yield
    except MillraceError:
        raise
    except UrlUnfit:
        raise SinkTargetUnfit(
            sink=sink.name,
            target="its server",
            reason="that is not a URL of RabbitMQ",
            remedy=URL_FORM,
            where=sink.where,
        ) from None
    except (client().exceptions.AMQPError, workflow, OSError) as error:
        raise SinkUnreachable(sink=sink.name, reason=reason_of(error), where=sink.where) from None
