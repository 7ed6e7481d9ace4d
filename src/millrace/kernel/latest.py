"""Latest-by-key: the records of captured topics to signed rows; `model/latest.py` says what it must do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.kernel.calling import operator

# Debezium's own word where `unavailable.value.placeholder` was left as it is.
UNAVAILABLE = "__debezium_unavailable_value"
# How the `error` of a record begins that lacks a value which no earlier record has either.
UNFILLED = "the database left out the unchanged value of "
# And of one whose columns, as JSON behind these words, are none of the topic's shapes.
STRANGE = "nobody knows rows with the columns "

# As Connect's JSON converter writes it. A quote inside a text has a backslash before it, so this cannot be found there.
_WRAPPED_KEY = r'(?s)^\{"schema":\{.*\},"payload":(.*)\}$'


def latest_by_key(
    records: DataFrame,
    *,
    net: bool = False,
    placeholder: str = UNAVAILABLE,
    left_out: Mapping[str, Sequence[str]] | None = None,
    shapes: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> DataFrame:
    """Signed rows of the tables whose records these are, in the columns of Spark's Kafka source.

    A stream goes through the state of each (topic, key); a batch is taken from its first record on. With `net`, a key
    that changed several times in one epoch gives at most the row it had and the row it has. Rows of a topic are kept
    and told without the columns that are `left_out` of it, whose changes are none; one that had not the columns of one
    of the topic's `shapes` is an error, as it cannot be seen in what is left.

    Columns: topic, key, row (JSON text of the row's columns), __diff (+1 came, -1 went), op (c, r, u, d or tombstone),
    partition, offset, timestamp (of the record), changed_at (in the database), lsn (PostgreSQL's), error, value. What
    cannot be understood is a row of its own with `error`, its `value` as it came, and neither `row` nor `__diff`.
    """
    spark = records.sparkSession
    kernel = operator(spark, "LatestByKey")
    columns = {topic: [*names] for topic, names in (left_out or {}).items()}
    known = {topic: [[*shape] for shape in own] for topic, own in (shapes or {}).items()}
    work = kernel.stream if records.isStreaming else kernel.batch
    return _named(DataFrame(work(prepared(records)._jdf, net, placeholder, columns, known), spark))


def latest_rows(records: DataFrame, *, placeholder: str = UNAVAILABLE) -> DataFrame:
    """The tables as these records leave them (a batch): each row that is there, with __diff +1, and the errors."""
    assert not records.isStreaming, "a stream has no last record"
    return latest_by_key(records, net=True, placeholder=placeholder)


def latest_held(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The rows that a stream of `latest_by_key` holds as of its last epoch, from its state: row, __diff (1), partition,
    offset, error (none). The topic up to that place is not the same: compacted, it no longer has a row whose next
    change is already written."""
    held = spark.read.format("statestore").option("path", checkpoint).option("stateVarName", "row").load()
    return held.select(
        F.col("value.row").cast("string").alias("row"),
        F.lit(1).alias("__diff"),
        "value.partition",
        "value.offset",
        F.lit(None).cast("string").alias("error"),
    )


def prepared(records: DataFrame) -> DataFrame:
    """Records of captured topics as the kernel's operators take them: texts as bytes, which are not decoded."""
    return records.select(
        F.col("topic").cast("string").cast("binary").alias("topic"),
        _key().alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("long").alias("offset"),
        F.unix_micros("timestamp").alias("timestampUs"),
    )


def _key() -> Column:
    """Without the schema that a converter may have put around it: that changes when a column's type does."""
    text = F.col("key").cast("string")
    # Cut out as text: `from_json` would write its numbers anew.
    inner = F.nullif(F.regexp_extract(text, _WRAPPED_KEY, 1), F.lit(""))
    return F.when(text.startswith('{"schema":{'), F.coalesce(inner, text)).otherwise(text).cast("binary")


def _named(signed: DataFrame) -> DataFrame:
    return signed.select(
        F.col("topic").cast("string"),
        F.col("key").cast("string"),
        F.col("row").cast("string"),
        F.col("diff").alias("__diff"),
        "op",
        "partition",
        "offset",
        F.timestamp_micros("timestampUs").alias("timestamp"),
        F.timestamp_micros("changedAtUs").alias("changed_at"),
        "lsn",
        "error",
        "value",
    )
