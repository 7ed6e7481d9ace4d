"""The Kafka sink that writes each epoch exactly once (`millrace.sink` in Java), from Python.

In a plain PySpark job: `stream.writeStream.format(FORMAT)` with the options `flow` (what its transactional ids begin
with), `checkpoint` (the query's folder), `topic` and Kafka's own behind `kafka.`; inside `foreachBatch` a batch is
written with the same options and `epoch`. Readers have to read `read_committed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.errors import KernelAbsent
from millrace.kernel.calling import jar, operator

FORMAT = "millrace.sink.ExactlyOnce"
# In a checkpoint: what was delivered, and what is prepared. See `Ledger.java`.
LEDGER = "delivery"


def begin(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Before the query starts: commits what an earlier run prepared, and ends what else it left open."""
    java: Any = spark._jsparkSession
    _delivery().begin(java, dict(options))


def end(checkpoint: Path) -> None:
    """After the query has ended: lets its producers go. A JVM that is gone holds none."""
    if SparkContext._jvm is not None:
        _delivery().end(str(checkpoint))


def tried_once(rows: DataFrame, text: str) -> DataFrame:
    """The rows with their column `text`, in the first attempt of a task; in another, an error. See `TriedOnce.java`.
    Nobody's session need be active: threads of sinks have none."""
    java = operator(rows.sparkSession, "TriedOnce")
    return rows.withColumn(text, Column(java.of(F.col(text)._jc)))


def fits(record: Column, flow: str, options: Mapping[str, str], *, inside: str, letters: bool, beside: int) -> Column:
    """Whether a record, a struct of key, value and topic, is not larger than its topic takes; one that is goes to the
    topic's dead letters, or, without `letters`, ends the flow. `inside` is what the topics' names begin with, `beside`
    the bytes of a record's headers. See `Outsized.java`."""
    own = {"inside": inside, "letters": str(letters).lower(), "besideBytes": str(beside)}
    return Column(operator(SparkSession.active(), "Outsized").of(record._jc, flow, {**options, **own}))


def outsized(flow: str) -> int:
    """How many records of a flow were too large for their topics, in this session."""
    java: Any = SparkContext._jvm
    return int(java.millrace.kernel.Outsized.counted(flow))


def _delivery() -> Any:
    java: Any = SparkContext._jvm
    found = java.millrace.sink.Delivery
    if not isinstance(found, JavaClass):
        raise KernelAbsent(jar=jar())
    return found
