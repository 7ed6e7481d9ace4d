"""The last row of each key."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.kernel.calling import quoted

_ORDER, _LAST = "__order", "__last"


def last_of_each(rows: DataFrame, key: Sequence[str], names: Sequence[str], order: Column) -> DataFrame:
    """Of the rows of each key the one that comes last by `order`, with the columns `names`."""
    ordered = rows.withColumn(_ORDER, order)
    whole = F.struct(*(F.col(quoted(name)) for name in names))
    keys = [F.col(quoted(name)).alias(f"__key{place}") for place, name in enumerate(key)]
    last = ordered.groupBy(*keys).agg(F.max_by(whole, F.col(_ORDER)).alias(_LAST))
    return last.select(*(F.col(_LAST)[name].alias(name) for name in names))
