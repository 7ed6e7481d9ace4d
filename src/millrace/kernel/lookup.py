"""Events with the row of a table that has their key; `model/lookup.py` says what it must do."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.kernel.calling import operator, quoted
from millrace.kernel.kept import About, told_of
from millrace.kernel.latest import UNAVAILABLE

EVENT, ROW = "event", "row"
# Over how many groups events without a key are spread, lest one task has them all.
_SPREAD = 64
_RECORD = "struct<key:binary,value:binary,partition:int,offset:bigint>"


def lookup(
    events: DataFrame,
    keys: Sequence[Column],
    records: DataFrame,
    record_keys: Sequence[Column],
    *,
    inner: bool,
    placeholder: str = UNAVAILABLE,
    about: About | None = None,
) -> DataFrame:
    """Events of a stream with the row that the table has under their key, once an epoch's changes are applied to it.

    `records` are a table's, as `latest.prepared` gives them; both sides' keys have the same types. Columns: EVENT (the
    event's columns), ROW (JSON text of the table's row; null where there is none; with `inner` such events are left
    out), and of a record that cannot be understood error, partition and offset, with neither.
    """
    spark = events.sparkSession
    names = [f"k{place}" for place in range(len(keys))]
    whole = F.struct(*(F.col(quoted(name)) for name in events.columns))
    empty = F.lit(None).cast(events.select(whole.alias(EVENT)).schema[EVENT].dataType)
    lacking = F.lit(False)
    for key in keys:
        lacking = lacking | key.isNull()
    spread = F.when(lacking, F.pmod(F.xxhash64(F.to_json(whole)), F.lit(_SPREAD))).otherwise(0).cast("int")
    if inner:
        events = events.where(~lacking)
    # The events first: Spark asks the sources how far they go in this order, so that an event finds every row that was
    # written before it.
    both = events.select(
        *(key.alias(name) for key, name in zip(keys, names, strict=True)),
        spread.alias("spread"),
        whole.alias(EVENT),
        F.lit(None).cast(_RECORD).alias("record"),
    ).unionAll(
        records.select(
            *(key.alias(name) for key, name in zip(record_keys, names, strict=True)),
            F.lit(0).alias("spread"),
            empty.alias(EVENT),
            F.struct("key", "value", "partition", "offset").cast(_RECORD).alias("record"),
        )
    )
    told = json.dumps(told_of(about, "lookup"))
    found = operator(spark, "Lookup").stream(both._jdf, len(names), inner, placeholder, told)
    return DataFrame(found, spark).withColumn(ROW, F.col(ROW).cast("string"))
