"""Whether an event fits the schema of its topic, so that no flow will find it among the dead letters.

Stricter than flows are: they pass over fields that the schema does not name, and take any value for a text. Here both
are a slip of whoever sends, who is told so while it can still be mended.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from millrace import durations
from millrace.errors import BodyUnreadable, EventUnfit, nearest
from millrace.flow import Topic
from millrace.flow import schema as schemas
from millrace.flow.time import Marked

MOST_EVENTS = 1_000

# What is wrong with a value; "" if nothing is.
Check: TypeAlias = Callable[[Any], str]

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS = {"tinyint": 8, "byte": 8, "smallint": 16, "short": 16, "int": 32, "integer": 32, "bigint": 64, "long": 64}
_TEXTS = re.compile(r"(string|varchar\s*\(\s*(\d+)\s*\)|char\s*\(\s*(\d+)\s*\))(\s+collate\s+\w+)?")
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.DOTALL)
_TAIL = re.compile(r"\s+(not\s+null)?\s*(comment\s+'(?:[^'\\]|\\.)*')?\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Event:
    """As it came: numbers keep their digits."""

    text: str
    row: Mapping[str, Any]


def events_of(body: bytes) -> list[Event]:
    """One object, or an array of them."""
    try:
        text = body.decode("utf-8").strip(" \t\r\n")
        found = _objects(text) if text.startswith("[") else [_object(text, 0)]
        if not text.startswith("[") and found[0][1] != len(text):
            raise ValueError("something follows the JSON object")
    except (ValueError, RecursionError) as error:  # of UTF-8 and of JSON
        raise BodyUnreadable(reason=str(error)[:200]) from None
    if not 1 <= len(found) <= MOST_EVENTS:
        raise BodyUnreadable(reason=f"it has {len(found)} events, and may have from 1 to {MOST_EVENTS}")
    return [event for event, _ in found]


def _objects(text: str) -> list[tuple[Event, int]]:
    found: list[tuple[Event, int]] = []
    place = _skipped(text, 1)
    if text[place : place + 1] == "]" and place == len(text) - 1:
        return found
    while True:
        found.append(_object(text, place))
        place = _skipped(text, found[-1][1])
        if text[place:] == "]":
            return found
        if text[place : place + 1] != ",":
            raise ValueError(f"a comma is missing at {place}")
        place = _skipped(text, place + 1)


def _skipped(text: str, place: int) -> int:
    while text[place : place + 1] and text[place] in " \t\r\n":
        place += 1
    return place


def _object(text: str, place: int) -> tuple[Event, int]:
    row, end = _DECODER.raw_decode(text, place)
    if not isinstance(row, dict):
        raise ValueError("an event is a JSON object")
    text.encode()  # half a surrogate pair is no Unicode
    return Event(text[place:end], row), end


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is there twice")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=Decimal, parse_constant=_constant)


class Fitting:
    """Of one topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        assert topic.schema is not None, "a topic that events come into has a schema"
        columns = schemas.columns(topic.name, topic.schema, topic.where)
        self._checks = {name: _check(_TAIL.sub("", f"{type_} ")) for name, type_ in columns.items()}
        self._needed = [name for name, type_ in columns.items() if re.search(r"\bnot\s+null\b", type_, re.IGNORECASE)]

    def check(self, events: list[Event]) -> None:
        for number, event in enumerate(events, 1):
            if reason := self._wrong(event.row):
                raise EventUnfit(number=number, topic=self._topic.name, reason=reason)

    def _wrong(self, row: Mapping[str, Any]) -> str:
        for name, value in row.items():
            if name not in self._checks:
                return f"it has no column {name[:100]!r}{nearest(name, self._checks)}"
            if value is not None and (reason := self._checks[name](value)):
                return f"{name!r} {reason}"
        marks = self._topic.lateness.column if isinstance(self._topic.lateness, Marked) else None
        is_marker = marks is not None and row.get(marks) is not None
        needed = [] if is_marker else [*self._needed, *([self._topic.time] if self._topic.time else [])]
        for name in needed:
            if row.get(name) is None:
                return f"{name!r} is missing"
        tells = marks if is_marker else self._topic.time
        return "" if tells is None else self._wrong_time(tells, row[tells])

    def _wrong_time(self, name: str, value: str) -> str:
        found = _moment(value)
        if found < _FIRST_TIME:
            return f"its time {name!r} is not between the years 1970 and 9999"
        ahead_ms = self._topic.ahead_ms
        if ahead_ms is not None and found - datetime.now(UTC) > timedelta(milliseconds=ahead_ms):
            return f"its time {name!r} is more than {durations.spoken(ahead_ms)} ahead: a clock is wrong"
        return ""


def _check(type_: str) -> Check:
    word = type_.strip().lower()
    if word in _INTEGERS:
        return _whole(word, _INTEGERS[word])
    if found := _TEXTS.fullmatch(word):
        return _text(int(found[2] or found[3] or 0))
    if found := _DECIMAL.fullmatch(word):
        return _decimal(int(found[1] or 10), int(found[2] or 0))
    if found := _NESTED.fullmatch(type_.strip()) or _NESTED.fullmatch(word):
        return _nested(found[1].lower(), found[2])
    simple = {
        "boolean": lambda value: "" if isinstance(value, bool) else "is not true or false",
        "double": _number,
        "float": _number,
        "real": _number,
        "timestamp": _timestamp,
        "timestamp_ltz": _timestamp,
        "timestamp_ntz": _timestamp,
        "date": _date,
        "binary": _binary,
    }
    return simple.get(word, lambda _: f"is of the type {word}, which cannot be sent here")


def _whole(word: str, bits: int) -> Check:
    most = 2 ** (bits - 1)

    def check(value: Any) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
        return "" if fits else f"is not a {word}"

    return check


def _text(longest: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            return "is not a text"
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            return "is not Unicode"
        return f"has more than {longest} letters" if longest and len(value) > longest else ""

    return check


def _decimal(digits: int, scale: int) -> Check:
    told = f"is not a decimal({digits},{scale})"

    def check(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
            return told
        if isinstance(value, str) and not re.fullmatch(r"-?\d{1,76}(\.\d{1,76})?", value):
            return told
        _, figures, exponent = Decimal(value).as_tuple()
        assert isinstance(exponent, int)
        if abs(exponent) > 76 or -exponent > scale:
            return told
        return "" if not any(figures) or len(figures) + exponent <= digits - scale else told

    return check


def _number(value: Any) -> str:
    fits = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return "" if fits and abs(value) <= 1.7e308 and math.isfinite(float(value)) else "is not a number"


def _moment(value: str) -> datetime:
    found = datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _timestamp(value: Any) -> str:
    told = "is not a time like 2026-11-16T09:30:00Z"
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return told
    try:
        _moment(value)
    except ValueError:
        return told
    return ""


def _date(value: Any) -> str:
    try:
        fits = isinstance(value, str) and bool(_DATE.fullmatch(value)) and bool(date.fromisoformat(value))
    except ValueError:
        fits = False
    return "" if fits else "is not a date like 2026-11-16"


def _binary(value: Any) -> str:
    try:
        base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        return "is not a text in base64"
    return "" if isinstance(value, str) else "is not a text in base64"


def _nested(kind: str, inside: str) -> Check:
    if kind == "array":
        element = _check(inside)
        return lambda value: _each(value, element) if isinstance(value, list) else "is not an array"
    if kind == "map":
        of = _check(inside.partition(",")[2])
        return lambda value: _each(list(value.values()), of) if isinstance(value, dict) else "is not an object"
    from millrace.errors import Where

    fields = {name: _check(type_) for name, type_ in schemas.columns("struct", inside, Where("", 0)).items()}

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return "is not an object"
        for name, found in value.items():
            if name not in fields:
                return f"has no field {name[:100]!r}{nearest(name, fields)}"
            if found is not None and (reason := fields[name](found)):
                return f"has a field {name!r} that {reason}"
        return ""

    return check


def _each(values: list[Any], check: Check) -> str:
    return next((f"holds a value that {reason}" for each in values if each is not None and (reason := check(each))), "")
