"""The files of a lake table: how Spark writes and reads them."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from millrace.kernel.calling import quoted
from millrace.lakehouse import DataFile, LakeTable
from millrace.lakehouse.place import Disk
from millrace.lakehouse.table import DATA
from millrace.sinks.contract import Feed
from millrace.sinks.lake import PART

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_SESSION = {
    # Times as all readers know them, and as they are.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}
# While files are written: a file is read by one task, so that what becomes of its rows stays together, in their order.
_ONE_BY_ONE = {"spark.sql.files.maxPartitionBytes": "1g", "spark.sql.files.openCostInBytes": "1g"}
# Whose types words do not say exactly.
_NESTED = (ArrayType, MapType, StructType)
_WRITING = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # As DuckDB makes its own: its threads divide a file by row groups.
    "parquet.block.row.count.limit": "122880",
}

# By session: how many write files with it now, and its settings of before.
_at_work: dict[str, tuple[int, dict[str, str]]] = {}
_turn = threading.Lock()


def shaped(rows: DataFrame, feed: Feed, columns: StructType, *more: str) -> DataFrame:
    """Rows of an epoch with the table's columns, and some more. Those that the flow no longer has are null."""
    given = {*feed.columns.names, *(rows.columns if feed.key else ())}
    kinds = {each.name: each.dataType for each in feed.columns.fields}
    if not any(isinstance(each.dataType, _NESTED) and kinds.get(each.name) != each.dataType for each in columns.fields):
        # As words, which are one call of the JVM for all columns: each `F.col(…).cast(…).alias(…)` is ten.
        words = (_word(each, given, kinds.get(each.name)) for each in columns.fields)
        return rows.selectExpr(*words, *map(quoted, more))
    return rows.select(
        *(
            (F.col(quoted(each.name)) if each.name in given else F.lit(None)).cast(each.dataType).alias(each.name)
            for each in columns.fields
        ),
        *more,
    )


def _word(column: StructField, given: Collection[str], kind: DataType | None) -> str:
    name = quoted(column.name)
    if column.name in given and kind == column.dataType:
        return name
    return f"CAST({name if column.name in given else 'NULL'} AS {column.dataType.simpleString()}) AS {name}"


def read(
    near: DataFrame,
    table: LakeTable,
    files: Sequence[DataFile],
    columns: StructType,
    key: Sequence[str] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> DataFrame:
    """Rows of a table's files, by the session of `near`; with a `key`, only that, and where each is (`PART`). Of
    columns that are `renamed` it is said how files call them."""
    called = renamed or {}
    paths = [table.place.location(each.path) for each in files]
    # Folders are no columns here: a file has all of its own.
    there = StructType([StructField(called.get(each.name, each.name), each.dataType, True) for each in columns.fields])
    reader = near.sparkSession.read.option("recursiveFileLookup", "true").options(**table.place.options).schema(there)
    found = reader.parquet(*paths)
    if key is None:
        return found.selectExpr(*(f"{quoted(called.get(name, name))} AS {quoted(name)}" for name in columns.names))
    return found.select(*(F.col(quoted(name)) for name in key), F.col("_metadata.file_path").alias(PART))


def fill(
    table: LakeTable, frame: DataFrame, folder: str, partition_by: Sequence[str], order: Sequence[str] = ()
) -> list[str]:
    """Lets Spark write files, and gives their paths. Each holds one value of the columns that divide them; with an
    `order`, its rows are sorted by these columns."""
    place = f"{DATA}/{folder}"
    writing = frame
    if partition_by:
        # A name without the values: these may hold anything, which paths do not.
        words = F.to_json(F.struct(*(F.col(quoted(name)) for name in partition_by)))
        writing = frame.withColumn(PART, F.md5(words))
    if order:
        writing = writing.sortWithinPartitions(*([PART] if partition_by else []), *map(quoted, order))
    plain = {f"parquet.enable.dictionary#{name}": "false" for name in table.varied}
    writer = writing.write.mode("error").options(**_WRITING, **plain, **table.place.options)
    with set_for_files(frame):
        (writer.partitionBy(PART) if partition_by else writer).parquet(table.place.location(place))
    if isinstance(table.place, Disk):
        for each in (table.place.folder / place).rglob(".*.crc"):  # what Hadoop notes beside files is nobody's
            each.unlink()
    paths = sorted(each.path for each in table.place.files(place))
    table.place.begin_settling(paths)  # while their ends are read
    found = table.footers(paths)
    table.vary(found)
    return [each.path for each in found if each.rows]


@contextlib.contextmanager
def set_for_files(frame: DataFrame) -> Iterator[None]:
    """The session's settings as files need them; afterwards they are as before: the session is the user's. The sinks of
    a flow share it and write side by side: the first at work sets it, and the last puts back what was."""
    session, wanted = frame.sparkSession, {**_SESSION, **_ONE_BY_ONE}
    name = str(session._jsparkSession.sessionUUID())
    with _turn:
        count, before = _at_work.get(name, (0, {}))
        if not count:
            known = {each: str(session.conf.get(each)) for each in wanted}
            before = {each: was for each, was in known.items() if was != wanted[each]}
            for each in before:
                session.conf.set(each, wanted[each])
        _at_work[name] = count + 1, before
    try:
        yield
    finally:
        with _turn:
            count, before = _at_work.pop(name)
            if count > 1:
                _at_work[name] = count - 1, before
            else:
                for each, was in before.items():
                    session.conf.set(each, was)


def slug(flow: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", flow)
