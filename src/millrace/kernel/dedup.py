"""The first row of each key; `model/dedup.py` says what it must do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.kernel.calling import operator, packed, quoted, unpacked
from millrace.kernel.kept import About, told_of
from millrace.kernel.told import KIND, LATE_US, ROW


def dedup(
    rows: DataFrame,
    keys: Sequence[Column],
    time: Column | None,
    *,
    ttl_us: int,
    grace_us: int,
    about: About | None = None,
) -> DataFrame:
    """What is told of rows: ROW is the row, given or refused. Without a `time`, by the time of day."""
    spark = rows.sparkSession
    whole = F.struct(*(F.col(quoted(name)) for name in rows.columns))
    schema = rows.schema
    names = [f"k{place}" for place in range(len(keys))]
    row = packed(whole, schema)
    flat = rows.select(
        # With metadata of its own: a key with the watermark's would have Spark drop late rows before we see them.
        *(key.alias(name, metadata={"millrace": "key"}) for key, name in zip(keys, names, strict=True)),
        (F.lit(0).cast("long") if time is None else F.unix_micros(time)).alias("time"),
        F.xxhash64(row).alias("tie"),
        row.alias("row"),
    )
    told: dict[str, Any] = {
        "keys": len(names),
        "ttlUs": ttl_us,
        "graceUs": grace_us,
        "byArrival": time is None,
        **told_of(about, "dedup"),
    }
    found = DataFrame(operator(spark, "Dedup").stream(flat._jdf, json.dumps(told)), spark)
    return found.select(
        F.col("kind").alias(KIND), F.col("lateUs").alias(LATE_US), unpacked(F.col("row"), schema).alias(ROW)
    )
