"""Tables of the lake as batches: the Parquet files that a version names, read by Spark itself."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.config import Settings
from millrace.errors import LakeNotPlain
from millrace.flow import LakeInput
from millrace.kernel.calling import quoted
from millrace.lakehouse import Catalog
from millrace.lakehouse.moments import numbered
from millrace.sinks.contract import VERSION
from millrace.sinks.lake_files import read


def rows(lake: LakeInput, spark: SparkSession, settings: Settings) -> DataFrame:
    """The rows of the version that is meant, as a batch, without their places in the log. The version is found now;
    its files are read whenever the batch is, and stay for as long as the table keeps its versions."""
    with Catalog(settings).opened(lake.table, lake.where) as table:
        version = None if lake.version is None else numbered(table, lake.version)
        if not table.plain(version):
            raise LakeNotPlain(table=lake.table, where=lake.where)
        files, columns, emptied = table.files(version), table.columns_of(version), table.emptied
        found = read(spark.range(0), table, files, columns) if files else spark.createDataFrame([], columns)
    texts = {name: F.nullif(F.col(quoted(name)), F.lit("")) for name in emptied}
    return found.withColumns(texts).drop(VERSION)
