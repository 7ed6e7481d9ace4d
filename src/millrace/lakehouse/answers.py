"""The values of an answer as Python has them; what Python has none for, as a text."""

from __future__ import annotations

import base64
import contextlib
from datetime import date, timedelta
from typing import Any

_FIRST = date(1970, 1, 1)
# After so many days, which are 400 years, the calendar is the same again.
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def values(column: Any) -> list[Any]:
    """Those of an array of Arrow. Days and moments before the year 1 and after 9999, and with nanoseconds, are ISO 8601
    as texts, infinite ones words; a span of time is a text as DuckDB writes it."""
    if "interval" not in str(column.type):
        with contextlib.suppress(OverflowError, ValueError):
            return list(column.to_pylist())
    return [_value(each) for each in column]


def readable(value: Any) -> Any:
    """As people want to see it: bytes are a text where they are one, and otherwise base64."""
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
        return base64.b64encode(value).decode()
    return value


def _value(scalar: Any) -> Any:
    from pyarrow import types as of

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if of.is_map(kind):
        return [(_value(each["key"]), _value(each["value"])) for each in scalar.values]
    if of.is_struct(kind):
        return {name: _value(scalar[name]) for name in kind.names}
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        return [_value(each) for each in scalar.values]
    if of.is_interval(kind):
        return _span(*scalar.as_py())
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if of.is_date(kind):
            return _endless(scalar.value, 31) or _day(scalar.value)
        if of.is_timestamp(kind):
            return _endless(scalar.value, 63) or _moment(scalar.value, kind.unit) + (
                "" if kind.tz is None else "+00:00"
            )
        return str(scalar.cast("string"))


def _endless(number: int, bits: int) -> str | None:
    """Spark's last and first value stand for infinity, and DuckDB's, of which the first is one more."""
    if abs(number) < 2**bits - 1:
        return None
    return "infinity" if number > 0 else "-infinity"


def _day(days: int) -> str:
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = _FIRST + timedelta(days=rest)
    year = day.year + cycles * _CYCLE_YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{day.month:02}-{day.day:02}"


def _moment(count: int, unit: str) -> str:
    seconds, fraction = divmod(count, _A_SECOND[unit])
    days, of_day = divmod(seconds, 86_400)
    return f"{_day(days)}T{_clock(of_day)}{_digits(fraction, _A_SECOND[unit])}"


def _span(months: int, days: int, nanoseconds: int) -> str:
    sign = -1 if months < 0 else 1
    years, rest = divmod(abs(months), 12)
    counted = ((sign * years, "year"), (sign * rest, "month"), (days, "day"))
    words = [f"{count} {unit}{'' if abs(count) == 1 else 's'}" for count, unit in counted if count]
    if nanoseconds or not words:
        seconds, fraction = divmod(abs(nanoseconds), _A_SECOND["ns"])
        words.append(f"{'-' if nanoseconds < 0 else ''}{_clock(seconds)}{_digits(fraction, _A_SECOND['ns'])}")
    return " ".join(words)


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _digits(fraction: int, of: int) -> str:
    return f".{fraction:0{len(str(of)) - 1}}".rstrip("0") if fraction else ""
