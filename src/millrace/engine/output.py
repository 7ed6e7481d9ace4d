"""A flow's result as records of a topic: the row as a JSON object, the key columns as the key.

Guarantee: as the flow's `delivery` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.engine.plans import analyzed, listed
from millrace.errors import BodyResult, EmissionTwice, EmissionUnset, KeyUnknown, nearest
from millrace.flow import Stream
from millrace.flow.operators import Operator
from millrace.kernel.calling import quoted
from millrace.log import DataSource

# All six digits: Spark's default writes three, and an event time must come back as it was.
TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
# The header of a record that real time gave.
ID = "millrace-id"


def records(stream: Stream, result: Any, *, streaming: bool = True) -> DataFrame:
    """`key` and `value` columns of what the body gave. One key column is written as its text, several as JSON."""
    if not isinstance(result, DataFrame) or result.isStreaming is not streaming:
        given = "a DataFrame that does not stream" if isinstance(result, DataFrame) else f"a {type(result).__name__}"
        raise BodyResult(flow=stream.name, given=given, where=stream.where)
    columns = result.columns
    for column in stream.key:
        if column not in columns:
            known = ", ".join(columns)
            hint = nearest(column, columns)
            raise KeyUnknown(flow=stream.name, key=column, hint=hint, known=known, where=stream.where)
    value = F.to_json(F.struct(*(F.col(quoted(column)) for column in columns)), TIMES).alias("value")
    keys = [F.col(quoted(column)) for column in stream.key]
    if not keys:
        return result.select(value)
    key = keys[0].cast("string") if len(keys) == 1 else F.to_json(F.struct(*keys), TIMES)
    return result.select(key.alias("key"), value)


def identified(records: DataFrame) -> DataFrame:
    """With an id in their headers, by which a reader knows a record that comes again: the same key and value, the same
    id."""
    parts = [F.coalesce(F.col(name), F.lit("")) for name in records.columns]
    own = F.struct(F.lit(ID).alias("key"), F.md5(F.concat_ws("\0", *parts)).cast("binary").alias("value"))
    return records.withColumn("headers", F.array(own))


def write(records: DataFrame, to: DataSource, **options: str) -> None:
    """Writes a batch of records that say their topic."""
    records.write.format(to.format).options(**{**to.options, **options}).mode("append").save()


def output_mode(stream: Stream, result: DataFrame, noted: Iterable[Operator] = ()) -> str:
    """Spark's word for when results go out; an aggregate has to say. `noted` are the stream's own operators."""
    aggregates = _aggregates(analyzed(result))
    if stream.emit is not None:
        if not aggregates and any(each.manner.startswith("emits") for each in noted):
            raise EmissionTwice(flow=stream.name, given=stream.emit, where=stream.where)
        return "update" if stream.emit == "updates" else "append"
    if aggregates:
        raise EmissionUnset(flow=stream.name, where=stream.where)
    return "append"


def _aggregates(plan: Any) -> bool:
    """Of the stream itself: what a table without a stream is made of is done when the epoch begins."""
    if plan.nodeName() == "Aggregate" and plan.isStreaming():
        return True
    return any(_aggregates(child) for child in listed(plan.children()))
