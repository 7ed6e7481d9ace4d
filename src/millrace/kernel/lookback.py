"""Each event with aggregates over its key's events in the time before it; `model/lookback.py` says what it must do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NumericType

from millrace.kernel.calling import operator, quoted, words
from millrace.kernel.kept import About, told_of
from millrace.kernel.told import KIND, LATE_US, ROW
from millrace.kernel.values import Unfit, carried, hashed, held_type, restored

# Beside the names of a user's columns: whether a result was told before, with other values.
CORRECTED = "__corrected"

# A key's events are kept in parts of at most so many, these in parts of so many parts, and so on: an event rewrites one
# of each, some kilobytes in all. Of how many different values a part still keeps them all at hand.
MOST_EVENTS, MOST_PARTS, MOST_VALUES = 64, 32, 100


@dataclass(frozen=True)
class Asked:
    """An aggregate: what it looks at (of a position latitude and longitude), how far back, and of last_n how many. Of
    approx_distinct `most` is the size of its sketch."""

    kind: str
    columns: tuple[Column, ...]
    over_us: int
    most: int = 0


@dataclass
class Shape:
    """What is kept of each event (slots; `own` are the types of what they were made of), and for parts of a key's
    events (measures: what aggregates differ in, besides how far back they look). Its words change whenever its bytes
    would be misread."""

    slots: dict[str, tuple[Column, DataType]] = field(default_factory=dict)
    own: dict[str, DataType] = field(default_factory=dict)
    measures: dict[tuple[str, int, int], DataType] = field(default_factory=dict)
    questions: list[tuple[int, int]] = field(default_factory=list)

    @staticmethod
    def of(rows: DataFrame, asked: Sequence[Asked]) -> Shape:
        shape = Shape()
        for each in asked:
            type_ = rows.select(each.columns[0]).schema[0].dataType
            name, slot = _slot(rows, each)
            shape.slots.setdefault(name, (slot, rows.select(slot).schema[0].dataType))
            shape.own.setdefault(name, BooleanType() if each.kind == "count" else type_)
            measure = (each.kind, list(shape.slots).index(name), each.most)
            shape.measures.setdefault(measure, type_)
            shape.questions.append((list(shape.measures).index(measure), each.over_us))
        return shape

    def __str__(self) -> str:
        slots = list(self.slots)
        held = [f"{kind} {most} of {slots[slot]}" if most else f"{kind} of {slots[slot]}"
                for kind, slot, most in self.measures]  # fmt: skip
        types = (f"{name} {type_.simpleString()}" for name, (_, type_) in self.slots.items())
        return f"{', '.join(held)}; from {', '.join(types)}"


def lookback(
    rows: DataFrame,
    *,
    keys: Mapping[str, Column],
    time: Column,
    asked: Mapping[str, Asked],
    grace_us: int,
    corrects: bool,
    closed: bool = False,
    about: About | None = None,
) -> DataFrame:
    """Events of a stream, each with its aggregates. With `corrects`, an event that comes out of order also gives those
    behind it whose results it changes. `closed`: they are results of windows, with the time at which each ended.
    Columns: ROW (the event), the aggregates, CORRECTED, KIND (ALLOWED is a result too) and LATE_US."""
    spark = rows.sparkSession
    shape = Shape.of(rows, list(asked.values()))
    whole = F.struct(*(F.col(quoted(name)) for name in rows.columns))
    flat = rows.select(
        *(key.alias(f"k{place}") for place, key in enumerate(keys.values() or [F.lit(0)])),
        F.unix_micros(time).alias("time"),
        whole.alias("row"),
        *(column.alias(f"s{place}") for place, (column, _) in enumerate(shape.slots.values())),
    )
    told = {
        "keys": len(keys) or 1,
        "slots": [type_.json() for _, type_ in shape.slots.values()],
        "measures": [{"kind": kind, "slot": slot, "most": most} for kind, slot, most in shape.measures],
        "questions": [{"measure": measure, "overUs": over_us} for measure, over_us in shape.questions],
        "graceUs": grace_us,
        "corrects": corrects,
        "closed": closed,
        "mostEvents": MOST_EVENTS,
        "mostParts": MOST_PARTS,
        "mostValues": MOST_VALUES,
        "names": list(shape.slots),
        "own": [type_.json() for type_ in shape.own.values()],
        **told_of(about, "lookback"),
    }
    found = DataFrame(operator(spark, "Lookback").stream(flat._jdf, json.dumps(told)), spark)
    types = [list(shape.measures.items())[measure] for measure, _ in shape.questions]
    return found.select(
        F.col("row").alias(ROW),
        *(
            _result(F.col(f"r{place}"), measure[0], type_).alias(name)
            for place, (name, (measure, type_)) in enumerate(zip(asked, types, strict=True))
        ),
        F.col("corrected").alias(CORRECTED),
        F.col("kind").alias(KIND),
        F.col("lateUs").alias(LATE_US),
    )


def _slot(rows: DataFrame, asked: Asked) -> tuple[str, Column]:
    """What an aggregate looks at, and how it is carried: alike for all that look at the same."""
    types = [rows.select(column).schema[0].dataType for column in asked.columns]
    names = ", ".join(words(column) for column in asked.columns)
    if asked.kind == "count":
        (column,) = asked.columns
        seen = column if isinstance(types[0], BooleanType) else column.isNotNull()
        return f"if {names}", F.when(seen, F.lit(True))
    if asked.kind in ("distance", "speed"):
        if not all(isinstance(type_, NumericType) for type_ in types):
            raise Unfit(f"{asked.kind} of {', '.join(type_.simpleString() for type_ in types)}")
        degrees = [column.cast("double") for column in asked.columns]
        known = degrees[0].isNotNull() & degrees[1].isNotNull()
        return f"({names})", F.when(known, F.struct(*degrees))
    if asked.kind == "approx_distinct":
        return f"hash of {names} {types[0].simpleString()}", hashed(asked.columns[0])
    held_type(asked.kind, types[0])  # or it is unfit
    return names, carried(asked.columns[0], types[0])


def _result(result: Column, kind: str, type_: DataType) -> Column:
    if kind in ("distance", "speed"):
        return result
    if kind == "last_n":
        return F.transform(result, lambda value: restored(value, kind, type_))
    return restored(result, kind, type_)
