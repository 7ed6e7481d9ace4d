"""Values as PostgreSQL prints them, and the same values as the topic's JSON has them: the twin of `java/…/Exact.java`.

The session that prints has the settings of `SETTINGS`, as the connector's has.
"""

from __future__ import annotations

import base64
import re
from typing import Any

SETTINGS = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "extra_float_digits": "1",
}
# Begins the only element of an array that is no plain list: it has several dimensions, or does not count from 1.
WHOLE = "\0"

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",;{}][^,]*)', re.DOTALL)
_BOX = re.compile(r"()([^;]+)")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MOMENT = re.compile(r"(\d{4,})(-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d(?:\.\d+)?)(\+00|Z)?)?( BC)?")
_NUMBERS = ("smallint", "integer", "bigint", "oid", "real", "double precision")
_MOMENTS = ("date", "timestamp without time zone", "timestamp with time zone")
_PRECISION = re.compile(r"\(\d+\)")


def in_json(text: str, type_name: str) -> Any:
    """What the topic holds of a value that PostgreSQL prints so; the type as `format_type` names it, no domain."""
    if type_name.endswith("[]"):
        if text.startswith(("[", "{{")):
            return [WHOLE + text]
        found = elements(text, type_name == "box[]")
        return [None if each is None else _element(each, type_name[:-2]) for each in found]
    name = plain(type_name)
    if name in _NUMBERS:
        return _number(text)
    if name == "boolean":
        return text in ("t", "true")
    return _element(text, name)


def _element(text: str, type_name: str) -> str:
    name = plain(type_name)
    if name == "boolean":
        return "true" if text == "t" else "false"
    if name == "bytea":
        return base64.b64encode(bytes.fromhex(text[2:])).decode()
    if name == "money":
        return re.sub(r"[^0-9.-]", "", text)
    return iso(text) if name in _MOMENTS else text


def plain(type_name: str) -> str:
    """The type without the number of digits of a second or of characters."""
    return _PRECISION.sub("", type_name)


def _number(text: str) -> int | float | str:
    if text in ("NaN", "Infinity", "-Infinity"):
        return text
    return int(text) if text.lstrip("-").isdigit() and text != "-0" else float(text)


def iso(text: str) -> str:
    """ISO 8601, where a year before Christ is a number below 1; infinity stays a word."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    year = 1 - int(found[1]) if found[5] else int(found[1])
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    clock = f"T{found[3]}{'Z' if found[4] else ''}" if found[3] else ""
    return f"{sign}{abs(year):04}{found[2]}{clock}"


def elements(text: str, boxes: bool = False) -> list[str | None]:
    """The elements of an array of one dimension; boxes have commas of their own and stand between semicolons."""
    found = (_BOX if boxes else _ELEMENT).finditer(text, 1, len(text) - 1)
    return [_unescaped(each) for each in found]


def _unescaped(element: re.Match[str]) -> str | None:
    if element[2] is None:
        return _ESCAPED.sub(r"\1", element[1])
    return None if element[2] == "NULL" else element[2]
