"""What an operator tells: its results, and what became of rows that came late; one column says which."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from millrace.kernel.calling import operator

# As in `Told.java`.
RESULT, REFUSED, REFUSED_TOO, ALLOWED, REFUSED_CHANGE, PARTIAL = range(6)

# Beside the names of a user's columns. ROW is a refused row, whole.
KIND, LATE_US, ROW = "__kind", "__late_us", "__row"


def stays(record: Column, topic: str, options: Mapping[str, str]) -> Column:
    """Whether a row is not to be set aside: where there is a record, it is sent to the topic now. See `Aside.java`."""
    spark = SparkSession.active()
    text = F.coalesce(record, F.lit(""))
    return Column(operator(spark, "Aside").of(text._jc, topic, dict(options)))
