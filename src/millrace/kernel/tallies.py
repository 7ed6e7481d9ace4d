"""What an aggregate of signed rows holds of a group: measures share what they can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StructField,
    StructType,
)

from millrace.kernel.calling import packed, words
from millrace.kernel.top import Unordered, ordered
from millrace.kernel.values import Unfit, carried, held_type

MeasureKind: TypeAlias = Literal["count", "sum", "avg", "min", "max", "distinct", "array"]


@dataclass(frozen=True, eq=False)
class Measure:
    """What is told of a group. `count` without a column counts rows; otherwise those where none of the columns is null
    count, and `distinct` says how many different ones there are. The others look at one column. `array` has all of its
    values, nulls too, in an order: columns, whether the greatest is first and whether nulls are."""

    name: str
    kind: MeasureKind
    of: tuple[Column, ...] = ()
    order: tuple[tuple[Column, bool, bool], ...] = ()


@dataclass
class Tallied:
    """`values` are the columns that the kernel sees, `results` those that it tells."""

    values: list[Column] = field(default_factory=list)
    results: list[StructField] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    state: str = ""


def tallied(rows: DataFrame, measures: Sequence[Measure]) -> Tallied:
    """The measures of rows; raises `Unfit` where a type does not allow one."""
    found = Tallied()
    tallies: list[dict[str, Any]] = []
    wanted: list[dict[str, Any]] = []
    known: list[str] = []
    says: list[str] = []
    for measure in measures:
        type_ = rows.select(*measure.of).schema[0].dataType if measure.of else LongType()
        tally = -1
        if measure.of:
            kind, value, held = _tally(rows, measure, type_)
            same = f"{kind} {held.simpleString()} {', '.join(words(each) for each in measure.of)}"
            if measure.order:
                ways = (f"{words(each)} {descending} {first}" for each, descending, first in measure.order)
                same += f" in {', '.join(ways)}"
            if same not in known:
                known.append(same)
                tallies.append({"kind": kind, "place": len(found.values), "type": held.jsonValue()})
                found.values.append(value.alias(f"v{len(found.values)}"))
            tally = known.index(same)
        says.append(f"{measure.name} {measure.kind} {known[tally] if measure.of else '*'}")
        wanted.append({"kind": measure.kind, "tally": tally, "type": type_.jsonValue()})
        found.results.append(StructField(measure.name, _result(measure.kind, type_)))
    found.settings = {"tallies": tallies, "wanted": wanted, "values": len(found.values)}
    found.state = "; ".join(says)
    return found


def _tally(rows: DataFrame, measure: Measure, type_: DataType) -> tuple[str, Column, DataType]:
    """What is held for a measure: as what, of which value, and that one's type."""
    there = F.lit(True)
    for column in measure.of:
        there = there & column.isNotNull()
    if measure.kind == "count":
        return "count", F.when(there, F.lit(True)), LongType()
    if measure.kind == "array":
        value = F.struct(measure.of[0].alias("value"))
        schema = StructType([StructField("value", type_)])
        pair = F.struct(in_order(rows, measure.order).alias("order"), packed(value, schema).alias("row"))
        parts = StructType([StructField("order", BinaryType()), StructField("row", BinaryType())])
        return "list", packed(pair, parts), type_
    if measure.kind != "distinct" and len(measure.of) > 1:
        raise Unfit(f"{measure.kind} of several columns")
    if measure.kind in ("sum", "avg"):
        held = held_type(measure.kind, type_)
        return "sum", carried(measure.of[0], type_), held
    try:
        return "set", F.when(there, ordered(rows, [(column, False) for column in measure.of])), type_
    except Unordered as unordered:
        raise Unfit(f"{measure.kind} of {unordered}") from None


def in_order(rows: DataFrame, order: Sequence[tuple[Column, bool, bool]]) -> Column:
    """Bytes in an order: columns, whether the greatest is first and whether nulls are."""
    ways: list[tuple[Column, bool]] = []
    for column, descending, nulls_first in order:
        if nulls_first:
            ways.append((column.isNotNull(), False))
        ways.append((column, descending))
    try:
        return ordered(rows, ways)
    except Unordered as unordered:
        raise Unfit(f"an order of {unordered}") from None


def _result(kind: MeasureKind, type_: DataType) -> DataType:
    """As Spark has it."""
    if kind in ("count", "distinct"):
        return LongType()
    if kind in ("min", "max"):
        return type_
    if kind == "array":
        return ArrayType(type_)
    if isinstance(type_, DecimalType):
        more = 10 if kind == "sum" else 4
        return DecimalType(min(38, type_.precision + more), min(38, type_.scale + (0 if kind == "sum" else 4)))
    held = held_type(kind, type_)
    return held if kind == "sum" else DoubleType()
