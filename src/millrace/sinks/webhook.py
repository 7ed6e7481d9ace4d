"""A webhook: each row is posted to an address of somebody's, with an id by which a repeat is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from millrace.config import Settings
from millrace.errors import OptionInvalid, caller
from millrace.sinks.contract import Feed, Guarantee, Sink, Writer, sink_name
from millrace.sinks.keys import CONCURRENCY, check_columns, check_concurrency, check_versions, names_of


def webhook(
    server: str,
    *,
    key: str | Sequence[str] | None = None,
    concurrency: int = CONCURRENCY,
    name: str | None = None,
) -> Webhook:
    """Posts rows as JSON to the URL of [sinks.SERVER] in millrace.toml, `concurrency` of them at a time. Of a table (or
    with a `key`) what has become of each key, once an epoch; otherwise every row of a stream.

    {"id": "…", "flow": "shop.orders", "diff": 1, "version": 17, "row": {…}}

    `Idempotency-Key` is the id. An answer of 2xx takes the row; 4xx is the row's fault, and it goes to the dead letters
    with the answer; anything else, and 401, 403, 407, 408, 425 and 429, is tried again, and after a while the epoch is
    owed.

    Guarantee: at least once with ids. After a crash, or a server that was away, rows of one epoch may be posted again,
    each with the id that it had. Those of one key, or of one partition, are posted one after the other, in their order.
    """
    where = caller()
    keys = names_of("mr.webhook", "key", key, where)
    if not isinstance(server, str) or not server:
        remedy = 'name a section of millrace.toml: mr.webhook("billing") is [sinks.billing]'
        raise OptionInvalid(name="mr.webhook", option="server", given=server, remedy=remedy, where=where)
    check_concurrency("mr.webhook", concurrency, where)
    return Webhook(sink_name("webhook", server, name), where, keys, server=server, concurrency=concurrency)


@dataclass(frozen=True, eq=False)
class Webhook(Sink):
    kind: ClassVar[str] = "webhook"
    guarantee: ClassVar[Guarantee] = "at least once with ids"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "either"

    server: str = field(kw_only=True)
    concurrency: int = field(kw_only=True)

    def keyed(self, table: Sequence[str], stream: Sequence[str]) -> tuple[str, ...]:
        check_versions(self, table)
        return super().keyed(table, stream)

    def check(self, feed: Feed) -> None:
        check_columns(self, feed, feed.key)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:
        from millrace.sinks.webhook_writer import WebhookWriter

        return WebhookWriter(self, settings.sink(self.server).reveal(), flow, feed, folder)
