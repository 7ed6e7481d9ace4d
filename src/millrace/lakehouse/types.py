"""Which of Spark's types a format can hold, and which changes of a table's columns it can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_PLAIN = (BinaryType, BooleanType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType)
_TIMES = (TimestampType, TimestampNTZType)
_WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
# By which files have no order that readers could pass over them by.
UNORDERED = (ArrayType, BinaryType, BooleanType, MapType, StructType)
# By which a table can be divided: types with one spelling of each value.
DIVIDING = (StringType, BooleanType, DateType, *_WHOLE)


def stored(kind: DataType, format: str) -> DataType | None:  # noqa: A002
    """The type as a table of this format holds it, everything nullable; None if it cannot."""
    if isinstance(kind, (ByteType, ShortType)):
        return IntegerType() if format == "iceberg" else kind
    if isinstance(kind, StringType):  # also those with a length
        return StringType()
    if isinstance(kind, (*_PLAIN, *_TIMES)):
        return kind
    if isinstance(kind, ArrayType):
        element = stored(kind.elementType, format)
        return None if element is None else ArrayType(element, True)
    if isinstance(kind, MapType):
        key, value = stored(kind.keyType, format), stored(kind.valueType, format)
        return None if key is None or value is None else MapType(key, value, True)
    if isinstance(kind, StructType):
        inner = [stored(each.dataType, format) for each in kind.fields]
        named = zip(kind.names, inner, strict=True)
        fields = [StructField(name, each, True) for name, each in named if each is not None]
        return StructType(fields) if fields and len(fields) == len(inner) else None
    return None


def common(old: DataType, new: DataType) -> DataType | None:
    """The narrower of the types that hold all values of both; None if there is none that a table could grow to."""
    if old == new:
        return old
    if isinstance(old, _WHOLE) and isinstance(new, _WHOLE):
        return max(old, new, key=lambda each: _WHOLE.index(type(each)))
    if isinstance(old, (FloatType, DoubleType)) and isinstance(new, (FloatType, DoubleType)):
        return DoubleType()
    if isinstance(old, DecimalType) and isinstance(new, DecimalType) and old.scale == new.scale:
        return DecimalType(max(old.precision, new.precision), old.scale)
    return None


@dataclass(frozen=True)
class Growth:
    """How a table has to change for rows that have other columns: what is added, and the columns as they are then, of
    which some have `widened`, and some are called otherwise: `renamed` says how they are called now."""

    added: tuple[StructField, ...]
    columns: StructType
    widened: bool
    unfit: tuple[str, DataType, DataType] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)


def growth(table: StructType, wanted: Sequence[StructField], renamed: Mapping[str, str] | None = None) -> Growth:
    """`wanted` are columns as they are stored; of those that are `renamed`, it is said how they were called. One that a
    table has and they have not stays, and is null in new rows."""
    known = set(table.names)
    now = {old: new for new, old in (renamed or {}).items() if old in known and new not in known}
    table = StructType([StructField(now.get(each.name, each.name), each.dataType, True) for each in table.fields])
    given = {each.name: each.dataType for each in wanted}
    known, fields, widened = set(table.names), [], False
    for each in table.fields:
        kind = common(each.dataType, given.get(each.name, each.dataType))
        if kind is None:
            return Growth((), table, False, (each.name, each.dataType, given[each.name]))
        widened |= kind != each.dataType
        fields.append(StructField(each.name, kind, True))
    added = tuple(StructField(each.name, each.dataType, True) for each in wanted if each.name not in known)
    return Growth(added, StructType([*fields, *added]), widened, renamed={new: old for old, new in now.items()})
