"""What fits a schema and what does not, value by value, and the reason that a dead letter is given."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.engine.sources import Source, schema_of
from millrace.errors import SchemaInvalid, TimeInvalid
from millrace.flow import App, Topic

pytestmark = pytest.mark.spark

COLUMNS = (
    "url string, user long, at timestamp, small int, price decimal(5,2), ratio double, yes boolean, "
    "inner struct<a:int>, list array<int>, day date"
)
AT = b'"at":"2026-01-01T00:00:00Z"'
NEEDED = "needed long not null, url string"


def topic(schema: str = COLUMNS, time: str | None = "at") -> Topic:
    return App("shop").topic("views", schema, time=time, lateness="1 second" if time else None)


def judged(spark: SparkSession, read: Topic, values: list[bytes | None]) -> list[str | None]:
    """For each value the reason why it does not fit, or None."""
    from pyspark.sql import functions as F

    source = Source(read, schema_of(read), "views", "metric", {})
    raw = spark.createDataFrame([(n, value) for n, value in enumerate(values)], "n int, value binary")
    raw = raw.withColumn("timestamp", F.lit("2026-06-01 00:00:00").cast("timestamp"))
    reason = F.when(source._misfit(), source._reason())
    rows: list[Any] = source._parsed(raw).select("n", reason.alias("reason")).orderBy("n").collect()
    return [row.reason for row in rows]


FITS = [
    b"{" + AT + b"}",
    b' { "url" : "a", "user" : 9007199254740993, ' + AT + b" } \n",
    b'{"url":null,"unknown":[1,{"x":2}],' + AT + b"}",
    b'{"url":5,' + AT + b"}",  # a text column takes any value as its text
    b'{"url":"\xc3\xa9\\u0000 }{ ,\\"__end\\":1",' + AT + b"}",
    b'{"at":"2026-01-01T00:00:00.123456+02:00","price":1.25,"ratio":1,"yes":true,"inner":{"a":1},"list":[1,2]}',
    b'{"at":1767225600,"day":"2026-01-01"}',  # a number is seconds since 1970
    b'{"__corrupt":"x","__row":1,' + AT + b"}",
]
MISFITS: dict[bytes | None, str] = {
    None: "no value",
    b"": "not a JSON object",
    b"  ": "not a JSON object",
    b"junk": "not a JSON object",
    b"null": "not a JSON object",
    b"7": "not a JSON object",
    b'"text"': "not a JSON object",
    b"[]": "not a JSON object",
    b"[{" + AT + b"}]": "not a JSON object",
    b"\xff\xfe": "not UTF-8",
    b'{"url":"\xff",' + AT + b"}": "not UTF-8",
    b'{"user":1': "not JSON",
    b"{'user':1}": "not JSON",
    b"{user:1}": "not JSON",
    b'{"ratio":NaN,' + AT + b"}": "not JSON",
    b"{" + AT + b"} junk": "something follows the JSON object",
    b"{" + AT + b"}{" + AT + b"}": "something follows the JSON object",
    b"{" + AT + b"},{" + AT + b"}": "something follows the JSON object",
    b"{" + AT + b"}}": "something follows the JSON object",
    b'{"user":"1",' + AT + b"}": "'user' is not a bigint",
    b'{"user":1.5,' + AT + b"}": "'user' is not a bigint",
    b'{"user":99999999999999999999,' + AT + b"}": "'user' is not a bigint",
    b'{"user":true,' + AT + b"}": "'user' is not a bigint",
    b'{"small":3000000000,' + AT + b"}": "'small' is not a int",
    b'{"price":12345.67,' + AT + b"}": "'price' is not a decimal(5,2)",
    b'{"ratio":"NaN",' + AT + b"}": "'ratio' is not a double",
    b'{"yes":"true",' + AT + b"}": "'yes' is not a boolean",
    b'{"inner":{"a":"z"},' + AT + b"}": "'inner' is not a struct<a:int>",
    b'{"inner":[1],' + AT + b"}": "'inner' is not a struct<a:int>",
    b'{"list":["q"],' + AT + b"}": "'list' is not a array<int>",
    b'{"day":"someday",' + AT + b"}": "'day' is not a date",
    b'{"at":"yesterday"}': "'at' is not a timestamp",
    b'{"url":"a"}': "'at' is missing",
    b'{"at":null}': "'at' is missing",
    b'{"at":1767225600000}': "its time 'at' is not between the years 1970 and 9999",
}


def test_what_fits_and_what_does_not(spark: SparkSession) -> None:
    values = [*FITS, *MISFITS]
    found = dict(zip(values, judged(spark, topic(), values), strict=True))
    assert found == {**dict.fromkeys(FITS), **MISFITS}


def test_a_column_that_may_not_be_null_is_needed(spark: SparkSession) -> None:
    values: list[bytes | None] = [b'{"needed":1}', b'{"url":"a"}', b'{"needed":null}']
    assert judged(spark, topic(NEEDED, None), values) == [None, "'needed' is missing", "'needed' is missing"]


def test_a_schema_that_spark_cannot_read_is_told_with_its_line(spark: SparkSession) -> None:
    with pytest.raises(SchemaInvalid, match="'views'") as caught:
        schema_of(topic("url strin", None))
    assert caught.value.where is not None
    with pytest.raises(TimeInvalid, match="timestamp_ntz"):
        schema_of(topic("at timestamp_ntz"))
