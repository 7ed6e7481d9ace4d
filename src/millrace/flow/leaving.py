"""Rows that an operator leaves out although they are not late: they are counted, so that nobody loses rows unawares."""

from __future__ import annotations

from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# What was left out is counted as this, in an observation whose name begins so.
LEFT_OUT_METRIC = "millrace.left_out."
LEFT_OUT = "left_out"

_numbers = count(1)


def without(rows: DataFrame, left_out: Column) -> DataFrame:
    """Without the rows for which this is true, which are counted."""
    counted = F.count(F.when(left_out, 1)).alias(LEFT_OUT)
    return rows.observe(f"{LEFT_OUT_METRIC}{next(_numbers)}", counted).where(~left_out)
