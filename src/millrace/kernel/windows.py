"""Windows of event time with late rows told apart; `model/windows.py` says what they must do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StringType,
    TimestampType,
)

from millrace.kernel.calling import operator, quoted

RESULT, REFUSED, REFUSED_TOO, ALLOWED = range(4)
# What the operator itself calls a window's edges, which are part of its key.
EDGES = ("start", "end")
# Beside the names of a user's keys and aggregates.
START, END, REPLACES, KIND, LATE_US, ROW = "__start", "__end", "__replaces", "__kind", "__late_us", "__row"


@dataclass(frozen=True)
class WindowSettings:
    """`gap_us` makes sessions; 0 means that the rows come with their windows. `once`: results are told when the window
    has closed, otherwise with each epoch that changes them. `keeps_refused`: refused rows come out whole."""

    gap_us: int
    grace_us: int
    once: bool
    keeps_refused: bool


class Unfit(Exception):
    """An aggregate over a type that it cannot take."""


def windows(
    rows: DataFrame,
    *,
    keys: Mapping[str, Column],
    time: Column,
    edges: Column | None,
    values: Mapping[str, tuple[str, Column]],
    settings: WindowSettings,
) -> DataFrame:
    """Rows of a stream to the results of their windows, and what became of late rows.

    `edges` gives a row's windows as an array of (start, end) in µs, by their ends; none for sessions. `values` are the
    aggregates: under each name its kind and what it looks at. Columns: the keys, START, END (timestamps), the
    aggregates, REPLACES, KIND, LATE_US and, with `keeps_refused`, ROW.
    """
    spark = rows.sparkSession
    names = [f"k{place}" for place in range(len(keys))] or ["k0"]
    columns = [key.alias(name) for key, name in zip(keys.values() or [F.lit(0)], names, strict=True)]
    inputs = {f"a{place}": each for place, each in enumerate(values.values())}
    types = {name: rows.select(column).schema[0].dataType for name, (_, column) in inputs.items()}
    carried = [_carried(kind, column, types[name]).alias(name) for name, (kind, column) in inputs.items()]
    whole = [F.struct(*(F.col(quoted(name)) for name in rows.columns)).alias("row")] if settings.keeps_refused else []
    prepared = rows.select(*columns, F.unix_micros(time).alias("time"), *carried, *whole, *_placed(edges))
    if edges is None:
        flat = prepared.withColumn("first", F.lit(True))
    else:
        flat = prepared.select("*", F.posexplode("edges").alias("place", "edge")).select(
            *(name for name in prepared.columns if name != "edges"),
            "edge.start",
            "edge.end",
            (F.col("place") == 0).alias("first"),
        )
    told = {
        "keys": names,
        "values": list(inputs),
        "kinds": [kind for kind, _ in inputs.values()],
        "gapUs": settings.gap_us,
        "graceUs": settings.grace_us,
        "once": settings.once,
        "keepsRefused": settings.keeps_refused,
    }
    found = DataFrame(operator(spark, "Windows").stream(flat._jdf, json.dumps(told)), spark)
    return found.select(
        *(F.col(name).alias(key) for name, key in zip(names, keys, strict=False)),
        F.timestamp_micros("start").alias(START),
        F.timestamp_micros("end").alias(END),
        *(
            _restored(F.col(f"r{place}"), kind, types[f"a{place}"]).alias(name)
            for place, (name, (kind, _)) in enumerate(values.items())
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


def _placed(edges: Column | None) -> list[Column]:
    return [] if edges is None else [edges.alias("edges")]


def _carried(kind: str, column: Column, type_: DataType) -> Column:
    """A value as one of the types that the kernel holds."""
    if kind == "count":
        return F.when(column if isinstance(type_, BooleanType) else column.isNotNull(), F.lit(1).cast("long"))
    if isinstance(type_, IntegralType):
        return column.cast("long")
    if isinstance(type_, FloatType | DoubleType):
        return column.cast("double")
    if isinstance(type_, DecimalType):
        return column
    if kind not in ("sum", "avg"):
        if isinstance(type_, StringType | BinaryType):
            return column
        if isinstance(type_, TimestampType):
            return F.unix_micros(column)
        if isinstance(type_, DateType):
            return F.unix_date(column).cast("long")
        if isinstance(type_, BooleanType):
            return column.cast("int").cast("long")
    raise Unfit(f"{kind} of {type_.simpleString()}")


def _restored(result: Column, kind: str, type_: DataType) -> Column:
    if kind in ("count", "sum", "avg", "distinct"):
        return result
    if isinstance(type_, TimestampType):
        return F.timestamp_micros(result)
    if isinstance(type_, DateType):
        return F.date_from_unix_date(result.cast("int"))
    if isinstance(type_, LongType):
        return result
    return result.cast(type_)
