"""The files of a lake table: how Spark writes and reads them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.kernel.calling import quoted
from millrace.lakehouse import DataFile, LakeTable
from millrace.lakehouse.footers import footers
from millrace.lakehouse.place import Disk
from millrace.lakehouse.table import DATA
from millrace.sinks.contract import Feed
from millrace.sinks.disk import sync
from millrace.sinks.lake import PART

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SESSION = {
    # Times as all readers know them, and as they are.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}
# While files are written: a file is read by one task, so that what becomes of its rows stays together, in their order.
_ONE_BY_ONE = {"spark.sql.files.maxPartitionBytes": "1g", "spark.sql.files.openCostInBytes": "1g"}
_WRITING = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # As DuckDB makes its own: its threads divide a file by row groups.
    "parquet.block.row.count.limit": "122880",
}


def shaped(rows: DataFrame, feed: Feed, columns: StructType, *more: str) -> DataFrame:
    """Rows of an epoch with the table's columns, and some more. Those that the flow no longer has are null."""
    given = {*feed.columns.names, *(rows.columns if feed.key else ())}
    return rows.select(
        *(
            (F.col(quoted(each.name)) if each.name in given else F.lit(None)).cast(each.dataType).alias(each.name)
            for each in columns.fields
        ),
        *more,
    )


def read(
    near: DataFrame, table: LakeTable, files: Sequence[DataFile], columns: StructType, key: Sequence[str] | None = None
) -> DataFrame:
    """Rows of a table's files, by the session of `near`; with a `key`, only that, and where each is (`PART`)."""
    paths = [table.place.location(each.path) for each in files]
    # Folders are no columns here: a file has all of its own.
    reader = near.sparkSession.read.option("recursiveFileLookup", "true").options(**table.place.options).schema(columns)
    found = reader.parquet(*paths)
    if key is None:
        return found.select(*(F.col(quoted(name)) for name in columns.names))
    return found.select(*(F.col(quoted(name)) for name in key), F.col("_metadata.file_path").alias(PART))


def fill(
    table: LakeTable, frame: DataFrame, folder: str, partition_by: Sequence[str], order: Sequence[str] = ()
) -> list[str]:
    """Lets Spark write files, and gives their paths. Each holds one value of the columns that divide them; with an
    `order`, its rows are sorted by these columns."""
    place = f"{DATA}/{folder}"
    for name, value in _SESSION.items():
        frame.sparkSession.conf.set(name, value)
    writing = frame
    if partition_by:
        # A name without the values: these may hold anything, which paths do not.
        words = F.to_json(F.struct(*(F.col(quoted(name)) for name in partition_by)))
        writing = frame.withColumn(PART, F.md5(words))
    if order:
        writing = writing.sortWithinPartitions(*([PART] if partition_by else []), *map(quoted, order))
    writer = writing.write.mode("error").options(**_WRITING, **table.place.options)
    with _one_by_one(frame):
        (writer.partitionBy(PART) if partition_by else writer).parquet(table.place.location(place))
    settle(table, place)
    found = footers(table.place, sorted(each.path for each in table.place.files(place)))
    return [each.path for each in found if each.rows]


def settle(table: LakeTable, path: str) -> None:
    """What a commit names has to be on the disk before it; what Hadoop notes beside it is nobody's."""
    if isinstance(table.place, Disk):
        folder = table.place.folder / path
        for each in folder.rglob(".*.crc"):
            each.unlink()
        sync(folder)


@contextlib.contextmanager
def _one_by_one(frame: DataFrame) -> Iterator[None]:
    conf = frame.sparkSession.conf
    before = {name: conf.get(name) for name in _ONE_BY_ONE}
    try:
        for name, value in _ONE_BY_ONE.items():
            conf.set(name, value)
        yield
    finally:
        for name, known in before.items():
            conf.set(name, str(known))


def slug(flow: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", flow)
