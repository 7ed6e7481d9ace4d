"""One value of the topic's JSON as its type: the same rules as Spark expressions and in Python."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from millrace.capture.database import Column as TableColumn
from millrace.capture.printed import WHOLE, iso

if TYPE_CHECKING:
    from pyspark.sql import Column

# Debezium's own numbers for infinite timestamps; `Exact.java` writes words.
_NEVER_US, _EVER_US = 9223372036825200000, -9223372036832400000
# The ends of Spark's types, which stand for infinity.
ENDS = {
    "date": ("date_from_unix_date(2147483647)", "date_from_unix_date(-2147483648)"),
    "timestamp": ("timestamp_micros(9223372036854775807)", "timestamp_micros(-9223372036854775807 - 1)"),
    "timestamp_ntz": (
        "TIMESTAMP_NTZ '+294247-01-10 04:00:54.775807'",
        "TIMESTAMP_NTZ '-290308-12-21 19:59:05.224192'",
    ),
}
_RANGES = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_EPOCH = datetime(1970, 1, 1)
_BEFORE_CHRIST = " BC"
_ISO = re.compile(r"([+-]?)(\d{4,})(-\d\d-\d\d)(T\d\d:\d\d:\d\d(?:\.\d+)?)?(Z)?")


def is_time(column: TableColumn) -> bool:
    """A time of the day is shown as text; MySQL's come as microseconds."""
    return column.spark == "string" and re.match(r"time\b(?!stamp)", column.type) is not None


def in_spark(held: Column, spark: str) -> Column:
    """The value of a type other than that of its JSON; null where it is none."""
    if spark.startswith("decimal"):
        return _decimal(held, int(spark.rstrip(")").partition(",")[2]), spark)
    if spark in ENDS:
        return moment(held, spark)
    if spark == "binary":
        from pyspark.sql import functions as F

        return F.try_to_binary(held, F.lit("base64"))
    return held.try_cast(spark)


def _decimal(held: Column, scale: int, spark: str) -> Column:
    """A cast would round what has more digits than the type. Zeros are no digits."""
    from pyspark.sql import functions as F

    point = F.locate(".", held)
    fits = (point == 0) | (F.length(held) - point <= scale) | held.contains("E")
    trimmed = F.length(F.rtrim(held, F.lit("0"))) - point <= scale
    return F.when(fits | trimmed, held.try_cast(spark))


def moment(held: Column, spark: str) -> Column:
    """ISO 8601 with years of any sign, or before Christ as PostgreSQL says it (a view's changelog); a word for
    infinity, or Debezium's days or microseconds."""
    from pyspark.sql import functions as F

    last, first = map(F.expr, ENDS[spark])
    number = held.try_cast("bigint")
    if spark == "date":
        counted = F.date_from_unix_date(number.try_cast("int"))
    else:
        counted = F.timestamp_micros(number) if spark == "timestamp" else _unzoned(number)
        counted = F.when(number >= _NEVER_US, last).when(number <= _EVER_US, first).otherwise(counted)
    return (
        F.when(held.endswith(_BEFORE_CHRIST), _signed(held).try_cast(spark))
        .when(F.locate("-", held, 2) > 0, held.try_cast(spark))
        .when(held == "infinity", last)
        .when(held == "-infinity", first)
        .otherwise(counted)
    )


def _signed(held: Column) -> Column:
    """The year 44 before Christ is -43: there was no year 0."""
    from pyspark.sql import functions as F

    year = F.format_string("-%04d", F.substring_index(held, "-", 1).try_cast("int") - 1)
    return F.concat(year, F.regexp_extract(held, r"^\d+(-.*) BC$", 1))


def _unzoned(micros: Column) -> Column:
    from pyspark.sql import functions as F

    start = F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
    return F.timestamp_add("MICROSECOND", micros, start)


def clock(held: Column) -> Column:
    """Microseconds of a day as hours, minutes and seconds; text stays as it is."""
    from pyspark.sql import functions as F

    micros = held.try_cast("bigint")
    size = F.abs(micros)
    whole = F.floor(size / 1_000_000)
    sign = F.when(micros < 0, "-").otherwise("")
    parts = F.format_string("%s%02d:%02d:%02d", sign, F.floor(whole / 3600), F.floor(whole / 60) % 60, whole % 60)
    fraction = F.when(size % 1_000_000 == 0, "").otherwise(
        F.rtrim(F.format_string(".%06d", size % 1_000_000), F.lit("0"))
    )
    return F.when(held.contains(":") | held.isNull(), held).otherwise(F.concat(parts, fraction))


def in_python(value: Any, column: TableColumn) -> Any:
    """Raises ValueError, TypeError or ArithmeticError for a value that is none of the type."""
    if value is None:
        return None
    if column.spark.startswith("array<") or column.type.endswith("[]"):
        return _list(value, column.spark)
    if column.spark == "string":
        if is_time(column) and isinstance(value, int):
            return _clock(value)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if column.spark in ("float", "double"):
        return float(value)
    if column.spark in _RANGES or column.spark == "boolean":
        kind = bool if column.spark == "boolean" else int
        if type(value) is not kind:
            raise TypeError
    return _scalar(str(value) if column.spark.startswith("decimal") else value, column.spark)


def _list(value: list[Any], spark: str) -> Any:
    whole = value and isinstance(value[0], str) and value[0].startswith(WHOLE)
    if spark == "string":
        return value[0][1:] if whole else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if whole:
        raise ValueError
    element = spark.removeprefix("array<").removesuffix(">")
    return [None if each is None else _scalar(each, element) for each in value]


def _scalar(value: Any, spark: str) -> Any:
    if spark in _RANGES:
        number = int(value)
        if not -(2 ** _RANGES[spark]) <= number < 2 ** _RANGES[spark]:
            raise ValueError
        return number
    if spark.startswith("decimal"):
        return _exact(Decimal(value), *map(int, spark[8:-1].split(",")))
    if spark in ("float", "double"):
        return float(value)
    if spark == "boolean":
        return {True: True, False: False, "true": True, "false": False}[value]
    if spark == "binary":
        return base64.b64decode(value, validate=True)
    if spark in ENDS:
        return _date(value) if spark == "date" else _time(value, spark)
    return value if isinstance(value, str) else json.dumps(value)


def _exact(number: Decimal, precision: int, scale: int) -> Decimal:
    """With just these digits after the point. Without Python's decimal arithmetic, which rounds to its context."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):  # NaN and infinity
        raise ValueError
    whole, shift = int("".join(map(str, digits))), scale + exponent
    whole, lost = (whole * 10**shift, 0) if shift >= 0 else divmod(whole, 10**-shift)
    if lost or whole >= 10**precision:
        raise ValueError
    return Decimal((sign, tuple(map(int, str(whole))), -scale))


def _date(value: Any) -> date | str:
    if isinstance(value, int):
        return date(1970, 1, 1) + timedelta(days=value)
    return date.fromisoformat(value) if _python_holds(value) else iso(str(value))


def _time(value: Any, spark: str) -> datetime | str:
    if value in (_NEVER_US, _EVER_US):
        return "infinity" if value > 0 else "-infinity"
    zone = UTC if spark == "timestamp" else None
    if isinstance(value, int):
        return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=zone)
    return datetime.fromisoformat(value).replace(tzinfo=zone) if _python_holds(value) else iso(str(value))


def _python_holds(text: str) -> bool:
    if text in ("infinity", "-infinity"):
        return False
    found = _ISO.fullmatch(text.removesuffix(_BEFORE_CHRIST))
    if found is None:
        raise ValueError
    return not found[1] and len(found[2]) == 4 and found[2] != "0000" and not text.endswith(_BEFORE_CHRIST)


def _clock(micros: int) -> str:
    whole, fraction = divmod(abs(micros), 1_000_000)
    text = f"{'-' if micros < 0 else ''}{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    return text + (f".{fraction:06}".rstrip("0") if fraction else "")
