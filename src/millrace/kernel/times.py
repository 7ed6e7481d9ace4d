"""Clocks for tests: each has a name, stands still until it is set, and counts where that name is given."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.kernel.calling import operator


def set_now(spark: SparkSession, name: str, now_ms: int) -> None:
    operator(spark, "Times").set(name, now_ms)


def now_ms(spark: SparkSession, name: str | None) -> int:
    """What the named clock says; without a name, the time of day."""
    return int(operator(spark, "Times").now(name))
