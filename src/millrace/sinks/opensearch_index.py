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
# What of an index's settings is somebody's choice, and is kept when another takes its place.
_KEPT_SETTINGS = ("number_of_shards", "number_of_replicas", "auto_expand_replicas", "analysis", "refresh_interval")


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
        if (found := self.live()) is not None:
            self._grow(found)
            return found
        before_making()
        made = Index(self._name, f"{self._name}-000001")
        self._make(made.physical, {self._name: {}})
        return made

    def live(self) -> Index | None:
        """The index that is read by the sink's name, if there is one."""
        behind = sorted(self.found(f"/_alias/{quote(self._name)}"))
        if len(behind) > 1:
            raise self._unfit(f"it is an alias of several indexes, {', '.join(behind)}")
        if behind:
            return Index(self._name, behind[0])
        return Index(self._name, self._name) if self.found(f"/{quote(self._name)}") else None

    def beside(self, index: Index | None, mark: str | None = None) -> Index:
        """An empty index of the next number, that nobody sees yet; with shards, analysers and, where somebody else made
        it, the mapping of the one that is there. `mark` says whose it is (`built_beside`)."""
        numbers = [int(name.rpartition("-")[2]) for name in self._numbered()]
        made = Index(self._name, f"{self._name}-{max(numbers, default=0) + 1:06d}")
        mappings, settings = self._mappings(), dict[str, Any]()
        if index is not None:
            held = self.found(f"/{quote(index.physical)}")[index.physical]
            told = held["settings"]["index"]
            settings = {f"index.{name}": told[name] for name in _KEPT_SETTINGS if name in told}
            if held["mappings"].get("_meta", {}).get("made_by") != _MADE_BY:
                mappings = held["mappings"]
        if mark is not None:
            whose = {"rebuilt": mark, "replaces": "" if index is None else index.physical}
            mappings = {**mappings, "_meta": {**mappings.get("_meta", {}), **whose}}
        self._make(made.physical, {}, mappings, settings)
        return made

    def built_beside(self, mark: str) -> Index | None:
        """The index with this mark that is to take the place of the one that is read now."""
        live = self.live()
        for name, held in self._numbered().items():
            if _mark_of(held) == (mark, "" if live is None else live.physical):
                return Index(self._name, name)
        return None

    def drop_replaced(self, mark: str) -> None:
        """The index whose place the one that is read now has taken, if it has this mark."""
        live = self.live()
        told, replaced = _mark_of(self._numbered().get(live.physical, {})) if live is not None else ("", "")
        if told == mark and replaced in self._numbered():
            self.drop(replaced)

    def drop(self, physical: str) -> None:
        answer = self._caller.ask("DELETE", f"/{quote(physical)}")
        if answer.status != _NOT_FOUND:
            self._said(answer)

    def _numbered(self) -> dict[str, Any]:
        ours = re.compile(rf"{re.escape(self._name)}-\d+")
        found = self.found(f"/{quote(self._name)}-*")
        return {name: held for name, held in found.items() if ours.fullmatch(name)}

    def switch(self, before: Index | None, after: Index) -> None:
        """Lets the alias name another index: searches see the one or the other, never none."""
        actions: list[dict[str, Any]] = [{"add": {"index": after.physical, "alias": self._name}}]
        if before is not None and before.aliased:
            actions.append({"remove": {"index": before.physical, "alias": self._name}})
        elif before is not None:  # an index cannot have the alias's name: it goes in the same step
            actions.append({"remove_index": {"index": before.physical}})
        self._said(self._send("POST", "/_aliases", {"actions": actions}))

    def _make(
        self,
        physical: str,
        aliases: dict[str, Any],
        mappings: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        made = {**(settings or {}), "index.gc_deletes": GC_DELETES}
        body = {"settings": made, "mappings": mappings or self._mappings(), "aliases": aliases}
        self._said(self._send("PUT", f"/{quote(physical)}", body))

    def _mappings(self) -> dict[str, Any]:
        return {
            "dynamic": False,
            "_meta": {"made_by": _MADE_BY},
            "properties": {each.name: mapping_of(each.dataType) for each in self._feed.columns.fields},
        }

    def _grow(self, index: Index) -> None:
        """Adds what is missing. Of an index that we made, the server compares types too, and tells what changed."""
        held = self.found(f"/{quote(index.physical)}/_mapping")[index.physical]["mappings"]
        ours = held.get("_meta", {}).get("made_by") == _MADE_BY
        known = held.get("properties", {})
        wanted = self._mappings()["properties"]
        missing = {name: kind for name, kind in wanted.items() if ours or name.partition(".")[0] not in known}
        if any(known.get(name) != kind for name, kind in missing.items()):
            self._said(self._send("PUT", f"/{quote(index.physical)}/_mapping", {"properties": missing}))

    def found(self, path: str) -> dict[str, Any]:
        """What is there; nothing where the server knows nothing of it."""
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


def _mark_of(held: dict[str, Any]) -> tuple[str, str]:
    """Whose index it is, and which one it was made to replace."""
    meta = held.get("mappings", {}).get("_meta", {})
    return meta.get("rebuilt", ""), meta.get("replaces", "")


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

    def forget(self) -> None:
        answer = self._caller.ask("DELETE", self._path)
        if answer.status != _NOT_FOUND:
            check(self._sink, answer, whole=True)

    def write(self, epoch: Epoch) -> None:
        told = {"flow": self._flow, "sink": self._sink.name, "epoch": epoch.number, "ranges": epoch.ranges}
        check(self._sink, self._caller.ask("PUT", self._path, json.dumps(told).encode(), _JSON), whole=True)
