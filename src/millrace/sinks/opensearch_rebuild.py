"""An index built again: another of the next number is filled, and the alias is switched to it in one step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from millrace.sinks.comparing import Held, canonical, parsed, plain
from millrace.sinks.contract import Writer
from millrace.sinks.http import Caller
from millrace.sinks.ledger import Entry, Epoch, FileLedger
from millrace.sinks.opensearch_bulk import ANSWER_S, Index, check
from millrace.sinks.opensearch_index import Indexes, Ledger
from millrace.sinks.opensearch_writer import OpenSearchWriter, texts
from millrace.sinks.rebuilding import Rebuilding, Site, Which
from millrace.sinks.texts import document, joined_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millrace.sinks.opensearch import OpenSearch

PAGE_DOCUMENTS = 1_000
_KEPT = "2m"
_JSON = {"Content-Type": "application/json"}


class OpenSearchRebuilding(Rebuilding):
    def __init__(self, sink: OpenSearch, url: str, site: Site) -> None:
        self._sink, self._url, self._site = sink, url, site
        self._caller = Caller(sink, url, ANSWER_S)
        self._indexes = Indexes(sink, self._caller, sink.index, site.feed)
        self._mark = f"{site.flow_beside}:{sink.name}"

    @property
    def keyed(self) -> bool:
        return True

    def held(self) -> Entry | None:
        return self._ledger(self._site.flow).held()

    def begin(self, epoch: Epoch) -> Writer:  # noqa: ARG002 -- the switch writes it
        self.discard()
        made = self._indexes.beside(self._indexes.live(), self._mark)
        sink = replace(self._sink, index=made.physical)
        return OpenSearchWriter(sink, self._url, self._site.flow_beside, self._site.feed, self._site.folder_beside)

    def there(self, which: Which) -> Iterator[Held]:
        index = self._indexes.live() if which == "live" else self._beside()
        if index is None:
            return
        self._ask("POST", f"/{quote(index.physical)}/_refresh")
        path, body = f"/{quote(index.physical)}/_search?scroll={_KEPT}", {"size": PAGE_DOCUMENTS, "sort": ["_doc"]}
        found = self._ask("POST", path, body)
        try:
            while hits := found["hits"]["hits"]:
                yield from ((hit["_id"], plain(hit["_source"])) for hit in hits)
                found = self._ask("POST", "/_search/scroll", {"scroll": _KEPT, "scroll_id": found["_scroll_id"]})
        finally:
            self._ask("DELETE", "/_search/scroll", {"scroll_id": found["_scroll_id"]})

    def wanted(self, rows: DataFrame) -> Iterator[Held]:
        feed = self._site.feed
        found = texts(rows, feed).select(joined_key(feed), document(feed)).toLocalIterator()
        yield from ((key, canonical(text)) for key, text in found if key)

    def switch(self, epoch: Epoch) -> None:
        if (after := self._beside()) is not None:
            self._indexes.switch(self._indexes.live(), after)
        self._ledger(self._site.flow).write(epoch)
        FileLedger(self._site.folder).write(epoch)
        self._indexes.drop_replaced(self._mark)
        self._forget_beside()

    def discard(self) -> None:
        if (beside := self._beside()) is not None:
            self._indexes.drop(beside.physical)
        self._forget_beside()

    def close(self) -> None:
        self._caller.close()

    def _forget_beside(self) -> None:
        self._ledger(self._site.flow_beside).forget()
        self._site.forget_beside()

    def _beside(self) -> Index | None:
        return self._indexes.built_beside(self._mark)

    def _ledger(self, flow: str) -> Ledger:
        return Ledger(self._sink, self._caller, flow)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        answer = self._caller.ask(method, path, sent, None if body is None else _JSON)
        check(self._sink, answer, whole=True)
        return parsed(answer.body)
