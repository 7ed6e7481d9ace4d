"""The best rows of each key; `model/top.py` says what it must do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from millrace.kernel.calling import operator, packed, quoted, unpacked
from millrace.kernel.kept import About, told_of
from millrace.kernel.told import KIND, LATE_US, ROW

# Beside the names of a user's columns.
RANK, DIFF = "__rank", "__diff"
_ORDER = "__order"

_ORDERED = (
    BinaryType, BooleanType, DateType, DecimalType, DoubleType, FloatType, IntegralType, TimestampNTZType,
    TimestampType,
)  # fmt: skip


class Unordered(Exception):
    """A type whose values have no order here."""


@dataclass(frozen=True)
class TopSettings:
    """As in `TopSettings.java`. `sieved`: rows that cannot be among the first are left out before they are sent."""

    n: int
    updates: bool
    closed: bool
    grace_us: int
    ttl_us: int
    sieved: bool = False


def top(
    rows: DataFrame,
    keys: Sequence[Column],
    order: Sequence[tuple[Column, bool]],
    of: Sequence[Column] | None,
    *,
    end: Column | None,
    time: Column | None,
    settings: TopSettings,
    about: About | None = None,
) -> DataFrame:
    """What is told of rows. `order` has columns and whether the greatest is first; `of` what a row is known by, if it
    can be replaced; `end` when its window ends, if it has one; `time` which of two is the later. ROW is the row, RANK
    its place from 1 on, DIFF whether it came (+1) or went (-1)."""
    spark = rows.sparkSession
    # Without what Spark knows of them, a watermark: rows that are told may be older than it, and none may be dropped.
    schema = StructType([StructField(field.name, field.dataType, field.nullable) for field in rows.schema])
    nothing = F.lit(0).cast("long")
    placed = rows.select("*", ordered(rows, order).alias(_ORDER))
    if settings.sieved and of is None:
        placed = placed.where(_sieve(rows, keys, settings.n, None if settings.closed else end))
    flat = placed.select(
        *(key.alias(f"k{place}", metadata={"millrace": "key"}) for place, key in enumerate(keys or [F.lit(0)])),
        (nothing if end is None else F.unix_micros(end)).alias("end"),
        (nothing if time is None else F.unix_micros(time)).alias("time"),
        F.col(_ORDER).alias("order"),
        (F.lit(None).cast("binary") if of is None else ordered(rows, [(each, False) for each in of])).alias("of"),
        packed(whole(rows), schema).alias("row"),
    )
    told = {
        "n": settings.n,
        "keys": len(keys) or 1,
        "windowed": end is not None,
        "closed": settings.closed,
        "updates": settings.updates,
        "replacing": of is not None,
        "timed": time is not None,
        "graceUs": settings.grace_us,
        "ttlUs": settings.ttl_us,
        "schema": schema.json(),
        **told_of(about, "top"),
    }
    found = DataFrame(operator(spark, "Top").stream(flat._jdf, json.dumps(told)), spark)
    return found.select(
        F.col("kind").alias(KIND),
        F.col("lateUs").alias(LATE_US),
        unpacked(F.col("row"), schema).alias(ROW),
        F.col("rank").alias(RANK),
        F.col("diff").alias(DIFF),
    )


def _sieve(rows: DataFrame, keys: Sequence[Column], n: int, end: Column | None) -> Column:
    """Leaves out most rows that will not be told, before they go over the network: see `Sieve.java`. `end` where rows
    can be late: those are all let pass, since they are counted."""
    key = F.struct(*(key.alias(f"k{place}") for place, key in enumerate(keys)))
    schema = rows.select(key.alias("key")).schema["key"].dataType
    assert isinstance(schema, StructType)
    ends = F.lit(None).cast("long") if end is None else F.unix_micros(end)
    row = F.struct(packed(key, schema).alias("key"), F.col(_ORDER).alias("order"), ends.alias("end"))
    return Column(operator(rows.sparkSession, "Sieve").of(row._jc, n))


def whole(rows: DataFrame) -> Column:
    return F.struct(*(F.col(quoted(name)) for name in rows.columns))


def tie(rows: DataFrame) -> Column:
    """What tells rows apart that are alike in all they are ordered by: as in `Ranked.java`."""
    return F.xxhash64(packed(whole(rows), rows.schema))


def ordered(rows: DataFrame, order: Sequence[tuple[Column, bool]]) -> Column:
    """Bytes whose order is that of the columns: see `Order.java`."""
    values = F.struct(*(column.alias(f"o{place}") for place, (column, _) in enumerate(order)))
    schema = rows.select(values.alias("values")).schema["values"].dataType
    assert isinstance(schema, StructType)
    for field in schema:
        if not (isinstance(field.dataType, _ORDERED) or field.dataType == StringType()):
            raise Unordered(field.dataType.simpleString())
    ways = "".join("d" if descending else "a" for _, descending in order)
    return Column(operator(SparkSession.active(), "Order").of(values._jc, schema.json(), ways))
