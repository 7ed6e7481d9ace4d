"""Rows as texts, made by Spark: the tasks' Python only passes them on."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from millrace.kernel.calling import quoted
from millrace.sinks.contract import Feed

# All six digits of a time, as in the records of a topic.
ZONED, LOCAL = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_TIMES = {"timestampFormat": ZONED, "timestampNTZFormat": LOCAL}
_NESTED = (StructType, MapType, ArrayType, VariantType)
SEPARATOR = ":"


def document(feed: Feed, *, nulls: bool = True) -> Column:
    """The row as JSON. Decimals have all their digits."""
    columns = (F.col(quoted(name)) for name in feed.columns.names)
    return F.to_json(F.struct(*columns), {**_TIMES, "ignoreNullFields": str(not nulls).lower()})


def fields(feed: Feed) -> Column:
    """The row as JSON whose values are all texts; without those that are null."""
    texts = (text(F.col(quoted(each.name)), each.dataType).alias(each.name) for each in feed.columns.fields)
    return F.to_json(F.struct(*texts))


def text(column: Column, kind: DataType) -> Column:
    """A value as the text that JSON would have for it, without quotes."""
    if isinstance(kind, _NESTED):
        return F.to_json(column, _TIMES)
    if isinstance(kind, TimestampType):
        return F.date_format(column, ZONED)
    if isinstance(kind, TimestampNTZType):
        return F.date_format(column, LOCAL)
    if isinstance(kind, BinaryType):
        return F.base64(column)
    return column.cast("string")


def key_text(feed: Feed) -> Column:
    """The key as dead letters have it: one column as its text, several as JSON, as in a topic's records."""
    if len(feed.key) == 1:
        return text(F.col(quoted(feed.key[0])), feed.columns[feed.key[0]].dataType)
    return F.to_json(F.struct(*(F.col(quoted(name)) for name in feed.key)), _TIMES)


def joined_key(feed: Feed) -> Column:
    """The key as one text that no other key has: `42`, or `eu:42`. Null if a part of it is."""
    parts = [text(F.col(quoted(name)), feed.columns[name].dataType) for name in feed.key]
    if len(parts) > 1:
        parts = [F.replace(F.replace(part, F.lit("%"), F.lit("%25")), F.lit(":"), F.lit("%3A")) for part in parts]
    found = parts[0]
    for part in parts[1:]:
        found = F.concat(found, F.lit(SEPARATOR), part)
    return found
