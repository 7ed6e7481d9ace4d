"""The index that a sink writes: made from the schema behind an alias, grown with it; and the ledger beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from millrace.errors import SinkTargetUnfit
from millrace.sinks.contract import Feed, Sink
from millrace.sinks.http import Answer, Caller
from millrace.sinks.ledger import Entry, Epoch
from millrace.sinks.opensearch_bulk import Index, check, reason_in

LEDGER = "millrace-ledger"
# Versions of documents that were deleted are forgotten after this. The server's own minute is shorter than a task of a
# process that was thought dead may take.
GC_DELETES = "1h"
# Digits that a double keeps: a scaled float is computed through one.
_EXACT_DIGITS = 15
# Longer texts are found by their words only: an exact term has at most 32,766 bytes.
_EXACT_TEXT = 8_191
_JSON = {"Content-Type": "application/json"}
_NOT_FOUND = 404
_MADE_BY = "millrace"


def mapping_of(kind: DataType) -> dict[str, Any]:
    """How a type is found in the index. What a document holds is its own text, and loses nothing either way.

    Whole numbers are all `long` and others `double`: an index never changes a type, and these can grow.
    """
    if isinstance(kind, ArrayType):  # every field may have several values
        return mapping_of(kind.elementType)
    if isinstance(kind, StructType):
        return {"properties": {each.name: mapping_of(each.dataType) for each in kind.fields}}
    if isinstance(kind, (MapType, VariantType)):  # each key would become a field of the index
        return {"type": "object", "enabled": False}
    if isinstance(kind, IntegralType):
        return {"type": "long"}
    if isinstance(kind, DecimalType):
        if kind.precision <= _EXACT_DIGITS:
            return {"type": "scaled_float", "scaling_factor": 10**kind.scale}
        return {"type": "keyword", "fields": {"number": {"type": "double"}}}
    if isinstance(kind, (FloatType, DoubleType)):
        return {"type": "double"}
    if isinstance(kind, (DateType, TimestampType, TimestampNTZType)):
        return {"type": "date", "format": "strict_date_optional_time"}
    if isinstance(kind, BooleanType):
        return {"type": "boolean"}
    if isinstance(kind, BinaryType):
        return {"type": "binary"}
    return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _EXACT_TEXT}}}


def as_text(kind: DataType) -> bool:
    """Whether a value stands in its document as a text, because a reader's numbers would not keep its digits."""
    return isinstance(kind, DecimalType) and kind.precision > _EXACT_DIGITS


class Indexes:
    """Makes indexes ready, and switches them."""

    def __init__(self, sink: Sink, caller: Caller, name: str, feed: Feed) -> None:
        self._sink, self._caller, self._name, self._feed = sink, caller, name, feed

    def ready(self, before_making: Callable[[], None]) -> Index:
        """The index as it is to be written: found, or made if it may be."""
        behind = sorted(self._found(f"/_alias/{quote(self._name)}"))
        if len(behind) > 1:
            raise self._unfit(f"it is an alias of several indexes, {', '.join(behind)}")
        if behind:
            found = Index(self._name, behind[0])
        elif self._found(f"/{quote(self._name)}"):
            found = Index(self._name, self._name)
        else:
            before_making()
            found = Index(self._name, f"{self._name}-000001")
            self._make(found.physical, {self._name: {}})
            return found
        self._grow(found)
        return found

    def beside(self, index: Index) -> Index:
        """An empty index of the next number, that nobody sees yet."""
        numbered = re.fullmatch(rf"{re.escape(self._name)}-(\d+)", index.physical)
        number = int(numbered[1]) + 1 if numbered else 1
        made = Index(self._name, f"{self._name}-{number:06d}")
        self._make(made.physical, {})
        return made

    def switch(self, before: Index, after: Index) -> None:
        """Lets the alias name another index: searches see the one or the other, never none."""
        removed: dict[str, Any] = {"remove": {"index": before.physical, "alias": self._name}}
        if not before.aliased:  # an index cannot have the alias's name: it goes in the same step
            removed = {"remove_index": {"index": before.physical}}
        added = {"add": {"index": after.physical, "alias": self._name}}
        self._said(self._send("POST", "/_aliases", {"actions": [removed, added]}))

    def _make(self, physical: str, aliases: dict[str, Any]) -> None:
        body = {"settings": {"index.gc_deletes": GC_DELETES}, "mappings": self._mappings(), "aliases": aliases}
        self._said(self._send("PUT", f"/{quote(physical)}", body))

    def _mappings(self) -> dict[str, Any]:
        return {
            "dynamic": False,
            "_meta": {"made_by": _MADE_BY},
            "properties": {each.name: mapping_of(each.dataType) for each in self._feed.columns.fields},
        }

    def _grow(self, index: Index) -> None:
        """Adds what is missing. Of an index that we made, the server compares types too, and tells what changed."""
        held = self._found(f"/{quote(index.physical)}/_mapping")[index.physical]["mappings"]
        ours = held.get("_meta", {}).get("made_by") == _MADE_BY
        known = held.get("properties", {})
        wanted = self._mappings()["properties"]
        missing = {name: kind for name, kind in wanted.items() if ours or name.partition(".")[0] not in known}
        if any(known.get(name) != kind for name, kind in missing.items()):
            self._said(self._send("PUT", f"/{quote(index.physical)}/_mapping", {"properties": missing}))

    def _found(self, path: str) -> dict[str, Any]:
        answer = self._caller.ask("GET", path)
        if answer.status == _NOT_FOUND:
            return {}
        found: dict[str, Any] = json.loads(self._said(answer).body)
        return found

    def _send(self, method: str, path: str, body: Any) -> Answer:
        return self._caller.ask(method, path, json.dumps(body).encode(), _JSON)

    def _said(self, answer: Answer) -> Answer:
        check(self._sink, answer)
        if not answer.good:
            raise self._unfit(reason_in(answer))
        return answer

    def _unfit(self, reason: str) -> SinkTargetUnfit:
        remedy = f"`millrace rebuild {self._sink.name}` builds another index, or write to one of another name"
        return SinkTargetUnfit(
            sink=self._sink.name, target=self._name, reason=reason, remedy=remedy, where=self._sink.where
        )


class Ledger:
    """A document for each flow and sink, which is read as it was written last."""

    def __init__(self, sink: Sink, caller: Caller, flow: str) -> None:
        self._sink, self._caller, self._flow = sink, caller, flow
        self._path = f"/{LEDGER}/_doc/{quote(f'{flow}:{sink.name}', safe='')}"
        settings = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}
        made = {"settings": settings, "mappings": {"dynamic": False}}
        if caller.ask("HEAD", f"/{LEDGER}").status == _NOT_FOUND:  # another may make it meanwhile
            check(sink, caller.ask("PUT", f"/{LEDGER}", json.dumps(made).encode(), _JSON))

    def held(self) -> Entry | None:
        answer = self._caller.ask("GET", self._path)
        if answer.status == _NOT_FOUND:
            return None
        check(self._sink, answer, whole=True)
        told = json.loads(answer.body)["_source"]
        return Entry(int(told["epoch"]), str(told["ranges"]))

    def write(self, epoch: Epoch) -> None:
        told = {"flow": self._flow, "sink": self._sink.name, "epoch": epoch.number, "ranges": epoch.ranges}
        check(self._sink, self._caller.ask("PUT", self._path, json.dumps(told).encode(), _JSON), whole=True)
