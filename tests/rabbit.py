"""RabbitMQ as others use it: whoever publishes to a queue, and the workers that share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pika

LIMIT_S = 30
MOST = 65_535


class Put(NamedTuple):
    """A message to be published."""

    body: bytes
    id: str | bytes | None = None
    headers: dict[str, Any] | None = None


class Found(NamedTuple):
    """A message as a worker has it."""

    body: bytes
    id: str | None
    headers: dict[str, Any]
    redelivered: bool


@contextmanager
def channel(url: str) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def declare(url: str, queue: str, arguments: dict[str, Any] | None = None, **options: Any) -> None:
    with channel(url) as opened:
        opened.queue_declare(queue, **{"durable": True, **options}, arguments=arguments)


def put(url: str, queue: str, messages: Iterable[Put]) -> None:
    """Returns when the server has confirmed that all of them are on disk."""
    with channel(url) as opened:
        opened.tx_select()
        for message in messages:
            properties = pika.BasicProperties(message_id=message.id, headers=message.headers, delivery_mode=2)
            opened.basic_publish("", queue, message.body, properties)
        opened.tx_commit()


def count(url: str, queue: str) -> int:
    with channel(url) as opened:
        return _count(opened, queue)


def _count(opened: Any, queue: str) -> int:
    """A quorum queue that does not answer its own server within 250 ms has 0 messages for whoever declares it: whether
    it is empty, only taking one tells."""
    while not (number := int(opened.queue_declare(queue, passive=True).method.message_count)):
        method, _, _ = opened.basic_get(queue)
        if method is None:
            break
        opened.basic_nack(method.delivery_tag, requeue=True)
    return number


def take(url: str, queue: str, limit: int | None = None) -> list[Found]:
    """Works through a queue, to its end or up to so many: each is acknowledged, and so forgotten."""
    return _read(url, queue, limit, forget=True)


def look(url: str, queue: str) -> list[Found]:
    """All that is in a queue. Nothing is acknowledged, so all of it goes back."""
    return _read(url, queue, None, forget=False)


def _read(url: str, queue: str, limit: int | None, *, forget: bool) -> list[Found]:
    found: list[Found] = []
    with channel(url) as opened:
        wanted = _count(opened, queue)
        wanted = wanted if limit is None else min(limit, wanted)
        # Without a limit of ours, a quorum queue has one of its own: 2,000 that are not acknowledged.
        opened.basic_qos(prefetch_count=min(wanted, 1_000 if forget else MOST))
        for method, properties, body in opened.consume(queue, inactivity_timeout=LIMIT_S) if wanted else ():
            assert method is not None, f"{len(found)} of {wanted} within {LIMIT_S} s"
            found.append(Found(body, properties.message_id, properties.headers or {}, method.redelivered))
            if forget:
                opened.basic_ack(method.delivery_tag)
            if len(found) == wanted:
                break
    return found
