"""Reaching RabbitMQ: where it is, what is asked of the client library, and what its errors mean. Workers import this
file, and so it imports little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from millrace import local
from millrace.config import Settings
from millrace.errors import ExtraMissing

SERVER = "rabbitmq"
EXTRA = "rabbitmq"
CONNECT_S = 10
# Two of these without a word from the other side, and a connection counts as lost.
HEARTBEAT_S = 20
# How long a server may hold its publishers back, because it is short of memory or disk, before that is an error.
BLOCKED_S = 20

# RabbitMQ's codes for what it does not do: no such queue, no right to it, somebody's own, other than was said.
MISSING, FORBIDDEN, LOCKED, UNLIKE = 404, 403, 405, 406


class UrlUnfit(Exception):
    """A URL that is none of RabbitMQ. It is not told which: it may hold a password."""


# What the server said at the login, where the client keeps it as a text.
_SAID = re.compile(r"""\(\d{3}\) ['"](.*)['"]""")
URL_FORM = "write it as amqp://user:password@host:5672/virtual-host, or amqps:// for TLS"


def client() -> Any:
    try:
        import pika
    except ImportError as error:
        raise ExtraMissing(what="RabbitMQ", reason=f"no module {error.name}", extra=EXTRA) from None
    return pika


def url_of(settings: Settings, name: str | None) -> str:
    """The URL of `[queues.NAME]`, passwords in clear: not to be shown. Without a name it is that of `[queues.rabbitmq]`
    or, without such a section, the project's own RabbitMQ."""
    if name is None and SERVER not in settings.queues:
        return local.address(settings, SERVER)
    return settings.queue_server(name or SERVER).reveal()


def place_of(url: str) -> str:
    """Host and port, as they may be shown."""
    at = urlsplit(url)
    return f"{at.hostname}:{at.port}" if at.port else str(at.hostname)


def parameters(url: str) -> Any:
    """What the client is told. What a URL says of heartbeats and limits is not heard: ours belong together."""
    pika = client()
    try:
        if urlsplit(url).scheme not in ("amqp", "amqps") or not urlsplit(url).hostname:
            raise UrlUnfit
        found = pika.URLParameters(url)
    except (ValueError, TypeError):
        raise UrlUnfit from None
    found.connection_attempts, found.retry_delay = 1, 0
    found.socket_timeout = found.stack_timeout = CONNECT_S
    found.heartbeat, found.blocked_connection_timeout = HEARTBEAT_S, BLOCKED_S
    found.client_properties = {"connection_name": "millrace"}
    return found


def connect(url: str) -> Any:
    """A connection whose calls wait for their answers."""
    return client().BlockingConnection(parameters(url))


def reason_of(error: BaseException) -> str:
    """The cause at the bottom of an error of the client, which wraps what the server or the system said in others."""
    found = [*_within(error)]
    for each in found:
        if said := getattr(each, "reply_text", None):
            return str(said)
    for each in found:
        if isinstance(each, OSError) and each.strerror:
            return str(each.strerror)
    text = str(found[-1]) or type(found[-1]).__name__
    said = _SAID.search(text)
    return said[1] if said else text


def code_of(error: BaseException) -> int | None:
    """What the server gave as the number of its reason."""
    return next((each.reply_code for each in _within(error) if hasattr(each, "reply_code")), None)


def _within(error: BaseException) -> Iterator[Any]:
    yield error
    inner = [*getattr(error, "exceptions", ()), getattr(error, "exception", None), *error.args]
    for each in inner:
        if isinstance(each, BaseException):
            yield from _within(each)
