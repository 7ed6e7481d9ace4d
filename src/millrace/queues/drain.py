"""A queue drained into a topic: a message is acknowledged when its record is on all in-sync replicas, never before.

What must hold:
- whoever is killed, and whenever: a message is in the topic, or among its dead letters, or still in the queue;
- what comes again, because a crash was between the two, has the same message id in its headers, and is marked as
  redelivered;
- no more than `prefetch` messages are under way.

One channel takes the messages in the queue's order, and one writer writes them in it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millrace.config import Settings
from millrace.errors import (
    QueueRefused,
    QueueServerUnreachable,
    QueueUnknown,
    QueueUrlUnfit,
    RecordTooLarge,
    ServerError,
)
from millrace.log import Headers, Log, Record, Writer
from millrace.log.lines import NOT_JSON, parsed_line, why
from millrace.log.record import json_bytes
from millrace.queues.connection import (
    FORBIDDEN,
    LOCKED,
    MISSING,
    URL_FORM,
    UrlUnfit,
    client,
    code_of,
    connect,
    place_of,
    reason_of,
    url_of,
)

PREFETCH, MOST_PREFETCH = 1_000, 10_000
# How long a record is tried: less than RabbitMQ needs to take a silent reader for dead.
DELIVERY_S = 30.0
# How often it is looked whether somebody wants an end.
LOOK_S = 0.2
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0

HEADERS = "millrace.queue."
NAME, ID, REDELIVERED = HEADERS + "name", HEADERS + "id", HEADERS + "redelivered"
_PROPERTIES = ("content_type", "correlation_id", "reply_to", "type", "app_id")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Message:
    """One delivery. `tag` is how it is acknowledged; `id` is None if its publisher gave it none."""

    tag: int
    body: bytes
    id: str | None
    headers: Headers


@dataclass
class Drained:
    """How many messages were written, how many of them may have been before, and how many are dead letters."""

    written: int = 0
    redelivered: int = 0
    dead: int = 0


class Drain:
    """From one queue into one topic. `key` is the field whose value becomes the record's key; `id` is a field into
    which the message's id is put, for flows that drop repeats. Values are JSON, and what is not goes to the topic's
    dead letters; with `raw` every message is taken as it is."""

    def __init__(
        self,
        settings: Settings,
        queue: str,
        topic: str,
        *,
        server: str | None = None,
        key: str | None = None,
        id: str | None = None,
        raw: bool = False,
        prefetch: int = PREFETCH,
    ) -> None:
        self.queue, self.topic = queue, topic
        self.drained = Drained()
        self._key, self._id, self._raw, self._prefetch = key, id, raw, prefetch
        self._server = f"[queues.{server}]" if server else "RabbitMQ"
        self._url = url_of(settings, server)
        self._log = Log(settings)

    def run(self, *, stop: threading.Event | None = None, until_empty: bool = False, say: Say = lambda _: None) -> None:
        """Drains until `stop` is set or, if that is asked, until the queue is empty.

        A server that is away at the start is an error; one that goes away later is waited for.
        """
        asked = stop or threading.Event()
        writer = self._log.writer(self.topic, delivery_s=DELIVERY_S)
        tried, reached = 0, False
        while True:
            before = self._settled
            try:
                with self._channel() as channel:
                    reached = True
                    self._take(channel, writer, asked, until_empty)
                return
            except ServerError as error:
                if not reached:
                    raise
                tried = 0 if self._settled > before else tried
                pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**tried)
                tried += 1
                say(f"{error.sentence()}; tried again in {pause_s:.0f} s")
                if asked.wait(pause_s):
                    return

    @property
    def _settled(self) -> int:
        return self.drained.written + self.drained.dead

    def _take(self, channel: Any, writer: Writer, asked: threading.Event, until_empty: bool) -> None:
        batch: list[Message] = []
        deliveries = channel.consume(self.queue, inactivity_timeout=LOOK_S)
        for method, properties, body in deliveries:
            if method is not None:
                batch.append(_message(self.queue, method, properties, body))
                if channel.get_waiting_message_count() and len(batch) < self._prefetch:
                    continue
                self._settle(channel, writer, batch)
                batch = []
            elif until_empty and self._is_empty(channel):
                return
            if asked.is_set():
                return
        # The consumer was cancelled: its queue was deleted, or moves. The next look at it tells.
        raise self._unreachable("it has ended the reading")

    def _is_empty(self, channel: Any) -> bool:
        """A count of 0 does not tell: a quorum queue that does not answer its own server within 250 ms has it too."""
        if channel.queue_declare(self.queue, passive=True).method.message_count:
            return False
        trial = channel.connection.channel()
        try:
            method, _, _ = trial.basic_get(self.queue)
        except client().exceptions.ChannelClosedByBroker:
            return True  # a queue with a single active consumer lets nobody else take: there the count has to do
        trial.close()  # which puts back what was taken
        return method is None

    def _settle(self, channel: Any, writer: Writer, batch: list[Message]) -> None:
        """Writes what was taken, waits until it is safe, and acknowledges it: in this order."""
        dead = 0
        for message in batch:
            try:
                value, key = (message.body, None) if self._raw else self._record(message)
            except NOT_JSON as error:
                self._bury(message, why(error))
                dead += 1
            else:
                self._write(writer, message, value, key)
        writer.flush()
        channel.basic_ack(batch[-1].tag, multiple=True)
        self.drained.written += len(batch) - dead
        self.drained.dead += dead
        self.drained.redelivered += sum(any(name == REDELIVERED for name, _ in message.headers) for message in batch)

    def _record(self, message: Message) -> tuple[bytes, bytes | None]:
        """Its value and key; a ValueError if it cannot be one."""
        parsed, key = parsed_line(message.body, self._key)
        if self._id is None:
            return message.body, key
        if not isinstance(parsed, dict) or self._id in parsed:
            raise ValueError(f"it has no room for its id: it is no object, or has a field {self._id!r} already")
        if message.id is None:
            raise ValueError("it has no message id")
        # Beside what is there, whose numbers would lose digits if they were written anew.
        head = json_bytes({self._id: message.id}).removesuffix(b"}")
        return head + (b"," if parsed else b"") + message.body.strip().removeprefix(b"{"), key

    def _write(self, writer: Writer, message: Message, value: bytes, key: bytes | None) -> None:
        try:
            writer.write(value, key=key, headers=message.headers)
        except RecordTooLarge:
            writer.flush()  # those before it are taken; they stay in the queue, and come again
            raise

    def _bury(self, message: Message, reason: str) -> None:
        """Keeps it among the dead letters of the topic, in which it has no place yet."""
        self._log.dead.put(Record(self.topic, -1, -1, None, None, message.body, message.headers), reason)

    @contextlib.contextmanager
    def _channel(self) -> Iterator[Any]:
        """A channel on which the queue is known to be there; errors of the client as ours."""
        errors = client().exceptions
        connection = None
        try:
            connection = connect(self._url)
            channel = connection.channel()
            channel.queue_declare(self.queue, passive=True)
            channel.basic_qos(prefetch_count=self._prefetch)
            yield channel
        except UrlUnfit:
            raise QueueUrlUnfit(server=self._server, remedy=URL_FORM) from None
        except errors.ChannelClosedByBroker as error:
            raise self._refused(error) from None
        except (errors.AMQPError, OSError) as error:
            raise self._unreachable(reason_of(error)) from None
        finally:
            if connection is not None and connection.is_open:
                with contextlib.suppress(errors.AMQPError, OSError):
                    connection.close()

    def _refused(self, error: Exception) -> Exception:
        code, reason = code_of(error), reason_of(error)
        if code == MISSING:
            return QueueUnknown(queue=self.queue, address=place_of(self._url), reason=reason)
        if code in (FORBIDDEN, LOCKED):
            return QueueRefused(queue=self.queue, address=place_of(self._url), reason=reason)
        return self._unreachable(reason)

    def _unreachable(self, reason: str) -> QueueServerUnreachable:
        return QueueServerUnreachable(address=place_of(self._url), reason=reason)


def _message(queue: str, method: Any, properties: Any, body: bytes) -> Message:
    found: list[tuple[str, bytes | None]] = [(NAME, queue.encode())]
    identity = None if properties.message_id is None else _text(properties.message_id)
    if identity is not None:
        found.append((ID, identity.encode()))
    if method.redelivered:
        found.append((REDELIVERED, b"true"))
    for name in _PROPERTIES:
        if (value := getattr(properties, name)) is not None:
            found.append((f"{HEADERS}{name}", _text(value).encode()))
    found += [(_text(name), _header_bytes(value)) for name, value in (properties.headers or {}).items()]
    return Message(method.delivery_tag, body, identity, tuple(found))


def _text(value: Any) -> str:
    """Short texts of AMQP are UTF-8, and the client gives bytes where one is not (the 16 bytes of a UUID, say). No two
    of them become the same text: ids are what repeats are known by."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _header_bytes(value: Any) -> bytes | None:
    """A value of a header of AMQP, which may be a table: texts and bytes as they are, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
