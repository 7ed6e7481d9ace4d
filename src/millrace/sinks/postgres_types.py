"""Spark's types as PostgreSQL's, and values as the texts that its COPY reads: `capture/types.py` turned around."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

_SIMPLE: dict[type[DataType], str] = {
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    BooleanType: "boolean",
    DateType: "date",
    TimestampNTZType: "timestamp without time zone",
    TimestampType: "timestamp with time zone",
    BinaryType: "bytea",
    StringType: "text",
}
JSON = "jsonb"
_AS_JSON = (StructType, MapType, VariantType)

# The ends of Spark's types, last and first, stand for PostgreSQL's infinity, which Spark does not have.
_ENDS: dict[type[DataType], tuple[str, str]] = {
    DateType: ("date_from_unix_date(2147483647)", "date_from_unix_date(-2147483648)"),
    TimestampType: ("timestamp_micros(9223372036854775807)", "timestamp_micros(-9223372036854775807 - 1)"),
    TimestampNTZType: (
        "TIMESTAMP_NTZ '+294247-01-10 04:00:54.775807'",
        "TIMESTAMP_NTZ '-290308-12-21 19:59:05.224192'",
    ),
}
_LAST_PLAIN_YEAR = 9_999
_DAY, _MICROS = "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss.SSSSSS"
# What a text format of COPY takes for something else, the backslash first.
_ESCAPED = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
NULL = "\\N"
_TIMES = {"timestampFormat": f"{_MICROS}XXX", "timestampNTZFormat": _MICROS, "ignoreNullFields": "false"}


def postgres_type(kind: DataType) -> str | None:
    """PostgreSQL's word for a type, as its catalogue says it; None if there is none."""
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, ArrayType):
        element = postgres_type(kind.elementType)
        return None if element is None else JSON if _nested(kind) else f"{element}[]"
    if isinstance(kind, _AS_JSON):
        return JSON
    return next((word for spark, word in _SIMPLE.items() if isinstance(kind, spark)), None)


def _nested(kind: ArrayType) -> bool:
    return isinstance(kind.elementType, (ArrayType, *_AS_JSON))


def staged_type(kind: DataType) -> str:
    """What a value is staged as: an array as JSON, of which `unstaged` makes one."""
    return JSON if isinstance(kind, ArrayType) else postgres_type(kind) or "text"


def is_array(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and not _nested(kind)


def copied(column: Column, kind: DataType, *, utc: bool) -> Column:
    """A value as a field of COPY's text format."""
    return F.coalesce(_escaped(_text(column, kind, utc=utc), kind), F.lit(NULL))


def unfit(column: Column, kind: DataType) -> Column | None:
    """Whether a value holds the character 0, which PostgreSQL's texts cannot; None if it never does."""
    if isinstance(kind, StringType):
        return F.instr(column, "\0") > 0
    if isinstance(kind, (ArrayType, *_AS_JSON)):
        # In JSON it is escaped, if the backslash is not itself.
        return F.to_json(column).rlike(r"(?<!\\)(\\\\)*\\u0000") if not isinstance(kind, VariantType) else None
    return None


def _escaped(text: Column, kind: DataType) -> Column:
    if isinstance(kind, (StringType, ArrayType, *_AS_JSON)):
        for character, word in _ESCAPED:
            text = F.replace(text, F.lit(character), F.lit(word))
    return text


def _text(column: Column, kind: DataType, *, utc: bool) -> Column:
    if isinstance(kind, DateType):
        return _moment(column, kind, _DAY, column.cast("string"))
    if isinstance(kind, TimestampType):
        # Quick where the session's zone is ours.
        plain = F.concat(column.cast("string"), F.lit("+00")) if utc else F.date_format(column, f"{_MICROS}XXX")
        return _moment(column, kind, f"{_MICROS}XXX", plain)
    if isinstance(kind, TimestampNTZType):
        return _moment(column, kind, _MICROS, column.cast("string"))
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\\\x"), F.lower(F.hex(column)))
    if isinstance(kind, ArrayType) and not _nested(kind):
        return F.to_json(F.transform(column, lambda each: _element(each, kind.elementType, utc=utc)))
    if isinstance(kind, (ArrayType, *_AS_JSON)):
        return F.to_json(column, _TIMES)
    return column.cast("string")


def _element(each: Column, kind: DataType, *, utc: bool) -> Column:
    """An array's element as the text that PostgreSQL casts to its type."""
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\x"), F.lower(F.hex(each)))
    return _text(each, kind, utc=utc)


def _moment(column: Column, kind: DataType, form: str, plain: Column) -> Column:
    """Years of four digits as they are; others with their era and without a sign; the ends as infinity."""
    last, first = map(F.expr, _ENDS[type(kind)])
    year = F.year(column)
    odd = F.ltrim(F.date_format(column, f"{form} G"), F.lit("+"))  # with an era, years are counted within it
    return (
        F.when((year > 0) & (year <= _LAST_PLAIN_YEAR), plain)
        .when(column == last, "infinity")
        .when(column == first, "-infinity")
        .otherwise(odd)
    )
