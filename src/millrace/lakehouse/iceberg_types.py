"""Spark's types as Iceberg calls them, and the other way. Of a type as it is stored (`types.stored`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyspark.sql.types import DataType, StructType


def counted() -> Iterator[int]:
    """Numbers for nested fields, which the catalog replaces by its own."""
    from itertools import count

    return count(10_000)


def schema_of(columns: StructType) -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    numbers = counted()
    fields = [
        NestedField(place, each.name, iceberg_type(each.dataType, numbers), required=False)
        for place, each in enumerate(columns.fields, 1)
    ]
    return Schema(*fields)


def iceberg_type(kind: DataType, numbers: Iterator[int]) -> Any:
    """Of a type as it is stored (`types.stored`)."""
    from pyiceberg import types as to
    from pyspark.sql import types as of

    simple: dict[type[DataType], Any] = {
        of.BinaryType: to.BinaryType,
        of.BooleanType: to.BooleanType,
        of.DateType: to.DateType,
        of.DoubleType: to.DoubleType,
        of.FloatType: to.FloatType,
        of.IntegerType: to.IntegerType,
        of.LongType: to.LongType,
        of.StringType: to.StringType,
        of.TimestampNTZType: to.TimestampType,
        of.TimestampType: to.TimestamptzType,
    }
    if type(kind) in simple:
        return simple[type(kind)]()
    if isinstance(kind, of.DecimalType):
        return to.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, of.ArrayType):
        return to.ListType(next(numbers), iceberg_type(kind.elementType, numbers), element_required=False)
    if isinstance(kind, of.MapType):
        key, value = next(numbers), next(numbers)
        return to.MapType(key, iceberg_type(kind.keyType, numbers), value, iceberg_type(kind.valueType, numbers), False)
    assert isinstance(kind, of.StructType), kind
    fields = [
        to.NestedField(next(numbers), each.name, iceberg_type(each.dataType, numbers), required=False)
        for each in kind.fields
    ]
    return to.StructType(*fields)


def spark_type(kind: Any) -> DataType:
    from pyiceberg import types as of
    from pyspark.sql import types as to

    simple: dict[Any, DataType] = {
        of.BinaryType: to.BinaryType(),
        of.BooleanType: to.BooleanType(),
        of.DateType: to.DateType(),
        of.DoubleType: to.DoubleType(),
        of.FloatType: to.FloatType(),
        of.IntegerType: to.IntegerType(),
        of.LongType: to.LongType(),
        of.StringType: to.StringType(),
        of.TimestampType: to.TimestampNTZType(),
        of.TimestamptzType: to.TimestampType(),
    }
    if type(kind) in simple:
        return simple[type(kind)]
    if isinstance(kind, of.DecimalType):
        return to.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, of.ListType):
        return to.ArrayType(spark_type(kind.element_type), True)
    if isinstance(kind, of.MapType):
        return to.MapType(spark_type(kind.key_type), spark_type(kind.value_type), True)
    assert isinstance(kind, of.StructType), kind
    return to.StructType([to.StructField(each.name, spark_type(each.field_type), True) for each in kind.fields])
