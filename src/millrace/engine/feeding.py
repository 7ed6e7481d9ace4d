"""What a sink is given of an epoch: rows with their sign and version, and where it holds keys, one row of each."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millrace.errors import SinkKeyMissing, SinkKeyUnknown, nearest
from millrace.flow import Delivery
from millrace.sinks.contract import DIFF, VERSION, Feed
from millrace.sinks.last import last_of_each


def feed_of(delivery: Delivery, rows: StructType, *, table: Sequence[str] = (), stream: Sequence[str] = ()) -> Feed:
    """What a delivery feeds its sink with, checked by the sink. `table` is the key of the table it is of, `stream` that
    of the stream's records. A stream of signed rows is a table's, known by that key."""
    own = [StructField(each.name, each.dataType) for each in rows.fields if each.name not in (DIFF, VERSION)]
    sink, columns, signed = delivery.sink, StructType(own), DIFF in rows.names
    key = sink.keyed(table or (stream if signed else ()), stream)
    if signed and not key and sink.wants != "rows":
        raise SinkKeyMissing(sink=sink.name, kind=f"{sink.kind} of signed rows", where=delivery.where)
    for column in key:
        if column not in columns.names:
            hint, known = nearest(column, columns.names), ", ".join(columns.names)
            raise SinkKeyUnknown(sink=sink.name, key=column, hint=hint, known=known, where=delivery.where)
    feed = Feed(columns, key, signed)
    sink.check(feed)
    return feed


def fed(rows: DataFrame, feed: Feed, epoch: int) -> DataFrame:
    """The rows of an epoch as `feed` says. Those of a table have sign and version already."""
    order = F.struct(VERSION, DIFF) if VERSION in rows.columns else F.monotonically_increasing_id()
    if not feed.signed:
        rows = rows.withColumn(DIFF, F.lit(1))
    if VERSION not in rows.columns:
        rows = rows.withColumn(VERSION, F.lit(epoch).cast("long"))
    # A table's changes are in the order of the log; where a row took the place of another, it counts and not the one
    # that went. A stream's rows of one key are in the order in which its last step gave them, if that was one task's;
    # otherwise they have none.
    return last_of_each(rows, feed.key, [*feed.columns.names, DIFF, VERSION], order) if feed.key else rows
