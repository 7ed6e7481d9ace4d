"""Values on their way into the kernel and back: it holds longs, doubles, decimals, texts and bytes."""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)


class Unfit(Exception):
    """A type that an operator cannot take, or what else it cannot."""


def held_type(kind: str, type_: DataType) -> DataType:
    """The type in which the kernel holds a value."""
    if kind in ("count", "approx_distinct") or isinstance(type_, IntegralType):
        return LongType()
    if isinstance(type_, FloatType | DoubleType):
        return DoubleType()
    if isinstance(type_, DecimalType):
        return type_
    if kind not in ("sum", "avg"):
        if isinstance(type_, StringType | BinaryType) and kind not in ("quantile", "quantiles"):
            return type_
        if isinstance(type_, TimestampType | DateType | BooleanType):
            return LongType()
    raise Unfit(f"{kind} of {type_.simpleString()}")


def carried(column: Column, type_: DataType) -> Column:
    """A column as a type that the kernel holds."""
    if isinstance(type_, TimestampType):
        return F.unix_micros(column)
    if isinstance(type_, DateType):
        return F.unix_date(column).cast("long")
    if isinstance(type_, BooleanType):
        return column.cast("int").cast("long")
    if isinstance(type_, IntegralType):
        return column.cast("long")
    return column.cast("double") if isinstance(type_, FloatType) else column


def alike(column: Column, type_: DataType) -> Column:
    """A key whose bytes are the same where SQL takes its values for the same: one zero, one NaN, nested ones too. Spark
    sees to that where it groups by itself, and not where it keeps state by key."""
    if isinstance(type_, FloatType | DoubleType):
        one_zero = column + F.lit(0.0).cast(type_)
        return F.when(F.isnan(column), F.lit(math.nan).cast(type_)).otherwise(one_zero)
    if isinstance(type_, StructType) and _has_reals(type_):
        fields = (alike(column.getField(field.name), field.dataType).alias(field.name) for field in type_)
        return F.when(column.isNotNull(), F.struct(*fields))
    return column


def _has_reals(type_: DataType) -> bool:
    if isinstance(type_, StructType):
        return any(_has_reals(field.dataType) for field in type_)
    return isinstance(type_, FloatType | DoubleType)


def hashed(column: Column) -> Column:
    """What different values are told apart by: 64 bits, the same wherever they are computed, of any type."""
    return F.when(column.isNotNull(), F.xxhash64(column))


def restored(result: Column, kind: str, type_: DataType) -> Column:
    """A result as the type that was aggregated."""
    if kind in ("count", "sum", "avg", "distinct", "approx_distinct"):
        return result
    if kind == "quantiles":
        return F.transform(result, lambda value: restored(value, "quantile", type_))
    if kind == "frequent":
        return F.transform(
            result, lambda each: F.struct(restored(each["value"], "first", type_).alias("value"), each["count"])
        )
    if isinstance(type_, TimestampType):
        return F.timestamp_micros(result)
    if isinstance(type_, DateType):
        return F.date_from_unix_date(result.cast("int"))
    if isinstance(type_, LongType):
        return result
    return result.cast(type_)
