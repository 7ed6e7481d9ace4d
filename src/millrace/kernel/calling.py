"""From Python to the kernel's classes in Spark's JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import Column, SparkSession
from pyspark.sql.types import StructType

from millrace.errors import KernelAbsent
from millrace.local.compile import compiled


def jar() -> Path:
    """The kernel's jar: what a session of one's own needs in `spark.jars`."""
    return compiled("kernel")


def operator(spark: SparkSession, name: str) -> Any:
    """The Java class of an operator. Only a JVM that was started with the jar has it."""
    java: Any = spark._jvm
    found = getattr(java.millrace.kernel, name)
    # py4j takes a class that it does not find for a package.
    if not isinstance(found, JavaClass):
        raise KernelAbsent(jar=jar())
    return found


def is_utf8(value: Column) -> Column:
    """Whether bytes are UTF-8; null of null."""
    return Column(operator(SparkSession.active(), "Utf8").of(value._jc))


def json_row(value: Column, whole: StructType, *, utc: bool) -> Column:
    """A struct of `whole`, whose first field is the row that the bytes are as JSON; null where only `from_json` can
    tell. See `JsonRows.java`."""
    found = operator(SparkSession.active(), "JsonRows").of(value._jc, whole.json(), utc)
    return Column(found)


def json_member(value: Column, name: str, as_text: bool) -> Column:
    """A member of a JSON object, as text or as JSON. See `JsonMember.java`."""
    return Column(operator(SparkSession.active(), "JsonMember").of(value._jc, name, as_text))


def packed(row: Column, schema: StructType) -> Column:
    """A row as bytes, for an operator that only passes it on. See `Packed.java`."""
    return Column(operator(SparkSession.active(), "Packed").pack(row._jc, schema.json()))


def unpacked(row: Column, schema: StructType) -> Column:
    return Column(operator(SparkSession.active(), "Packed").unpack(row._jc, schema.json()))


def canonical(row: Column, schema: StructType) -> Column:
    """A row packed in bytes that are equal where SQL takes its values for the same. See `Canonical.java`."""
    return Column(operator(SparkSession.active(), "Canonical").of(row._jc, schema.json()))


def epoch_behind(text: Column) -> Column:
    """A text and behind it the number of the epoch, in whose tasks alone it can be told. See `EpochNumber.java`."""
    return Column(operator(SparkSession.active(), "EpochNumber").behind(text._jc))


def words(column: Column) -> str:
    """An expression as Spark writes it."""
    java: Any = column._jc
    return str(java.toString())


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"
