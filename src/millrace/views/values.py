"""Terms computed in plain Python, as PostgreSQL would: what the tests hold Spark's columns to."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal, localcontext
from typing import Any, TypeAlias

from millrace.views import members, numerics
from millrace.views.literals import LIMITS
from millrace.views.numerics import NoAnswer, Unsure
from millrace.views.terms import Call, Ref, Term, Value
from millrace.views.types import Type

Row: TypeAlias = Mapping[str, Any]
Compute: TypeAlias = Callable[[Row], Any]

_PRECISION = 3_000


def computed(term: Term) -> Compute:
    """A function of a row."""
    if isinstance(term, Ref):
        return lambda row: row[term.column]
    if isinstance(term, Value):
        return lambda row: term.value
    args = [computed(each) for each in term.args]
    if term.name in _LAZY:
        return _LAZY[term.name](args, term)
    does = _STRICT[term.name]

    def strict(row: Row) -> Any:
        values = [each(row) for each in args]
        if any(value is None for value in values):
            return None
        with localcontext(prec=_PRECISION):
            return fitted(does(values, term), term.type)

    return strict


def fitted(value: Any, type_: Type) -> Any:
    """A value of the type, or no answer where it does not fit."""
    if value is None:
        return None
    if type_.kind in LIMITS:
        if not -LIMITS[type_.kind] <= value < LIMITS[type_.kind]:
            raise NoAnswer(f"{type_} out of range")
    elif type_.kind == "numeric" and type_.precision:
        value = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
        if abs(value) >= Decimal(10) ** (type_.precision - type_.scale):
            raise NoAnswer("numeric field overflow")
    elif type_.kind == "real":
        return struct.unpack("f", struct.pack("f", value))[0]
    return value


# Of values none of which is null.


def _divide(values: Sequence[Any], term: Call) -> Any:
    left, right = values
    if not right:
        raise NoAnswer("division by zero")
    if term.type.is_whole:
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if term.type.kind != "numeric":
        return left / right
    scale = numerics.division_scale(left, right)
    if scale == max(numerics.scale_of(left), numerics.scale_of(right)) and any(each.type.mixed for each in term.args):
        raise Unsure("a quotient whose rounding depends on zeros that are not kept")
    return numerics.rounded(left, right, scale)


def _modulo(values: Sequence[Any], term: Call) -> Any:
    left, right = values
    if not right:
        raise NoAnswer("division by zero")
    if isinstance(left, Decimal):
        return left % right
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _compared(test: Callable[[Any, Any], bool]) -> Callable[[Sequence[Any], Call], bool]:
    return lambda values, term: test(*map(placed, values))


def placed(value: Any) -> Any:
    """What a value is ordered by: NaN is the greatest, texts by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def _cast(values: Sequence[Any], term: Call) -> Any:
    (value,), one, other = values, term.args[0].type, term.type
    if other.is_whole:
        if isinstance(value, float):
            return round(value)
        if isinstance(value, Decimal):
            return int(value.quantize(Decimal(1), ROUND_HALF_UP))
        return int(value)
    if other.kind == "numeric":
        return value if isinstance(value, Decimal) else Decimal(value)
    if other.kind in ("real", "double"):
        return float(value)
    if other.kind == "boolean":
        return bool(value)
    if other.kind == "date":
        return value.date()
    if other.kind == "timestamp":
        if one.kind == "timestamptz":
            return value.astimezone(UTC).replace(tzinfo=None)
        return datetime(value.year, value.month, value.day)
    if other.kind == "timestamptz":
        return value.replace(tzinfo=UTC)
    if other.kind == "char":
        return value.rstrip(" ")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _shift(values: Sequence[Any], term: Call) -> Any:
    (moment,), (months, days, micros) = values, term.extra
    month = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(month, 12)
    last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last)) + timedelta(
        days=days, microseconds=micros
    )


_PARTS: dict[str, Callable[[Any], Any]] = {
    "year": lambda at: at.year,
    "quarter": lambda at: (at.month + 2) // 3,
    "month": lambda at: at.month,
    "week": lambda at: at.isocalendar().week,
    "day": lambda at: at.day,
    "doy": lambda at: at.timetuple().tm_yday,
    "dow": lambda at: at.isoweekday() % 7,
    "isodow": lambda at: at.isoweekday(),
    "hour": lambda at: at.hour,
    "minute": lambda at: at.minute,
    "second": lambda at: Decimal(at.second * 10**6 + at.microsecond) / 10**6,
    "epoch": lambda at: _seconds(at - datetime(1970, 1, 1, tzinfo=at.tzinfo and UTC)),
}


def _seconds(span: timedelta) -> Decimal:
    return Decimal(span // timedelta(microseconds=1)) / 10**6


def _date_trunc(values: Sequence[Any], term: Call) -> Any:
    (at,), (unit,) = values, term.extra
    if unit == "week":
        at -= timedelta(days=at.isoweekday() - 1)
    if unit == "quarter":
        at = at.replace(month=(at.month - 1) // 3 * 3 + 1)
    kept = {"year": 1, "quarter": 2, "month": 2, "week": 3, "day": 3, "hour": 4, "minute": 5, "second": 6}[unit]
    parts = (at.year, at.month, at.day, at.hour, at.minute, at.second)
    return datetime(*(part if place < kept else (1 if place < 3 else 0) for place, part in enumerate(parts)))  # type: ignore[arg-type]


def _rounding(how: str) -> Callable[[Sequence[Any], Call], Any]:
    def does(values: Sequence[Any], term: Call) -> Any:
        (value,), (digits,) = values, term.extra
        if isinstance(value, float):
            if not math.isfinite(value):
                return value
            whole: dict[str, Callable[[float], int]]
            whole = {"round": round, "trunc": math.trunc, "ceil": math.ceil, "floor": math.floor}
            return float(whole[how](value))
        unit = Decimal(1).scaleb(-digits)
        mode = {"round": ROUND_HALF_UP, "trunc": ROUND_DOWN, "ceil": ROUND_CEILING, "floor": ROUND_FLOOR}[how]
        return value.quantize(unit, mode)

    return does


def _substring(values: Sequence[Any], term: Call) -> Any:
    (text,), (start, length) = values, term.extra
    return text[start - 1 :] if length is None else text[start - 1 : start - 1 + length]


def _like(values: Sequence[Any], term: Call) -> bool:
    (pattern,) = term.extra
    written = "".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern)
    return re.fullmatch(written, values[0], re.DOTALL) is not None


_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"


def _replace(values: Sequence[Any], term: Call) -> Any:
    text, old, new = values
    return text.replace(old, new) if old else text


_STRICT: dict[str, Callable[[Sequence[Any], Call], Any]] = {
    "+": lambda values, term: values[0] + values[1],
    "-": lambda values, term: values[0] - values[1],
    "*": lambda values, term: values[0] * values[1],
    "/": _divide,
    "%": _modulo,
    "neg": lambda values, term: -values[0],
    "abs": lambda values, term: abs(values[0]),
    "=": _compared(lambda left, right: left == right),
    "<>": _compared(lambda left, right: left != right),
    "<": _compared(lambda left, right: left < right),
    "<=": _compared(lambda left, right: left <= right),
    ">": _compared(lambda left, right: left > right),
    ">=": _compared(lambda left, right: left >= right),
    "not": lambda values, term: not values[0],
    "cast": _cast,
    "key": lambda values, term: values[0],
    "pad": lambda values, term: values[0].ljust(term.type.length),
    "date +": lambda values, term: values[0] + timedelta(days=values[1]),
    "date -": lambda values, term: values[0] - timedelta(days=values[1]),
    "days": lambda values, term: (values[0] - values[1]).days,
    "shift": _shift,
    "seconds": lambda values, term: _seconds(values[0] - values[1]),
    "extract": lambda values, term: Decimal(_PARTS[term.extra[0]](values[0])),
    "date_trunc": _date_trunc,
    "||": lambda values, term: "".join(values),
    "lower": lambda values, term: values[0].translate(str.maketrans(_UPPER, _LOWER)),
    "upper": lambda values, term: values[0].translate(str.maketrans(_LOWER, _UPPER)),
    "length": lambda values, term: len(values[0]),
    "substring": _substring,
    "trim": lambda values, term: values[0].strip(" "),
    "ltrim": lambda values, term: values[0].lstrip(" "),
    "rtrim": lambda values, term: values[0].rstrip(" "),
    "replace": _replace,
    "position": lambda values, term: values[0].find(values[1]) + 1,
    "like": _like,
    "round": _rounding("round"),
    "trunc": _rounding("trunc"),
    "ceil": _rounding("ceil"),
    "floor": _rounding("floor"),
    "member": lambda values, term: members.found(values[0], *term.extra),
    "spread": lambda values, term: numerics.spread(values[0], values[1], values[2], *term.extra),
}


# Of values of which some may be null, or which are not all computed.


def _and(args: list[Compute], term: Call) -> Compute:
    def does(row: Row) -> Any:
        found: Any = True
        for each in args:
            value = each(row)
            if value is False:
                return False
            found = None if value is None else found
        return found

    return does


def _or(args: list[Compute], term: Call) -> Compute:
    def does(row: Row) -> Any:
        found: Any = False
        for each in args:
            value = each(row)
            if value is True:
                return True
            found = None if value is None else found
        return found

    return does


def _case(args: list[Compute], term: Call) -> Compute:
    def does(row: Row) -> Any:
        for condition, value in zip(args[:-1:2], args[1::2], strict=True):
            if condition(row) is True:
                return value(row)
        return args[-1](row)

    return does


def _coalesce(args: list[Compute], term: Call) -> Compute:
    return lambda row: next((value for each in args if (value := each(row)) is not None), None)


def _same(args: list[Compute], term: Call) -> Compute:
    def does(row: Row) -> bool:
        left, right = (each(row) for each in args)
        return (left is None and right is None) or (None not in (left, right) and placed(left) == placed(right))

    return does


def _best(choose: Callable[..., Any]) -> Callable[[list[Compute], Call], Compute]:
    def made(args: list[Compute], term: Call) -> Compute:
        def does(row: Row) -> Any:
            known = [value for each in args if (value := each(row)) is not None]
            return choose(known, key=placed) if known else None

        return does

    return made


def _single(args: list[Compute], term: Call) -> Compute:
    def does(row: Row) -> Any:
        if args[0](row) > 1:
            raise NoAnswer("more than one row returned by a subquery used as an expression")
        return args[1](row)

    return does


_LAZY: dict[str, Callable[[list[Compute], Call], Compute]] = {
    "and": _and,
    "or": _or,
    "case": _case,
    "coalesce": _coalesce,
    "same": _same,
    "is null": lambda args, term: lambda row: args[0](row) is None,
    "greatest": _best(max),
    "least": _best(min),
    "row": lambda args, term: lambda row: tuple(each(row) for each in args),
    "single": _single,
}
