"""From the JSON of a topic to a table's typed columns: in Spark (`typed`, `structs`) and in Python (`decoded`).

What holds: a value that is there and cannot become its type raises, and so does a row whose columns nobody knows; null
means that there is null. Debezium's own ways to write a value (days, microseconds) are read besides `Exact.java`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millrace.capture import values
from millrace.capture.database import CapturedTable
from millrace.capture.database import Column as TableColumn
from millrace.capture.printed import WHOLE
from millrace.errors import RowUnreadable, TableChanged

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# How what is raised inside Spark begins, so that the engine knows it again.
UNREADABLE = "MR-ROW-UNREADABLE"
CHANGED = "MR-TABLE-CHANGED"

Shape = tuple[str, ...]

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_PARSED, _CORRUPT = "__parsed_", "__corrupt"


def sources(table: CapturedTable, shape: Shape) -> dict[str, str | None]:
    """Under which name a row of this shape holds each column; None: it does not, and the column's default counts.

    A name may have been another column's before: whoever is missing and once had it takes it.
    """
    taken: dict[str, str] = {}
    for column in table.columns:
        if column.name not in shape:
            taken |= {name: column.name for name in column.was if name in shape and name not in taken}
    held = {column: name for name, column in taken.items()}
    return {
        column.name: held.get(column.name, column.name if column.name in shape and column.name not in taken else None)
        for column in table.columns
    }


def typed(frame: DataFrame, table: CapturedTable, row: str = "row") -> DataFrame:
    """The table's columns instead of the JSON column `row`, and what else the frame has under names of its own."""
    from pyspark.sql import functions as F

    names = {column.name.casefold() for column in table.columns}
    kept = [quoted(name) for name in frame.columns if name != row and name.casefold() not in names]
    parsed = _parsed(frame.select(*kept, quoted(row)), table, row)
    return parsed.select(*_columns(F.col(quoted(_PARSED + row)), table), *kept)


def narrowed(table: CapturedTable, wanted: Collection[str]) -> tuple[CapturedTable, tuple[str, ...]]:
    """The table with its key, these columns, and whichever had a name of theirs before; and all other names that its
    rows have known: without them, rows say the same."""
    names = {*table.key, *wanted} or {table.columns[0].name}
    kept: tuple[TableColumn, ...] = ()
    while len(kept) < len(found := tuple(each for each in table.columns if names & {each.name, *each.was})):
        kept = found
        names |= {name for each in kept for name in (each.name, *each.was)}
    known = [name for each in table.columns for name in (each.name, *each.was)]
    known += [name for shape in table.shapes for name in shape]
    left_out = tuple(name for name in dict.fromkeys(known) if name not in names)
    shapes = dict.fromkeys(tuple(name for name in shape if name in names) for shape in table.shapes)
    return replace(table, columns=kept, shapes=tuple(shapes)), left_out


def structs(frame: DataFrame, table: CapturedTable, *rows: str, left_out: Collection[str] = ()) -> DataFrame:
    """The frame with these JSON columns as structs of the table's columns; null stays null. Of a narrowed table, rows
    may have what is `left_out` of it, or not."""
    from pyspark.sql import functions as F

    parsed = _parsed(frame, table, *rows, left_out=left_out)
    made = {row: F.struct(*_columns(F.col(quoted(_PARSED + row)), table)) for row in rows}
    return parsed.withColumns(
        {row: F.when(F.col(quoted(row)).isNotNull(), struct) for row, struct in made.items()}
    ).drop(*(_PARSED + row for row in rows))


def _parsed(frame: DataFrame, table: CapturedTable, *rows: str, left_out: Collection[str] = ()) -> DataFrame:
    """The frame and, for each JSON column, a struct of `row` (wire types) and `keys` (its names), which were checked.

    In steps of their own, or Spark would parse the JSON once for every column.
    """
    from pyspark.sql import functions as F

    wires: dict[str, str] = {}
    for column in table.columns:
        for name in (column.name, *column.was):
            other = wires.setdefault(name, wire(column))
            wires[name] = other if other == wire(column) else "string"
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in (*wires.items(), (_CORRUPT, "string")))
    steps = frame
    for row in rows:
        text = F.col(quoted(row))
        parts = [F.from_json(text, ddl, {"columnNameOfCorruptRecord": _CORRUPT}).alias("row")]
        keys = F.json_object_keys(text)
        keys = F.array_except(keys, F.array(*map(F.lit, left_out))) if left_out else keys
        parts += [keys.alias("keys")] if table.shapes else []
        steps = steps.withColumn(_PARSED + row, F.struct(*parts))
    return steps.withColumns({_PARSED + row: _understood(steps, table, row) for row in rows})


def _understood(frame: DataFrame, table: CapturedTable, row: str) -> Column:
    """Raises for a row that has other columns than are known, or values of other types."""
    from pyspark.sql import functions as F

    parsed, given = frame[quoted(_PARSED + row)], F.col(quoted(row)).isNotNull()
    known = _is_one_of(parsed["keys"], table.shapes) if table.shapes else F.lit(True)
    keys = F.to_json(parsed["keys"]) if table.shapes else F.lit("[]")
    changed = F.raise_error(F.concat(F.lit(f"{CHANGED} {table.name} "), keys))
    parts = [F.get_json_object(quoted(row), f"$['{part}']").alias(part) for part in table.key]
    place = _place(F.struct(*parts)) if parts else F.lit("?")
    told = F.concat(F.lit(f"{UNREADABLE} {table.name} "), place, F.lit(" its values are not of its columns' types"))
    return (
        F.when(known & parsed["row"][_CORRUPT].isNull(), parsed)
        .when(given & ~known, changed)
        .when(given, F.raise_error(told))
    )


def _place(key: Column) -> Column:
    """A key as one word."""
    from pyspark.sql import functions as F

    return F.translate(F.to_json(key), " ", "_")


def _is_one_of(keys: Column, shapes: tuple[Shape, ...]) -> Column:
    from pyspark.sql import functions as F

    found = F.lit(False)
    for shape in reversed(shapes):
        found = (keys == F.array(*map(F.lit, shape))) | found
    return found


def wire(column: TableColumn) -> str:
    """What Spark reads from the JSON before the value becomes its type."""
    if column.spark.startswith("array<") or column.type.endswith("[]"):
        return "array<string>"
    if column.spark in _INTEGERS:
        return "bigint"
    return column.spark if column.spark in ("float", "double", "boolean") else "string"


def _columns(parsed: Column, table: CapturedTable) -> list[Column]:
    return [_value(parsed, column, table).alias(column.name) for column in table.columns]


def _value(parsed: Column, column: TableColumn, table: CapturedTable) -> Column:
    """The column's value, from wherever a row of each shape holds it."""
    from pyspark.sql import functions as F

    shapes_by_name: dict[str | None, list[Shape]] = {}
    for shape in table.shapes or (tuple(each.name for each in table.columns),):
        shapes_by_name.setdefault(sources(table, shape)[column.name], []).append(shape)
    found = {name: _held(parsed, name, column, table) for name in shapes_by_name}
    *others, last = shapes_by_name
    value = found[last]
    for name in others:
        value = F.when(_is_one_of(parsed["keys"], tuple(shapes_by_name[name])), found[name]).otherwise(value)
    return value


def _held(parsed: Column, name: str | None, column: TableColumn, table: CapturedTable) -> Column:
    from pyspark.sql import functions as F

    if name is not None:
        held = parsed["row"][name]
    elif column.default is None:
        return F.lit(None).cast(column.spark)
    else:
        held = F.from_json(F.lit(f'{{"x":{column.default}}}'), f"x {wire(column)}")["x"]

    def told(value: Column) -> Column:
        """Raises for a value that is none of the type: table, key, column and value."""
        parts = [parsed["row"][part].alias(part) for part in table.key]
        place = _place(F.struct(*parts)) if parts else F.lit("?")
        reason = F.concat(F.lit(f"{column.name} is no {column.spark}: "), F.substring(value.cast("string"), 1, 100))
        return F.raise_error(F.concat(F.lit(f"{UNREADABLE} {table.name} "), place, F.lit(" "), reason))

    return _converted(held, column, told)


def _converted(held: Column, column: TableColumn, told: Callable[[Column], Column]) -> Column:
    from pyspark.sql import functions as F

    if wire(column) != "array<string>":
        return _checked(held, column.spark, column, told)
    first = F.get(held, F.lit(0))
    whole = first.startswith(WHOLE)
    if column.spark == "string":  # an array that was declared with several dimensions
        return F.when(whole, F.substr(first, F.lit(2))).otherwise(F.to_json(held))
    element = column.spark.removeprefix("array<").removesuffix(">")
    if element == "string":
        return F.when(whole, told(F.substr(first, F.lit(2)))).otherwise(held)
    return F.transform(held, lambda item: _checked(item, element, column, told))


def _checked(held: Column, spark: str, column: TableColumn, told: Callable[[Column], Column]) -> Column:
    from pyspark.sql import functions as F

    if wire(column) == spark and not spark.startswith("array<"):
        return values.clock(held) if values.is_time(column) else held
    value = values.in_spark(held, spark)
    return F.when(held.isNotNull() & value.isNull(), told(held)).otherwise(value)


def decoded(table: CapturedTable, text: str) -> dict[str, Any]:
    """A row's JSON as Python values, by the same rules. Of dates and times that Python's own types cannot hold (before
    the year 1, after 9999, infinity) it gives the ISO 8601 text."""
    raw = json.loads(text)
    if table.shapes and tuple(raw) not in table.shapes:
        raise TableChanged(table=table.name, columns=json.dumps(list(raw)))
    held = sources(table, tuple(raw))
    row: dict[str, Any] = {}
    for column in table.columns:
        name = held[column.name]
        value = json.loads(column.default or "null") if name is None else raw[name]
        try:
            row[column.name] = values.in_python(value, column)
        except (ValueError, ArithmeticError, TypeError):
            key = json.dumps({part: raw.get(part) for part in table.key})
            reason = f"{column.name} is no {column.spark}: {str(value)[:100]}"
            raise RowUnreadable(table=table.name, place=key, reason=reason) from None
    return row


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
