"""OpenSearch, or Elasticsearch by the same API: one document for each key, with the place in the log as its version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from millrace.config import Settings
from millrace.errors import OptionInvalid, SinkColumnUnfit, caller
from millrace.sinks.contract import Feed, Guarantee, Sink, Writer, sink_name
from millrace.sinks.keys import check_columns, check_versions, names_of
from millrace.sinks.servers import url_of

if TYPE_CHECKING:
    from millrace.sinks.rebuilding import Rebuilding, Site

SERVER = "opensearch"
# What the server takes for the name of an index, less the number that we put behind it.
_INDEX = re.compile(r"[a-z0-9][a-z0-9_.-]{0,200}")
# Columns of these names would be taken for what the server itself knows of a document.
_TAKEN = ("_id", "_index", "_type", "_source", "_routing", "_field_names", "_ignored", "_seq_no", "_version", "_size")


def opensearch(
    index: str,
    *,
    key: str | Sequence[str] | None = None,
    server: str | None = None,
    name: str | None = None,
) -> OpenSearch:
    """Holds the last row of each key as a document of an index, whose `_id` is the key. `server` is a name in
    millrace.toml ([sinks.NAME]), of OpenSearch or of Elasticsearch; without one it is the project's own.

    `index` is an alias of `INDEX-000001`, which is made with a mapping from the rows' types; new columns are added to
    it. An index that has that name already is used as it is. Rows that the server refuses go to the dead letters.

    Guarantee: exactly once per key. The server compares versions: a row that comes again changes nothing, and an older
    one never takes the place of a newer, or of one that was deleted within the last hour. A reader may see some keys of
    an epoch before others.
    """
    where = caller()
    keys = names_of("mr.opensearch", "key", key, where)
    if not isinstance(index, str) or not _INDEX.fullmatch(index):
        remedy = "name it with lower-case letters, digits, _ , . and -"
        raise OptionInvalid(name="mr.opensearch", option="index", given=index, remedy=remedy, where=where)
    return OpenSearch(sink_name("opensearch", index, name), where, keys, index=index, server=server)


@dataclass(frozen=True, eq=False)
class OpenSearch(Sink):
    kind: ClassVar[str] = "opensearch"
    guarantee: ClassVar[Guarantee] = "exactly once per key"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "keys"

    index: str = field(kw_only=True)
    server: str | None = field(kw_only=True)

    def keyed(self, table: Sequence[str], stream: Sequence[str]) -> tuple[str, ...]:
        check_versions(self, table)
        return super().keyed(table, stream)

    def check(self, feed: Feed) -> None:
        check_columns(self, feed, feed.key)
        for column in feed.columns.names:
            if column in _TAKEN or not all(column.split(".")):
                reason = "the server takes that name for something else"
                raise SinkColumnUnfit(
                    sink=self.name, column=column, reason=reason, remedy="give it another name", where=self.where
                )

    def servers(self, settings: Settings) -> tuple[str, ...]:
        return () if self.server is not None or SERVER in settings.sinks else (SERVER,)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:
        from millrace.sinks.opensearch_writer import OpenSearchWriter

        return OpenSearchWriter(self, url_of(settings, self.server, SERVER), flow, feed, folder)

    def rebuilding(self, site: Site) -> Rebuilding:
        from millrace.sinks.opensearch_rebuild import OpenSearchRebuilding

        return OpenSearchRebuilding(self, url_of(site.settings, self.server, SERVER), site)
