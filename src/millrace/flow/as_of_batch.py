"""Events with the row that a table had at their times, over everything there is: a join with intervals of time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from millrace.kernel import as_of as kernel
from millrace.kernel.calling import quoted
from millrace.kernel.told import ROW

_FROM, _TO, _TIE, _PLACE, _AT = "__from", "__to", "__tie", "__place", "__at"


def batch(events: DataFrame, keys: Sequence[Column], at: Column, changes: kernel.Changes, *, inner: bool) -> DataFrame:
    """ROW (the event) and FOUND. Each version counts from its time on until that of the next one of its key."""
    names = [f"__k{place}" for place in range(len(keys))]
    every = changes.rows.select(
        *(key.alias(name) for key, name in zip(changes.keys, names, strict=True)),
        changes.time_us.alias(_FROM),
        changes.value.alias(kernel.FOUND),
        changes.tie.alias(_TIE),
    )
    last = F.row_number().over(Window.partitionBy(*names, _FROM).orderBy(F.col(_TIE).desc()))
    one_a_time = every.withColumn(_PLACE, last).where(F.col(_PLACE) == 1)
    versions = one_a_time.withColumn(_TO, F.lead(_FROM).over(Window.partitionBy(*names).orderBy(_FROM)))
    asked = events.select(
        F.struct(*(F.col(quoted(name)) for name in events.columns)).alias(ROW),
        F.unix_micros(at).alias(_AT),
        *(key.alias(f"__asked{place}") for place, key in enumerate(keys)),
    )
    fits = (F.col(_AT) >= F.col(_FROM)) & (F.col(_TO).isNull() | (F.col(_AT) < F.col(_TO)))
    for place, name in enumerate(names):
        fits = fits & (F.col(f"__asked{place}") == F.col(name))
    found = asked.join(versions, fits, "left_outer").select(ROW, kernel.FOUND)
    return found.where(F.col(kernel.FOUND).isNotNull()) if inner else found
