"""Windows of event time with late rows told apart; `model/windows.py` says what they must do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType, DecimalType, LongType, StringType

from millrace.kernel.calling import operator, quoted
from millrace.kernel.kept import About, told_of
from millrace.kernel.sketches import Sketch
from millrace.kernel.told import KIND, LATE_US, ROW
from millrace.kernel.values import carried, hashed, held_type, restored

# What the operator itself calls a window's edges, which are part of its key.
EDGES = ("start", "end")
# Beside the names of a user's keys and aggregates.
START, END, REPLACES = "__start", "__end", "__replaces"

# How many rows were left of an epoch's when they were added up, in an observation whose name begins so.
COMBINED_METRIC = "millrace.combined."
# How a column tells Combining.java what is to be done with it.
_COMBINE = "millrace.combine"
# By which Spark, and the kernel, widen a decimal for its sum; and the most that there can be.
_MORE_DIGITS, _MOST_DIGITS = 10, 38

_numbers = count(1)


@dataclass(frozen=True)
class WindowSettings:
    """`gap_us` makes sessions; 0 means that the rows come with their windows. `once`: results are told when the window
    has closed, otherwise with each epoch that changes them. `keeps_refused`: refused rows come out whole. `slices`:
    size and distance (µs) of windows whose rows are kept once, however many windows they are in."""

    gap_us: int
    grace_us: int
    once: bool
    keeps_refused: bool
    slices: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Value:
    """An aggregate: its kind, what it looks at, and how much it holds if it is only about right."""

    kind: str
    column: Column
    sketch: Sketch | None = None


class Edges(Protocol):
    """Where windows begin and end."""

    def of(self, time: Column) -> Column:
        """The windows of an event, an array of (start, end) in µs, by their ends."""

    def step(self, time: Column) -> Column | None:
        """The latest begin (µs) of a window of the event, if that alone says which ones they are."""


@dataclass(frozen=True)
class _Part:
    """A column that carries a value to the kernel, and how the values of several rows become one, if Spark can tell."""

    name: str
    column: Column
    how: str | None


def windows(
    rows: DataFrame,
    *,
    keys: Mapping[str, Column],
    time: Column,
    edges: Edges | None,
    values: Mapping[str, Value],
    settings: WindowSettings,
    about: About | None = None,
) -> DataFrame:
    """Rows of a stream to the results of their windows, and what became of late rows.

    `edges` gives a row's windows; none for sessions. `values` are the aggregates. Columns: the keys, START, END
    (timestamps), the aggregates, REPLACES, KIND, LATE_US and, with `keeps_refused`, ROW.
    """
    spark = rows.sparkSession
    names = [f"k{place}" for place in range(len(keys))] or ["k0"]
    by = [_Part(name, key, "key") for name, key in zip(names, keys.values() or [F.lit(0)], strict=True)]
    types = [rows.select(value.column).schema[0].dataType for value in values.values()]
    looked = [(value.kind, value.column, type_) for value, type_ in zip(values.values(), types, strict=True)]
    parts = [part for place, each in enumerate(looked) for part in _parts(f"a{place}", *each)]
    kernel = operator(spark, "Windows")
    flat = _flat(rows, by, parts, time, edges, settings)
    told = {
        "keys": names,
        "values": [f"a{place}" for place in range(len(looked))],
        "kinds": [kind for kind, _, _ in looked],
        "types": [held_type(kind, type_).json() for kind, _, type_ in looked],
        "sketches": [value.sketch and value.sketch.told() for value in values.values()],
        "gapUs": settings.gap_us,
        "graceUs": settings.grace_us,
        "once": settings.once,
        "keepsRefused": settings.keeps_refused,
        "sizeUs": settings.slices[0],
        "everyUs": settings.slices[1],
        "names": list(values),
        "own": [type_.json() for _, _, type_ in looked],
        **told_of(about, "window"),
    }
    found = DataFrame(kernel.stream(flat._jdf, json.dumps(told)), spark)
    return found.select(
        *(F.col(name).alias(key) for name, key in zip(names, keys, strict=False)),
        F.timestamp_micros("start").alias(START),
        F.timestamp_micros("end").alias(END),
        *(
            restored(F.col(f"r{place}"), kind, type_).alias(name)
            for place, (name, (kind, _, type_)) in enumerate(zip(values, looked, strict=True))
        ),
        F.transform(
            "replaces",
            lambda window: F.struct(
                F.timestamp_micros(window["start"]).alias("start"), F.timestamp_micros(window["end"]).alias("end")
            ),
        ).alias(REPLACES),
        F.col("kind").alias(KIND),
        F.col("lateUs").alias(LATE_US),
        *([F.col("row").alias(ROW)] if settings.keeps_refused else []),
    )


def _flat(
    rows: DataFrame, by: list[_Part], parts: list[_Part], time: Column, edges: Edges | None, settings: WindowSettings
) -> DataFrame:
    """A row for each window of a row, or of several rows that are added up already; with slices, for each slice."""
    one = _Part("rows", F.lit(1).cast("long"), "sum")
    step = None if edges is None else edges.step(time)
    sliced = settings.slices != (0, 0)
    if edges is not None and step is not None and not settings.keeps_refused and all(part.how for part in parts):
        combined = _combined(rows, [*by, _Part("step", step, "key"), *parts, one])
        if sliced:
            return combined.withColumnRenamed("rows", "firsts")
        return _exploded(combined, edges.of(F.timestamp_micros("step")), [*by, *parts])
    at = _Part("time", F.unix_micros(time), None)
    whole = F.struct(*(F.col(quoted(name)) for name in rows.columns))
    kept = [*by, at, *parts, *([_Part("row", whole, None)] if settings.keeps_refused else [])]
    if sliced and step is not None:
        kept.append(_Part("step", step, None))
    if edges is None or sliced:
        return rows.select(*(part.column.alias(part.name) for part in kept), one.column.alias("firsts"))
    placed = _Part("edges", edges.of(time), None)
    prepared = rows.select(*(part.column.alias(part.name) for part in [*kept, one, placed]))
    return _exploded(prepared, F.col("edges"), kept)


def _combined(rows: DataFrame, parts: list[_Part]) -> DataFrame:
    """One row for those of a task with the same keys: see `Combining.java`."""
    operator(rows.sparkSession, "Combining").install(rows.sparkSession._jsparkSession)
    marked = rows.select(*(part.column.alias(part.name, metadata={_COMBINE: part.how}) for part in parts))
    # The observation keeps Spark from taking the projection for one: a column that is 1 in every row is 1 above it too.
    return marked.observe(f"{COMBINED_METRIC}{next(_numbers)}", F.count(F.lit(1)).alias("rows"))


def _exploded(rows: DataFrame, edges: Column, kept: list[_Part]) -> DataFrame:
    """A row that stands for several is the first window of all of them, or of none."""
    return rows.select("*", F.posexplode(edges).alias("place", "edge")).select(
        *(part.name for part in kept),
        "edge.start",
        "edge.end",
        F.when(F.col("place") == 0, F.col("rows")).otherwise(F.lit(0)).alias("firsts"),
    )


def _parts(name: str, kind: str, column: Column, type_: DataType) -> list[_Part]:
    """A value as one of the types that the kernel holds; of a mean, the sum and how many it is of."""
    held = held_type(kind, type_)
    if kind == "count":
        seen = column if isinstance(type_, BooleanType) else column.isNotNull()
        return [_Part(name, F.when(seen, F.lit(1).cast("long")), "sum")]
    if kind == "approx_distinct":
        return [_Part(name, hashed(column), None)]
    value = carried(column, type_)
    if kind == "avg":
        counted = _Part(f"{name}n", F.when(value.isNotNull(), F.lit(1).cast("long")), "sum")
        summed = value.cast("double") if isinstance(held, LongType) else value
        return [_summed(name, summed, held), counted]
    if kind == "sum":
        return [_summed(name, value, held)]
    native = kind in ("min", "max") and not isinstance(held, StringType | BinaryType)
    return [_Part(name, value, kind if native else None)]


def _summed(name: str, value: Column, held: DataType) -> _Part:
    if not isinstance(held, DecimalType):
        return _Part(name, value, "sum")
    if held.precision + _MORE_DIGITS > _MOST_DIGITS:
        return _Part(name, value, None)
    return _Part(name, value.cast(DecimalType(held.precision + _MORE_DIGITS, held.scale)), "sum")
