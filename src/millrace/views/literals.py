"""Literals: what PostgreSQL reads in them, once it is known which type is wanted."""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any
from uuid import UUID

from sqlglot import exp

from millrace.views import types
from millrace.views.intervals import interval
from millrace.views.refusal import refuse
from millrace.views.terms import Endless, Value
from millrace.views.types import Type

LIMITS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_TIME = re.compile(r"(\d\d?):([0-5]\d)(?::([0-5]\d)(?:\.(\d{0,6}))?)?")
_DATE = re.compile(r"\d{4}-?\d\d-?\d\d")
_MOMENT = re.compile(r"\d{4}-?\d\d-?\d\d([ T]\d\d:?\d\d(:?\d\d(\.\d{1,6})?)?( ?(Z|[+-]\d\d(:?\d\d(:?\d\d)?)?))?)?")
# A hyphen may stand behind any four digits, or none.
_UUID = re.compile(r"(\{)?([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}(?(1)\})")
_ENDLESS = {"infinity": Endless(True), "+infinity": Endless(True), "-infinity": Endless(False)}
_WORDS = {True: ("t", "true", "yes", "on", "1", "y"), False: ("f", "false", "no", "off", "0", "n")}


def number(node: exp.Literal) -> Value:
    """As PostgreSQL types a number that is written out."""
    text = node.this
    if text.isdigit():
        for kind in ("integer", "bigint"):
            if int(text) < LIMITS[kind]:
                return Value(int(text), Type(kind))
    return exact(node, text)


def exact(node: exp.Expression, written: str) -> Value:
    """A numeric of just the digits that are written."""
    try:
        found = Decimal(written.strip())
    except InvalidOperation:
        refuse(node, f"{written!r} does not read as numeric")
    if not found.is_finite() or "_" in written:
        refuse(node, f"{written!r} does not read as a numeric that a view can compute with")
    _, digits, exponent = found.as_tuple()
    scale = max(0, -int(exponent))
    whole = max(0, len(digits) + int(exponent))
    if whole + scale > types.MOST_DIGITS:
        refuse(node, f"a number of more than {types.MOST_DIGITS} digits")
    return Value(_scaled(found, scale), types.numeric(whole + scale, scale))


def _scaled(number: Decimal, scale: int) -> Decimal:
    with localcontext(prec=2 * types.MOST_DIGITS):
        return number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)


def text(node: exp.Expression, written: str, type_: Type) -> Value:
    """A quoted literal as a value of a type."""
    try:
        return Value(_read(written, type_), type_)
    except (ValueError, InvalidOperation, KeyError, OverflowError):
        refuse(node, f"{written!r} does not read as {type_}", _HOW.get(type_.kind, ""))


_HOW = {
    "date": "write it as '2026-01-31'",
    "time": "write it as '12:00:00'",
    "timestamp": "write it as '2026-01-31 12:00:00'",
    "interval": "write '1 day 2 hours'",
    "timestamptz": "write it with its offset from UTC: '2026-01-31 12:00:00+00'",
}


def _read(written: str, type_: Type) -> Any:
    plain = written.strip()
    if type_.kind in LIMITS:
        whole = int(plain)
        if not -LIMITS[type_.kind] <= whole < LIMITS[type_.kind]:
            raise ValueError(plain)
        return whole
    if type_.kind == "numeric":
        found = Decimal(plain)
        if not found.is_finite() or (not type_.precision and found.as_tuple().exponent > 0):  # type: ignore[operator]
            raise ValueError(plain)
        if not type_.precision:
            return found
        rounded = _scaled(found, type_.scale)
        return rounded if abs(rounded) < Decimal(10) ** (type_.precision - type_.scale) else _bad(plain)
    if type_.kind in ("double", "real"):
        return _bad(plain) if "_" in plain else _floating(plain, type_)
    if type_.kind == "boolean":
        return (
            next(truth for truth, words in _WORDS.items() if plain.lower() in words) if _is_word(plain) else _bad(plain)
        )
    if type_.kind in ("date", "timestamp", "timestamptz") and plain.lower() in _ENDLESS:
        return _ENDLESS[plain.lower()]
    if type_.kind == "date":
        return date.fromisoformat(plain) if _DATE.fullmatch(plain) else _bad(plain)
    if type_.kind == "timestamp":
        return _moment(plain, zoned=False)
    if type_.kind == "timestamptz":
        return _moment(plain, zoned=True)
    if type_.kind == "interval":
        return interval(plain)
    if type_.kind == "char":
        return written.rstrip(" ")
    if type_.kind == "time":
        return _time(plain)
    if type_.kind == "uuid":
        return str(UUID(plain)) if _UUID.fullmatch(plain) else _bad(plain)
    if type_.kind in ("text", "enum"):
        return written
    raise ValueError(written)


def _floating(plain: str, type_: Type) -> float:
    found = float(plain) if type_.kind == "double" else struct.unpack("f", struct.pack("f", float(plain)))[0]
    digits = re.split("[eE]", plain)[0]
    if (math.isinf(found) and any(map(str.isdigit, plain))) or (not found and re.search("[1-9]", digits)):
        raise ValueError(plain)  # out of its range
    return float(found)


def _is_word(plain: str) -> bool:
    return any(plain.lower() in words for words in _WORDS.values())


def _bad(plain: str) -> Any:
    raise ValueError(plain)


def _time(plain: str) -> str:
    """As PostgreSQL prints it."""
    found = _TIME.fullmatch(plain)
    if found is None or (int(found[1]) > 23 and not (found[1] == "24" and not plain[2:].strip(":0."))):
        raise ValueError(plain)
    part = (found[4] or "").rstrip("0")
    return f"{int(found[1]):02}:{found[2]}:{found[3] or '00'}{'.' + part if part else ''}"


def _moment(plain: str, *, zoned: bool) -> datetime:
    # PostgreSQL rounds what is finer than a microsecond, and knows no 2024-W09.
    found = datetime.fromisoformat(re.sub(" (?=[Z+-])", "", plain)) if _MOMENT.fullmatch(plain) else _bad(plain)
    if (found.tzinfo is not None) != zoned:
        raise ValueError(plain)
    return found.astimezone(UTC) if zoned else found
