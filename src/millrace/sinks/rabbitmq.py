"""RabbitMQ: each row is a message in a queue, for workers that share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal

from millrace.config import Settings
from millrace.errors import OptionInvalid, caller
from millrace.queues.connection import SERVER, url_of
from millrace.sinks.contract import Feed, Guarantee, Sink, Writer, sink_name
from millrace.sinks.keys import CONCURRENCY, check_columns, check_concurrency, check_versions, names_of

# On every node of a cluster that has it, and synced there, before it is confirmed.
QUORUM: Mapping[str, str | int | bool] = MappingProxyType({"x-queue-type": "quorum"})
_LONGEST_NAME_BYTES = 255


def rabbitmq(
    queue: str,
    *,
    key: str | Sequence[str] | None = None,
    arguments: Mapping[str, str | int | bool] | None = None,
    server: str | None = None,
    concurrency: int = CONCURRENCY,
    name: str | None = None,
) -> RabbitMQ:
    """Publishes rows to a durable queue, over `concurrency` connections at a time. Of a table (or with a `key`) what
    has become of each key, once an epoch; otherwise every row of a stream.

    A message is the row as JSON, persistent, and has `message_id`; its headers are `millrace.flow`, `millrace.diff` (1,
    or -1 for a row that went) and `millrace.version`. The queue is made if it is not there, with these `arguments`: a
    quorum queue if nothing is said. A queue that is there must have them. `server` is [queues.SERVER] in millrace.toml;
    without it, it is the project's own.

    Guarantee: at least once with ids. An epoch counts as written when the server has confirmed every message. After a
    crash, or a server that was away, messages of one epoch may come again, each with the id that it had.
    """
    where = caller()
    keys = names_of("mr.rabbitmq", "key", key, where)
    if not isinstance(queue, str) or not 0 < len(queue.encode()) <= _LONGEST_NAME_BYTES or queue.startswith("amq."):
        remedy = (
            f'name a queue, in 1 to {_LONGEST_NAME_BYTES} bytes; those that begin with "amq." are the server\'s own'
        )
        raise OptionInvalid(name="mr.rabbitmq", option="queue", given=queue, remedy=remedy, where=where)
    if arguments is not None and not _fit(arguments):
        remedy = 'texts, whole numbers, True and False, by names like "x-max-length"'
        raise OptionInvalid(name="mr.rabbitmq", option="arguments", given=arguments, remedy=remedy, where=where)
    check_concurrency("mr.rabbitmq", concurrency, where)
    given = dict(QUORUM if arguments is None else arguments)
    called = sink_name("rabbitmq", queue, name)
    return RabbitMQ(called, where, keys, queue=queue, arguments=given, server=server, concurrency=concurrency)


def _fit(arguments: object) -> bool:
    pairs = arguments.items() if isinstance(arguments, Mapping) else [(None, None)]
    return all(isinstance(name, str) and isinstance(value, str | int) for name, value in pairs)


@dataclass(frozen=True, eq=False)
class RabbitMQ(Sink):
    kind: ClassVar[str] = "rabbitmq"
    guarantee: ClassVar[Guarantee] = "at least once with ids"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "either"

    queue: str = field(kw_only=True)
    arguments: Mapping[str, str | int | bool] = field(kw_only=True)
    server: str | None = field(kw_only=True)
    concurrency: int = field(kw_only=True)

    def keyed(self, table: Sequence[str], stream: Sequence[str]) -> tuple[str, ...]:
        check_versions(self, table)
        return super().keyed(table, stream)

    def check(self, feed: Feed) -> None:
        check_columns(self, feed, feed.key)

    def servers(self, settings: Settings) -> tuple[str, ...]:
        return () if self.server is not None or SERVER in settings.queues else (SERVER,)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:
        from millrace.sinks.rabbitmq_writer import RabbitMQWriter

        return RabbitMQWriter(self, url_of(settings, self.server), flow, feed, folder)
