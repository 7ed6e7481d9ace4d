"""Spark's types as PostgreSQL's, and what is done to values before `CopyRows.java` writes them: `capture/types.py`
turned around."""

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
_MICROS = "yyyy-MM-dd HH:mm:ss.SSSSSS"
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


def ready(column: Column, kind: DataType) -> Column:
    """A value as `CopyRows.java` takes it: what is held as JSON as its text, all others as they are."""
    return F.to_json(column, _TIMES) if postgres_type(kind) == JSON else column


def unfit(column: Column, kind: DataType) -> Column | None:
    """Whether a value holds the character 0, which PostgreSQL's texts cannot; None if it never does."""
    if isinstance(kind, StringType):
        return _has_nul(column)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType):
        return F.exists(column, _has_nul)
    if postgres_type(kind) == JSON and not isinstance(kind, VariantType):
        # In JSON it is escaped, if the backslash is not itself.
        return F.to_json(column).rlike(r"(?<!\\)(\\\\)*\\u0000")
    return None


def _has_nul(text: Column) -> Column:
    return F.instr(text, "\0") > 0
