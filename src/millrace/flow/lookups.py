"""A stream and a table: each event with the row of a captured table that has its key.

The table is kept by the flow itself, in state by key, and kept fresh by its capture; the database is never asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, LongType, StringType, StructField

from millrace.capture import CapturedTable, reading
from millrace.errors import OptionInvalid, Where, nearest
from millrace.flow.columns import named, taken_out
from millrace.flow.nodes import caller
from millrace.flow.operators import note
from millrace.kernel import latest
from millrace.kernel import lookup as kernel
from millrace.kernel.calling import quoted
from millrace.kernel.kept import About
from millrace.kernel.values import alike

How: TypeAlias = Literal["left", "inner"]
KINDS = ("left", "inner")

_EVENT, _ROW, _KEY, _TIMES = "__event", "__row", "__key", "__times"


@dataclass(frozen=True)
class Known:
    """What is known of a table besides the rows of its DataFrame. Of one that streams also the records of its topic,
    and how what the kernel makes of them is checked: a record that nobody understands stops the flow. `clocked` gives
    the records with a clock of the changes' times, which waits so many ms for them."""

    table: CapturedTable
    records: DataFrame | None = None
    understood: Callable[[DataFrame], DataFrame] = lambda rows: rows
    clocked: Callable[[int], DataFrame] | None = None


# By the very DataFrame that a stream's function is given. One made from it has other rows, of which nothing is known.
_known: WeakKeyDictionary[DataFrame, Known] = WeakKeyDictionary()


def offer(table: DataFrame, known: Known) -> DataFrame:
    """The DataFrame, which can be looked up in from now on."""
    _known[table] = known
    return table


def lookup(
    events: DataFrame,
    table: DataFrame,
    /,
    *,
    on: str | Sequence[str],
    how: How = "left",
    prefix: str = "table_",
    key: str | Sequence[str] | None = None,
) -> DataFrame:
    """Each event with the row of the table whose primary key the event's `on` columns hold, as the table then is.

    `on` names as many columns as the key has, in its order. `how`: "left" gives nulls where there is no such row,
    "inner" leaves those events out. Columns: the event's, then the table's without its key; one whose name is taken
    gets the prefix. A table that does not stream is joined as it is; `key` names its key where that is not its first
    columns.
    """
    where = caller()
    if how not in KINDS:
        raise OptionInvalid(
            name="lookup", option="how", given=how, remedy='choose "left" (loses no event) or "inner"', where=where
        )
    known = _known.get(table)
    if table.isStreaming and (known is None or known.records is None):
        remedy = "a table as the function was given it; what is to be changed or left out of its rows comes after"
        raise OptionInvalid(name="lookup", option="table", given="another stream", remedy=remedy, where=where)
    if table.isStreaming and not events.isStreaming:
        remedy = "events that stream too, or the table as a batch: mr.now(…)"
        raise OptionInvalid(name="lookup", option="events", given="a batch", remedy=remedy, where=where)
    columns = [on] if isinstance(on, str) else list(on)
    parts = key_of("lookup", table, known, columns, key, where)
    kinds = {part: kept_type(table.schema[part]) for part in parts}
    keys = keys_as("lookup", events, columns, [kinds[part] for part in parts], where)
    if not table.isStreaming:
        others = [name for name in table.columns if name not in parts]
        names = named("lookup", events.columns, others, prefix, where)
        return _joined(events, keys, table, parts, names, how)
    assert known is not None
    assert known.records is not None
    others = [column.name for column in known.table.columns if column.name not in parts]
    names = named("lookup", events.columns, others, prefix, where)
    by = ", ".join(f"{part} {kinds[part].simpleString()}" for part in parts)
    note(f"the rows of {known.table.name} by {by}", f"looks up {how}")
    records, record_keys = keyed(known.table, known.records, kinds)
    about = About("lookup", str(where), tuple(parts), {"table": known.table.name})
    told = kernel.lookup(events, keys, records, record_keys, inner=how == "inner", about=about)
    found = known.understood(told)
    return _typed(found, events, known.table, names)


def known_of(table: DataFrame) -> Known | None:
    return _known.get(table)


def key_of(
    operator: str, table: DataFrame, known: Known | None, on: list[str], key: str | Sequence[str] | None, where: Where
) -> list[str]:
    """The table's key, which must be what is asked for."""
    given = [key] if isinstance(key, str) else list(key or ())
    parts = list(known.table.key) if known is not None else given or table.columns[: len(on)]
    for part in parts:
        if part not in table.columns:
            remedy = f"name columns of the table{nearest(part, table.columns)}"
            raise OptionInvalid(name=operator, option="key", given=key, remedy=remedy, where=where)
    told = ", ".join(parts)
    if given and given != parts:
        remedy = f"leave it out: rows are found by the table's whole primary key, which is {told}"
        raise OptionInvalid(name=operator, option="key", given=key, remedy=remedy, where=where)
    if not on or len(on) != len(parts):
        remedy = f"a row is found by its table's whole primary key: name the event's columns that hold {told}"
        raise OptionInvalid(name=operator, option="on", given=on, remedy=remedy, where=where)
    return parts


def kept_type(field: StructField) -> DataType:
    """The type under which a key is kept: integers are all alike, so that a column may be made wider."""
    return LongType() if isinstance(field.dataType, IntegralType) else field.dataType


def keys_as(operator: str, events: DataFrame, on: list[str], kinds: list[DataType], where: Where) -> list[Column]:
    """The event's columns as keys. A value that no key can have, 1.5 of an integer, finds nothing and not its like."""
    found = []
    for name, kind in zip(on, kinds, strict=True):
        if name not in events.columns:
            remedy = f"name columns of the events{nearest(name, events.columns)}"
            raise OptionInvalid(name=operator, option="on", given=name, remedy=remedy, where=where)
        given, own = F.col(quoted(name)), events.schema[name].dataType
        if own == kind:
            found.append(alike(given, kind))
            continue
        cast = given.try_cast(kind)
        found.append(alike(cast if isinstance(own, StringType) else F.when(cast.try_cast(own) == given, cast), kind))
        try:
            events.select(found[-1])
        except PySparkException:
            remedy = f"it is a {own.simpleString()}, and the table's key a {kind.simpleString()}"
            raise OptionInvalid(name=operator, option="on", given=name, remedy=remedy, where=where) from None
    return found


def keyed(table: CapturedTable, records: DataFrame, kinds: dict[str, DataType]) -> tuple[DataFrame, list[Column]]:
    """The table's records and, read from the JSON of their keys, what they are known by."""
    columns = {column.name: column for column in table.columns}
    parts = replace(table, columns=tuple(columns[part] for part in table.key), shapes=())
    prepared = latest.prepared(records)
    texts = prepared.withColumn(_KEY, F.col("key").cast("string"))
    lacking = F.concat(
        F.lit(f"{reading.UNREADABLE} {table.name} "),
        *("partition", F.lit(":"), "offset"),
        F.lit(f" its key has no value for {', '.join(parts.key)}"),
    )
    keys = []
    for part in parts.key:
        held = F.col(f"{_KEY}.{quoted(part)}")
        lacks = F.col("key").isNotNull() & held.isNull()
        keys.append(alike(F.when(lacks, F.raise_error(lacking)).otherwise(held).cast(kinds[part]), kinds[part]))
    return reading.structs(texts, parts, _KEY), keys


def _typed(found: DataFrame, events: DataFrame, table: CapturedTable, names: dict[str, str]) -> DataFrame:
    """The event's columns as they were, then the row's."""
    own = found.select(F.col(kernel.EVENT).alias(_EVENT), F.col(kernel.ROW).alias(_ROW))
    rows = reading.structs(own, table, _ROW)
    return rows.select(
        *taken_out(_EVENT, events.schema),
        *(F.col(f"{_ROW}.{quoted(name)}").alias(new) for name, new in names.items()),
    )


def _joined(
    events: DataFrame, keys: list[Column], table: DataFrame, parts: list[str], names: dict[str, str], how: How
) -> DataFrame:
    """The same with a table that stays as it is. A key that is there twice would make two events of one."""
    row = F.struct(*(F.col(quoted(name)).alias(new) for name, new in names.items())) if names else F.lit(True)
    told = F.concat(F.lit(f"the table has several rows with the same {', '.join(parts)}: "), F.to_json(_KEY))
    held = table.groupBy(
        F.struct(*(F.col(quoted(part)).alias(f"k{place}") for place, part in enumerate(parts))).alias(_KEY)
    )
    rows = held.agg(F.first(row).alias(_ROW), F.count(F.lit(1)).alias(_TIMES)).where(
        F.when(F.col(_TIMES) > 1, F.raise_error(told).cast("boolean")).otherwise(True)
    )
    fits = F.lit(True)
    for place, key in enumerate(keys):
        fits = fits & (key == F.col(f"{_KEY}.k{place}"))
    joined = events.join(F.broadcast(rows), fits, "inner" if how == "inner" else "left_outer")
    return joined.select(
        *(F.col(quoted(name)) for name in events.columns),
        *(F.col(f"{_ROW}.{quoted(new)}").alias(new) for new in names.values()),
    )
