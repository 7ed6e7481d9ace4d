"""Terms as Spark's columns. Where Spark would answer otherwise than PostgreSQL the operation is put together from
others, or the kernel computes it (`Numeric.java`).

What holds: the session's time zone is UTC and its ANSI mode is on, so that what does not fit is an error (`run.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, IntegerType, LongType, StringType, StructField, StructType

from millrace.kernel.calling import json_member, operator, quoted
from millrace.views import moments, types
from millrace.views.terms import Call, Endless, Ref, Term, Value
from millrace.views.types import Type

# A double of at least so much is a whole number.
_WHOLE_FROM = 2.0**52
_FOREVER = 2**31 - 1
_MINUTE_US = 60_000_000
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"


def column(term: Term) -> Column:
    if isinstance(term, Ref):
        return F.col(quoted(term.column))
    if isinstance(term, Value):
        return _literal(term)
    return _MAKERS[term.name](term, [column(each) for each in term.args])


def _literal(term: Value) -> Column:
    value, wanted = term.value, types.spark(term.type)
    if value is None:
        return F.lit(None).cast(wanted)
    if isinstance(value, Decimal):
        return F.lit(f"{value:f}").cast(wanted)
    if isinstance(value, Endless):
        return moments.ends(term.type)[not value.later]
    if isinstance(value, datetime | date):
        return F.lit(value.isoformat()).cast(wanted)
    return F.lit(value).cast(wanted)


Maker: TypeAlias = Callable[[Call, list[Column]], Column]


def _spark_type(type_: Type) -> DataType:
    return DecimalType(type_.precision, type_.scale) if type_.precision else StringType()


def _exactly(term: Call, args: Sequence[Column], *, order: bool = False, operation: str = "") -> Column:
    """By the kernel's own arithmetic."""
    fields = []
    for place, each in enumerate(term.args):
        type_ = LongType() if each.type.is_whole else _spark_type(each.type)
        fields.append(StructField(f"a{place}", type_))
    given = [arg.cast("bigint") if each.type.is_whole else arg for arg, each in zip(args, term.args, strict=True)]
    struct = F.struct(*(arg.alias(f"a{place}") for place, arg in enumerate(given)))
    gives = IntegerType() if order else _spark_type(term.type)
    told = {
        "operation": operation or term.name,
        "mixed": [each.type.mixed for each in term.args],
        "digits": term.extra[0] if term.name in _ROUNDED else 0,
        "sample": bool(term.extra[0]) if term.name == "spread" else False,
        "root": bool(term.extra[1]) if term.name == "spread" else False,
    }
    java = operator(SparkSession.active(), "Numeric")
    return Column(java.of(struct._jc, StructType(fields).json(), gives.json(), json.dumps(told)))


_ROUNDED = ("round", "trunc", "ceil", "floor")


def _arithmetic(does: Callable[[Column, Column], Column]) -> Maker:
    def made(term: Call, args: list[Column]) -> Column:
        if term.type.kind == "numeric":
            return does(*args).cast(types.spark(term.type)) if _is_native(term) else _exactly(term, args)
        # Spark divides floats as doubles.
        return does(*args).cast(types.spark(term.type))

    return made


def _is_native(term: Call) -> bool:
    """Whether Spark's decimals compute it without dropping digits."""
    left, right = (each.type for each in term.args)
    if not (term.type.precision and left.precision and right.precision):
        return False
    if term.name == "*":
        return left.precision + right.precision + 1 <= types.MOST_DIGITS
    return term.name in ("+", "-") and term.type.precision < types.MOST_DIGITS


def _divide(term: Call, args: list[Column]) -> Column:
    if term.type.kind == "numeric":
        return _exactly(term, args)
    if term.type.is_whole:
        return F.call_function("div", *args).cast(types.spark(term.type))
    return (args[0] / args[1]).cast(types.spark(term.type))


def _modulo(term: Call, args: list[Column]) -> Column:
    return _exactly(term, args) if term.type.kind == "numeric" else (args[0] % args[1]).cast(types.spark(term.type))


def _one_way(does: Callable[[Column], Column]) -> Maker:
    def made(term: Call, args: list[Column]) -> Column:
        return _exactly(term, args) if term.type.is_wide else does(args[0]).cast(types.spark(term.type))

    return made


def _compared(does: Callable[[Column, Column], Column]) -> Maker:
    def made(term: Call, args: list[Column]) -> Column:
        if not term.args[0].type.is_wide:
            return does(*args)
        known = args[0].isNotNull() & args[1].isNotNull()
        return F.when(known, does(_exactly(term, args, order=True), F.lit(0)))

    return made


def _same(term: Call, args: list[Column]) -> Column:
    return _key(term.args[0].type, args[0]).eqNullSafe(_key(term.args[1].type, args[1]))


def _key(type_: Type, value: Column) -> Column:
    return _exactly(Call("key", (Ref("", type_),), type_), [value]) if type_.is_wide else value


def _cast(term: Call, args: list[Column]) -> Column:
    (value,), one, other = args, term.args[0].type, term.type
    wanted = types.spark(other)
    if one.kind == "numeric" and (one.is_wide or other.is_wide or other.is_text) and not other.is_whole:
        if other.kind in ("real", "double"):
            return value.cast(wanted)
        return _exactly(Call("cast", term.args, other if other.kind == "numeric" else types.NUMERIC), args)
    if one.kind == "numeric" and other.is_whole:
        whole = types.numeric(types.MOST_DIGITS, 0)
        return _exactly(Call("round", term.args, whole, (0,)), args).cast(wanted)
    if one.kind in ("real", "double") and other.is_whole:
        return F.rint(value.cast("double")).cast(wanted)
    if other.kind == "char":
        return F.rtrim(value)
    if one.is_text and other.is_text:
        return value
    if one.kind in moments.KINDS:
        return moments.kept(one, value, other, value.cast(wanted))
    return value.cast(wanted)


def _moved(does: Callable[[Call, list[Column]], Column]) -> Maker:
    """Infinity stays where it is."""
    return lambda term, args: moments.kept(term.args[0].type, args[0], term.type, does(term, args))


def _between(does: Callable[[Column, Column, Type], Column]) -> Maker:
    def made(term: Call, args: list[Column]) -> Column:
        found, wrong = does(args[0], args[1], term.type), _none("cannot subtract infinite moments", term.type)
        for each, value in zip(term.args, args, strict=True):
            found = moments.otherwise(each.type, value, wrong, wrong, found)
        return found

    return made


def _none(sentence: str, type_: Type) -> Column:
    """PostgreSQL has no answer, or none that the type holds."""
    return F.raise_error(F.lit(sentence)).cast(types.spark(type_))


def _shift(term: Call, args: list[Column]) -> Column:
    months, days, micros = term.extra
    moment = args[0]
    if months:
        moment = moment + F.make_ym_interval(F.lit(0), F.lit(months))
    if days or micros:
        seconds = F.lit(f"{Decimal(micros) / 10**6:f}").cast("decimal(18,6)")
        moment = moment + F.make_dt_interval(F.lit(days), F.lit(0), F.lit(0), seconds)
    return moment


def _micros(moment: Column) -> Column:
    return F.unix_micros(moment.cast("timestamp"))


def _in_seconds(micros: Column, type_: Type) -> Column:
    return (micros.cast("decimal(20,0)") * F.lit("0.000001").cast("decimal(6,6)")).cast(types.spark(type_))


def _extract(term: Call, args: list[Column]) -> Column:
    """Of infinity PostgreSQL knows no month, and an infinite year, which no decimal of Spark holds."""
    (unit,), (moment,) = term.extra, args
    endless = F.lit(None).cast(types.spark(term.type))
    if unit in ("year", "epoch"):
        endless = _none(f"the {unit} of an infinite moment is infinite", term.type)
    return moments.otherwise(term.args[0].type, moment, endless, endless, _part(term, unit, moment))


def _part(term: Call, unit: str, moment: Column) -> Column:
    if unit == "epoch":
        return _in_seconds(_micros(moment), term.type)
    if unit == "second":
        return _in_seconds(F.pmod(_micros(moment), F.lit(_MINUTE_US).cast("bigint")), term.type)
    return _PARTS[unit](moment).cast(types.spark(term.type))


_PARTS: dict[str, Callable[[Column], Column]] = {
    "year": moments.year,
    "quarter": F.quarter,
    "month": F.month,
    "week": F.weekofyear,
    "day": F.dayofmonth,
    "doy": F.dayofyear,
    "dow": lambda at: F.dayofweek(at) - 1,
    "isodow": lambda at: F.weekday(at) + 1,
    "hour": F.hour,
    "minute": F.minute,
}


def _truncated(term: Call, args: list[Column]) -> Column:
    return F.date_trunc(term.extra[0], args[0].cast("timestamp")).cast("timestamp_ntz")


def _rounded(term: Call, args: list[Column]) -> Column:
    if term.type.kind == "numeric":
        return _exactly(term, args)
    (value,) = args
    if term.name == "round":
        return F.rint(value)
    does = {"ceil": F.ceil, "floor": F.floor}.get(term.name)
    whole = does(value) if does is not None else F.when(value < 0, F.ceil(value)).otherwise(F.floor(value))
    return F.when(F.abs(value) >= _WHOLE_FROM, value).otherwise(whole.cast("double"))


def _case(term: Call, args: list[Column]) -> Column:
    found = F.when(args[0], args[1])
    for condition, value in zip(args[2:-1:2], args[3::2], strict=True):
        found = found.when(condition, value)
    return found.otherwise(args[-1])


def _all(does: Callable[[Column, Column], Column]) -> Maker:
    def made(term: Call, args: list[Column]) -> Column:
        found = args
        while len(found) > 1:  # by halves: of a thousand, ten levels
            found = [does(*found[at : at + 2]) if at + 1 < len(found) else found[at] for at in range(0, len(found), 2)]
        return found[0]

    return made


def _substring(term: Call, args: list[Column]) -> Column:
    start, length = term.extra
    return F.substring(args[0], start, _FOREVER if length is None else length)


def _row(term: Call, args: list[Column]) -> Column:
    return F.struct(*(each.alias(f"r{place}") for place, each in enumerate(args)))


def _single(term: Call, args: list[Column]) -> Column:
    sentence = F.lit("more than one row returned by a subquery used as an expression")
    return F.when(args[0] > 1, F.raise_error(sentence).cast(types.spark(term.type))).otherwise(args[1])


_MAKERS: dict[str, Maker] = {
    "+": _arithmetic(lambda left, right: left + right),
    "-": _arithmetic(lambda left, right: left - right),
    "*": _arithmetic(lambda left, right: left * right),
    "/": _divide,
    "%": _modulo,
    "neg": _one_way(lambda value: -value),
    "abs": _one_way(F.abs),
    "=": _compared(lambda left, right: left == right),
    "<>": _compared(lambda left, right: left != right),
    "<": _compared(lambda left, right: left < right),
    "<=": _compared(lambda left, right: left <= right),
    ">": _compared(lambda left, right: left > right),
    ">=": _compared(lambda left, right: left >= right),
    "same": _same,
    "and": _all(lambda left, right: left & right),
    "or": _all(lambda left, right: left | right),
    "not": lambda term, args: ~args[0],
    "is null": lambda term, args: args[0].isNull(),
    "case": _case,
    "coalesce": lambda term, args: F.coalesce(*args),
    "greatest": lambda term, args: F.greatest(*args) if len(args) > 1 else args[0],
    "least": lambda term, args: F.least(*args) if len(args) > 1 else args[0],
    "row": _row,
    "single": _single,
    "cast": _cast,
    "key": lambda term, args: _key(term.type, args[0]),
    "pad": lambda term, args: F.rpad(args[0], term.type.length, " "),
    "date +": _moved(lambda term, args: F.date_add(args[0], args[1])),
    "date -": _moved(lambda term, args: F.date_sub(args[0], args[1])),
    "days": _between(lambda left, right, type_: F.datediff(left, right)),
    "shift": _moved(_shift),
    "seconds": _between(lambda left, right, type_: _in_seconds(_micros(left) - _micros(right), type_)),
    "extract": _extract,
    "date_trunc": _moved(_truncated),
    "||": lambda term, args: F.concat(*args),
    "lower": lambda term, args: F.translate(args[0], _UPPER, _LOWER),
    "upper": lambda term, args: F.translate(args[0], _LOWER, _UPPER),
    "length": lambda term, args: F.length(args[0]),
    "substring": _substring,
    "trim": lambda term, args: F.trim(args[0]),
    "ltrim": lambda term, args: F.ltrim(args[0]),
    "rtrim": lambda term, args: F.rtrim(args[0]),
    "replace": lambda term, args: F.replace(args[0], args[1], args[2]),
    "position": lambda term, args: F.call_function("instr", args[0], args[1]),
    "like": lambda term, args: args[0].like(term.extra[0]),
    "round": _rounded,
    "trunc": _rounded,
    "ceil": _rounded,
    "floor": _rounded,
    "spread": _exactly,
    "member": lambda term, args: json_member(args[0], *term.extra),
}  # fmt: skip
