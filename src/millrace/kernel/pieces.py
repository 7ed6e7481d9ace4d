"""Many lines as a few pieces, for Python code that only passes them on."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame

from millrace import failpoint
from millrace.kernel.calling import operator

SIZE_BYTES = 256 * 1024
# Where tests kill in the middle of a bulk, a task has a dozen rows: the first piece is not to be all of them.
_KILLED_BYTES = 64


def pieces(lines: DataFrame, size_bytes: int = SIZE_BYTES) -> DataFrame:
    """The lines of the first column (bytes, without their ends) put together, each with its end, in pieces of about
    this size; the other columns are null there. A row without a line is passed on as it is. See `Pieces.java`."""
    spark = lines.sparkSession
    return DataFrame(operator(spark, "Pieces").of(lines._jdf, _of(size_bytes)), spark)


def copy_pieces(rows: DataFrame, kinds: Sequence[str], *, signed: bool, size_bytes: int = SIZE_BYTES) -> RDD[bytes]:
    """Rows as PostgreSQL's COPY reads them: pieces in its binary format, rows that it cannot hold, and last the number
    of the attempt that made them. Each as bytes, of which the first says what they are. See `CopyRows.java`."""
    spark = rows.sparkSession
    made = operator(spark, "CopyRows").of(rows._jdf, list(kinds), signed, _of(size_bytes))
    return RDD(made, spark.sparkContext, NoOpSerializer())


def _of(size_bytes: int) -> int:
    return min(size_bytes, _KILLED_BYTES) if failpoint.ON else size_bytes
