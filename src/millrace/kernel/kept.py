"""What operators keep of a key, in words: from the bytes that `Kept.java` has read, and what the operator was told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    StructType,
    TimestampType,
    _parse_datatype_json_string,
)

from millrace.kernel.calling import operator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Those of a match's place (`flow/places.py`).
_ROW, _GAP = 0, 1
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True)
class About:
    """An operator as its user knows it: its name, the line that made it, the names of its key's columns. `words` are
    what else is needed to speak of its state."""

    operator: str
    where: str
    by: tuple[str, ...]
    words: Mapping[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """To be added to what the kernel is told, which keeps it with the state's own settings."""
        return {"operator": self.operator, "where": self.where, "by": list(self.by), **self.words}


@dataclass(frozen=True)
class Entries:
    """What is kept of a key: `facts` of all of it, and one after the other its windows, events, rows, or times."""

    facts: dict[str, Any]
    what: str
    entries: list[dict[str, Any]]


def told_of(about: About | None, default: str) -> dict[str, Any]:
    return (about or About(default, "", ())).told()


def told_by(spark: SparkSession, processor: Any) -> dict[str, Any] | None:
    """What the processor of a plan was told; nothing if it is none of ours."""
    text = operator(spark, "Kept").of(processor)
    return None if text is None else dict(json.loads(text))


def shown(spark: SparkSession, told: Mapping[str, Any], held: Mapping[str, Any]) -> Entries:
    """`held` has by the names of the state's variables their values and, of maps, such by their keys."""
    if told["operator"] in ("table", "lookup"):
        return _row(held["row"])
    java: Any = spark._jvm
    given = java.java.util.HashMap()
    for name, value in held.items():
        if isinstance(value, Mapping):
            inner = java.java.util.HashMap()
            for key, bytes_ in value.items():
                inner.put(key, bytes_)
            given.put(name, inner)
        else:
            given.put(name, value)
    read = json.loads(operator(spark, "Kept").shown(json.dumps(dict(told)), given))
    return _SHOWS[told["operator"]](told, read)


def variables(told: Mapping[str, Any]) -> tuple[str, ...]:
    """The state's variables that are read to show a key, that which every key has first; none if nothing is kept."""
    if told["operator"] in ("window", "session"):
        return ("slices",) if told["sizeUs"] else ("panes",)
    if told["operator"] in ("top", "latest"):
        return ("best", "all") if told["replacing"] else ("best",)
    if told["operator"] == "join":
        return ("sides", "left", "right") if told["how"] in ("inner", "left") else ("sides", "left")
    if told["operator"] in ("aggregate", "distinct"):
        return ("group", "nodes") if any(each["kind"] in ("set", "list") for each in told["tallies"]) else ("group",)
    return {
        "as_of": ("history", "versionNodes", "rows", "eventNodes", "events"),
        "consolidate": (),
        "first": ("rows", "nodes"),
        "only": ("row",),
        "span": ("due", "nodes"),
        "lookback": ("history", "nodes"),
        "match": ("newest", "older"),
        "dedup": ("given",),
        "stream_join": ("rows", "parts"),
        "lookup": ("row",),
        "table": ("row",),
    }[told["operator"]]


def _windows(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    slices = "slices" in read
    entries = []
    for each in read["slices" if slices else "windows"]:
        end = each["start"] + told["everyUs"] if slices else each["end"]
        edges = {"slice_start" if slices else "window_start": _time(each["start"])}
        edges["slice_end" if slices else "window_end"] = _time(end)
        entries.append({**edges, **_results(told, each["values"]), **({} if slices else {"untold": each["changed"]})})
    facts = {"windows_of": _span(told["sizeUs"])} if slices else {}
    return Entries(facts, "slices" if slices else "windows", entries)


def _results(told: Mapping[str, Any], values: Iterable[Any]) -> dict[str, Any]:
    restored = (
        value if kind in ("count", "sum", "avg", "distinct") else _plain(value, type_)
        for value, kind, type_ in zip(values, told["kinds"], told["own"], strict=True)
    )
    return dict(zip(told["names"], restored, strict=True))


def _lookback(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    return Entries({}, "events", [{"time": _time(each["time"]), **_slots(told, each)} for each in read["events"]])


def _slots(told: Mapping[str, Any], each: Mapping[str, Any]) -> dict[str, Any]:
    values = (_plain(value, type_) for value, type_ in zip(each["values"], told["own"], strict=True))
    return dict(zip(told["names"], values, strict=True))


def _match(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    """The partial matches, each with the rows that it may be of: those from its start on."""
    rows = [
        {"time": _time(each["time"]), "is": _named(told, each["flags"]), **_slots(told, each)}
        for each in read["rows"]
        if each["taken"]
    ]
    waiting = [_time(each["time"]) for each in read["rows"] if not each["taken"]]
    entries = [
        {
            "start": _time(each["start"]),
            "ends_before": _time(each["start"] + told["withinUs"]),
            "waits_for": " or ".join(_place(told, place) for place in each["places"]),
            "is_met": each["met"],
        }
        for each in sorted(read["partial"], key=lambda each: each["start"])
    ]
    facts = {"partial_matches": len(entries), "decided": read["decided"], "rows": rows, "waiting": waiting}
    return Entries(facts, "partial matches", entries)


def _named(told: Mapping[str, Any], flags: int) -> list[str]:
    return [name for bit, name in enumerate(told["variables"]) if flags >> bit & 1]


def _place(told: Mapping[str, Any], number: int) -> str:
    kind, mask, variable = told["pattern"]["places"][number]
    if kind == _ROW:
        return str(told["variables"][variable])
    absent = ", ".join(_named(told, mask))
    return f"a row that is not {absent}" if kind == _GAP else f"the end without {absent}"


def _top(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    schema = StructType.fromJson(json.loads(told["schema"]))
    entries = [
        {"rank": rank if rank <= told["n"] else None, **_columns(text, schema)}
        for rank, text in enumerate(read["rows"], 1)
    ]
    return Entries({"behind": read["behind"]} if told["replacing"] else {}, "rows", entries)


def _columns(text: str, schema: StructType) -> dict[str, Any]:
    """A row that was packed. Decimals stay texts, with all their digits; what is no number in JSON is one already."""
    return dict(_numbers(json.loads(text, parse_float=lambda number: number), schema))


def _numbers(value: Any, type_: DataType) -> Any:
    """Doubles as such, those in arrays and structs too; everything else as it is."""
    if value is None:
        return None
    if isinstance(type_, StructType):
        return {each.name: _numbers(value[each.name], each.dataType) for each in type_ if each.name in value}
    if isinstance(type_, ArrayType):
        return [_numbers(each, type_.elementType) for each in value]
    is_number = isinstance(type_, DoubleType | FloatType) and value not in _NO_NUMBERS
    return float(value) if is_number else value


def _as_of(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    """The versions of the key's row, and the events that may still be told, or told again."""
    row_schema, event_schema = (
        None if told[name] is None else StructType.fromJson(json.loads(told[name]))
        for name in ("rowSchema", "eventSchema")
    )
    entries = []
    for each, following in zip(read["versions"], [*read["versions"][1:], None], strict=True):
        until = None if following is None else _time(following["time"])
        row = (
            {} if each["row"] is None else _columns(each["row"], row_schema) if row_schema else json.loads(each["row"])
        )
        entries.append({"since": _time(each["time"]), "until": until, "gone": each["row"] is None, **row})
    assert event_schema is not None
    events = [{"time": _time(each["time"]), **_columns(each["row"], event_schema)} for each in read["events"]]
    untold = {"told_before": _time(read["toldUs"])} if "toldUs" in read else {}
    return Entries({**untold, "events": events}, "versions", entries)


def _join(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    entries = []
    for side in ("left", "right"):
        schema = StructType.fromJson(told[side])
        entries += [
            {"side": side, "times": each["count"], **_columns(each["row"], schema)} for each in read[side]["rows"]
        ]
    return Entries({f"{side}_rows": read[side]["total"] for side in ("left", "right")}, "rows", entries)


def _stream_join(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    """Streams are numbered from 1, the one in the middle first. A row is kept while one can come that fits it."""
    facts, entries = {}, []
    for number, (rows, type_) in enumerate(zip(read["streams"], told["schemas"], strict=True), 1):
        schema = StructType.fromJson(type_)
        facts[f"stream_{number}_rows"] = len(rows)
        for each in rows:
            times = {"time": _time(each["time"]), "until": _time(each["until"])}
            entries.append({"stream": number, **times, **_columns(each["row"], schema)})
    return Entries(facts, "rows", entries)


def _group(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    """What is told of it. Of one that is not there only that rows have gone that have not come yet."""
    schema = StructType.fromJson(told["out"])
    row = {} if read["row"] is None else _columns(read["row"], schema)
    measures = [field.name for field in schema][told["keys"] :]
    return Entries({"rows": read["rows"]}, "results", [{name: row.get(name) for name in measures}] if measures else [])


def _first(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    schema = StructType.fromJson(told["schema"])
    return Entries({"rows": read["rows"]}, "first", [_columns(each, schema) for each in read["first"]])


def _only(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    return Entries({}, "row", [_columns(read["row"], StructType.fromJson(told["schema"]))])


def _in_span(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    """Of a part of the rows how many are still to come or to go, and which is the next one."""
    facts = {"now": _time(read["now"]), "rows": read["rows"]}
    if not read["rows"]:
        return Entries(facts, "next", [])
    due = {"goes" if read["goes"] else "comes": _time(read["next"])}
    return Entries(facts, "next", [{**due, **_columns(read["row"], StructType.fromJson(told["schema"]))}])


def _dedup(told: Mapping[str, Any], read: Mapping[str, Any]) -> Entries:
    kept = told["ttlUs"] + told["graceUs"]
    return Entries({}, "given", [{"time": _time(each), "until": _time(each + kept)} for each in read["given"]])


def _row(held: Mapping[str, Any]) -> Entries:
    facts = {"partition": held["partition"], "offset": held["offset"]}
    return Entries(facts, "row", [json.loads(held["row"])])


_SHOWS = {
    "window": _windows,
    "session": _windows,
    "lookback": _lookback,
    "match": _match,
    "top": _top,
    "latest": _top,
    "dedup": _dedup,
    "as_of": _as_of,
    "join": _join,
    "stream_join": _stream_join,
    "aggregate": _group,
    "distinct": _group,
    "first": _first,
    "only": _only,
    "span": _in_span,
}


def _plain(value: Any, type_json: str) -> Any:
    """As the user's column has it: the kernel carries times, days and truths as numbers."""
    type_: DataType = _parse_datatype_json_string(type_json)
    if value is None or isinstance(value, list):
        return value
    if isinstance(type_, TimestampType):
        return _time(value)
    if isinstance(type_, DateType):
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    return bool(value) if isinstance(type_, BooleanType) else value


def _time(us: int) -> str:
    """A text: Python has no years before 1 and after 9999, which times of a stream may be in."""
    try:
        return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="auto")
    except OverflowError:
        return f"{us} µs after 1970"


def _span(us: int) -> str:
    return f"{us / 1_000_000:g} s"
