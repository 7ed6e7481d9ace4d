"""Events with the row that a table had at their times; `model/as_of.py` says what it must do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millrace.kernel.calling import operator, packed, quoted, unpacked
from millrace.kernel.kept import About, told_of
from millrace.kernel.latest import UNAVAILABLE
from millrace.kernel.told import KIND, LATE_US, ROW

# Beside the names of a user's columns: the table's row (as what came: a record's text, or packed), whether the event
# was told before, and with which row.
FOUND, CORRECTED, REPLACES = "__found", "__corrected", "__replaces"

# A key's events and versions are kept in parts of so many, these in parts of so many parts: see `History.java`.
MOST_EVENTS, MOST_PARTS = 64, 32
# For how long it is remembered that a row is gone: one from before that, which comes later than this, would be back.
GONE_KEPT_US = 7 * 86_400_000_000
# Over how many groups events without a key are spread, lest one task has them all.
_SPREAD = 64


@dataclass(frozen=True)
class Settings:
    """As in `AsOfSettings.java`."""

    once: bool
    inner: bool
    captured: bool
    whole: bool
    since_us: int | None
    grace_us: int


@dataclass(frozen=True)
class Changes:
    """What comes of a table. `value` is its row, packed, or null where it is gone; of a captured one, which has no
    `schema` here, the record's. Of two rows of a key at the same time the one with the greater `tie` counts."""

    rows: DataFrame
    keys: Sequence[Column]
    time_us: Column
    value: Column
    partition: Column
    tie: Column
    schema: StructType | None = None


def as_of(
    events: DataFrame,
    keys: Sequence[Column],
    time: Column,
    changes: Changes,
    settings: Settings,
    about: About | None = None,
) -> DataFrame:
    """What is told of a stream's events. Columns: KIND, LATE_US, ROW (the event), FOUND, CORRECTED, REPLACES; and of a
    record that cannot be understood error, partition and offset, with none of these."""
    spark = events.sparkSession
    names = [f"k{place}" for place in range(len(keys))]
    schema = plain(events.schema)
    event = packed(F.struct(*(F.col(quoted(name)) for name in events.columns)), schema)
    lacking = F.lit(False)
    for key in keys:
        lacking = lacking | key.isNull()
    if settings.inner:
        events = events.where(~lacking)
    spread = F.when(lacking, F.pmod(F.xxhash64(event), F.lit(_SPREAD))).otherwise(0).cast("int")
    # The events first: Spark asks the sources how far they go in this order, so that an event finds every row that was
    # written before it.
    both = events.select(
        *_named(keys, names),
        spread.alias("spread"),
        F.lit(False).alias("changed"),
        F.unix_micros(time).alias("time"),
        event.alias("row"),
        F.lit(0).alias("partition"),
        F.lit(0).cast("long").alias("tie"),
    ).unionAll(
        changes.rows.select(
            *_named(changes.keys, names),
            F.lit(0).alias("spread"),
            F.lit(True).alias("changed"),
            changes.time_us.alias("time"),
            changes.value.alias("row"),
            changes.partition.alias("partition"),
            changes.tie.alias("tie"),
        )
    )
    told = {
        **told_of(about, "as_of"),
        "eventSchema": schema.json(),
        "rowSchema": None if changes.schema is None else changes.schema.json(),
        "keys": len(names),
        "once": settings.once,
        "inner": settings.inner,
        "captured": settings.captured,
        "whole": settings.whole,
        "sinceUs": settings.since_us,
        "graceUs": settings.grace_us,
        "goneUs": 0 if settings.captured else GONE_KEPT_US,  # a log has an order
        "mostEvents": MOST_EVENTS,
        "mostParts": MOST_PARTS,
    }
    found = DataFrame(operator(spark, "AsOf").stream(both._jdf, json.dumps(told), UNAVAILABLE), spark)
    return found.select(
        F.col("kind").alias(KIND),
        F.col("lateUs").alias(LATE_US),
        unpacked(F.col("event"), schema).alias(ROW),
        F.col("row").alias(FOUND),
        F.col("corrected").alias(CORRECTED),
        F.col("replaces").alias(REPLACES),
        "error",
        "partition",
        "offset",
    )


def plain(schema: StructType) -> StructType:
    """Without what Spark knows of columns, a watermark: what is told may be older than it."""
    return StructType([StructField(field.name, field.dataType, field.nullable) for field in schema])


def _named(keys: Sequence[Column], names: Sequence[str]) -> list[Column]:
    # With metadata of their own: a key with the watermark's would have Spark drop late rows before we see them.
    return [key.alias(name, metadata={"millrace": "key"}) for key, name in zip(keys, names, strict=True)]
