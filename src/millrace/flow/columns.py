"""What an operator needs to know of the columns of its rows: which are the time and the key, what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType, TimestampType, VariantType

from millrace.errors import OptionInvalid, TimeUnknown, Where, nearest
from millrace.flow.aggregates import Aggregate
from millrace.kernel.calling import quoted
from millrace.kernel.values import alike

By: TypeAlias = str | Column | Sequence[str | Column]

# By which Spark knows the column with the watermark.
WATERMARK = "spark.watermarkDelayMs"
# By which operators know the end of a window that is told once, when it has closed; with the ms for which it may be
# told again.
CLOSED = "millrace.closed"


def named(operator: str, left: Sequence[str], right: Sequence[str], prefix: str, where: Where) -> dict[str, str]:
    """What the right columns are called beside the left ones: a name that is taken gets the prefix. Spark takes names
    that differ only in case for the same."""
    taken = {name.casefold() for name in left}
    names = {name: f"{prefix}{name}" if name.casefold() in taken else name for name in right}
    every = taken | {name.casefold() for name in right}
    for name, new in names.items():
        if name.casefold() in taken and new.casefold() in every:
            remedy = f"another one: there is a column {new!r} already"
            raise OptionInvalid(name=operator, option="prefix", given=prefix, remedy=remedy, where=where)
    return names


def time_of(rows: DataFrame, given: str | None, name: str, where: Where) -> str:
    """The column with the events' times: the one with the watermark."""
    marked = [field.name for field in rows.schema.fields if WATERMARK in field.metadata]
    if given is not None:
        if given not in rows.columns or (rows.isStreaming and given not in marked):
            remedy = f"name the topic's time column{nearest(given, marked or rows.columns)}"
            if given in rows.columns and not marked:
                remedy = "leave it out: no column of these rows is the time of an event (a window's results have none)"
            raise OptionInvalid(name=name, option="time", given=given, remedy=remedy, where=where)
        return given
    if not rows.isStreaming and not marked:  # a test's rows, say: the only time there is
        marked = [field.name for field in rows.schema.fields if isinstance(field.dataType, TimestampType)]
    if len(marked) != 1:
        raise TimeUnknown(name=name, found=", ".join(marked) or "none", where=where)
    return marked[0]


def taken_out(struct: str, schema: StructType) -> list[Column]:
    """The fields of a struct as the columns that they were. Spark forgets behind an operator which one has the
    watermark; it is the same one, and the same watermark."""
    return [F.col(f"{struct}.{quoted(each.name)}").alias(each.name, metadata=each.metadata) for each in schema]


def keys_of(rows: DataFrame, by: By, operator: str, where: Where, option: str = "by") -> dict[str, Column]:
    """The columns of a key, under their names. Those of a stream are kept as state."""
    given = [by] if isinstance(by, str | Column) else list(by)
    columns = [F.col(quoted(each)) if isinstance(each, str) else each for each in given]
    fields = rows.select(*columns).schema.fields if columns else []
    for field in fields if rows.isStreaming else ():
        refuse_key(field, operator, option, where)
    return {field.name: _as_key(column, field) for column, field in zip(columns, fields, strict=True)}


def refuse_key(field: StructField, operator: str, option: str, where: Where) -> None:
    """Arrays, and what else may hold many values. Spark does not send the encoder of an array to tasks whole: where an
    operator sets timers, it fails with the first row (UnresolvedMapObjects, whose function is transient)."""
    inner = [field.dataType]
    for type_ in inner:
        if isinstance(type_, StructType):
            inner += [each.dataType for each in type_]
        elif isinstance(type_, ArrayType | MapType | VariantType):
            remedy = (
                f"it is a {field.dataType.simpleString()}, by which no state is kept; F.to_json({field.name!r}) can be"
            )
            raise OptionInvalid(name=operator, option=option, given=field.name, remedy=remedy, where=where)


def _as_key(column: Column, field: StructField) -> Column:
    """A column as a key; one that needs nothing done stays as it is, for Spark knows more of it."""
    same = alike(column, field.dataType)
    return column if same is column else same.alias(field.name)


def spoken(rows: DataFrame, keys: Mapping[str, Column]) -> str:
    """The key and its types in words, for what an operator's state means."""
    fields = rows.select(*keys.values()).schema if keys else ()
    return "".join(f" by {field.name} {field.dataType.simpleString()}" for field in fields)


def looked_at(aggregate: Aggregate) -> tuple[Column, ...]:
    """What an aggregate looks at; of a position both of its columns."""
    if aggregate.of is None:
        return (F.lit(True),)
    if aggregate.kind == "count" and isinstance(aggregate.of, str):
        return (F.expr(aggregate.of),)
    given = [each for each in (aggregate.of, aggregate.beside) if each is not None]
    return tuple(F.col(quoted(each)) if isinstance(each, str) else each for each in given)
