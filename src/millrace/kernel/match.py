"""Patterns of events, by key and in the order of their times; `model/match.py` says what they must do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, DoubleType, LongType

from millrace.kernel.calling import operator, packed, quoted, unpacked, words
from millrace.kernel.kept import About, told_of
from millrace.kernel.told import KIND, LATE_US, ROW
from millrace.kernel.values import carried, held_type, restored

# Beside the names of a user's keys and measures.
START, END = "__start", "__end"
# A flag is a bit of a long.
MOST_VARIABLES = 62
# So many rows of a key may each be the beginning of a match that is not yet decided. Each costs some bytes, which are
# written again with every row of the key.
MOST_PARTIAL = 100_000


@dataclass(frozen=True)
class MatchSettings:
    """`pattern` as `flow/places.py` tells it. `after` is "past last row", "next row", or "first" or "last" with the
    number of a variable. `arrival`: rows are taken as they come. `keeps_refused`: refused rows come out whole."""

    pattern: dict[str, Any]
    within_us: int
    after: str
    after_variable: int
    arrival: bool
    keeps_refused: bool
    most_partial: int = MOST_PARTIAL


@dataclass(frozen=True, eq=False)
class Measure:
    """An aggregate of the rows that are the variable with this number, or of all (None); of a value, or of how many
    there are (None)."""

    kind: str
    variable: int | None
    of: Column | None


def matches(
    rows: DataFrame,
    *,
    keys: Mapping[str, Column],
    time: Column,
    conditions: Sequence[Column],
    measures: Mapping[str, Measure],
    settings: MatchSettings,
    about: About | None = None,
) -> DataFrame:
    """Rows to the matches among them, and what became of late rows. `conditions` say of each variable of the pattern
    whether a row is one.

    Columns: the keys, START, END (timestamps), the measures, KIND, LATE_US and, with `keeps_refused`, ROW. Of a batch
    all rows count, and nothing is late.
    """
    spark = rows.sparkSession
    names = [f"k{place}" for place in range(len(keys))] or ["k0"]
    slots = _Slots()
    types = {name: _type(rows, each) for name, each in measures.items()}
    told = {
        "pattern": settings.pattern,
        "withinUs": settings.within_us,
        "after": settings.after,
        "afterVariable": settings.after_variable,
        "arrival": settings.arrival,
        "keepsRefused": settings.keeps_refused,
        "most": settings.most_partial,
        "measures": [
            {
                "kind": each.kind,
                "type": held_type(each.kind, types[name]).json(),
                "variable": -1 if each.variable is None else each.variable,
                "slot": slots.of(each, types[name]),
            }
            for name, each in measures.items()
        ],
    }
    whole = F.struct(*(F.col(quoted(name)) for name in rows.columns))
    flat = rows.select(
        *(key.alias(name) for name, key in zip(names, keys.values() or [F.lit(0)], strict=True)),
        F.unix_micros(time).alias("time"),
        _flags(conditions).alias("flags"),
        *(column.alias(f"v{slot}") for slot, (column, _) in enumerate(slots.held.values())),
        *([packed(whole, rows.schema).alias("row")] if settings.keeps_refused else []),
    )
    told["slots"] = [type_.json() for _, type_ in slots.held.values()]
    told |= {"names": list(slots.names), "own": [type_.json() for type_ in slots.names.values()]}
    told |= {"variables": [f"#{number}" for number in range(len(conditions))], **told_of(about, "match")}
    kernel = operator(spark, "Match")
    run = kernel.stream if rows.isStreaming else kernel.batch
    found = DataFrame(run(flat._jdf, len(names), json.dumps(told)), spark)
    return found.select(
        *(F.col(name).alias(key) for name, key in zip(names, keys, strict=False)),
        F.timestamp_micros("start").alias(START),
        F.timestamp_micros("end").alias(END),
        *(
            restored(F.col(f"r{place}"), each.kind, types[name]).alias(name)
            for place, (name, each) in enumerate(measures.items())
        ),
        F.col("kind").alias(KIND),
        F.col("lateUs").alias(LATE_US),
        *([unpacked(F.col("row"), rows.schema).alias(ROW)] if settings.keeps_refused else []),
    )


def _flags(conditions: Sequence[Column]) -> Column:
    """The first condition's bit is 1. What is null is not so."""
    bits = [F.when(each, F.lit(1 << bit)).otherwise(0).cast("long") for bit, each in enumerate(conditions)]
    return reduce(lambda one, two: one.bitwiseOR(two), bits)


def _type(rows: DataFrame, measure: Measure) -> DataType:
    return LongType() if measure.of is None else rows.select(measure.of).schema[0].dataType


class _Slots:
    """The values that rows carry, each once, however many measures look at it."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[Column, DataType]] = {}
        # As people know them, with the types that they had.
        self.names: dict[str, DataType] = {}

    def of(self, measure: Measure, type_: DataType) -> int:
        if measure.of is None:
            return -1
        held = held_type(measure.kind, type_)
        if measure.kind == "count":
            seen = measure.of if isinstance(type_, BooleanType) else measure.of.isNotNull()
            value = F.when(seen, F.lit(1).cast("long"))
        else:
            value = carried(measure.of, type_)
            if measure.kind == "avg" and isinstance(held, LongType):
                value, held = value.cast("double"), DoubleType()
        if str(value) not in self.held:
            counted = measure.kind == "count"
            name = f"count of {words(measure.of)}" if counted else words(measure.of)
            self.names[name if name not in self.names else f"{name} as {held.simpleString()}"] = (
                held if counted else type_
            )
        self.held.setdefault(str(value), (value, held))
        return list(self.held).index(str(value))
