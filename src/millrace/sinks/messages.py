"""Rows as messages to somebody who keeps nothing that we could compare with: each has an id by which a repeat is known.

An id is made of the flow, the key and the version, or where there is no key of the row, its epoch and how many like it
came before: never of partitions, which are others when an epoch that was owed is written at last.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from millrace.kernel.delivering import tried_once
from millrace.sinks.contract import DIFF, VERSION, Feed
from millrace.sinks.ledger import Epoch
from millrace.sinks.texts import document, key_text

ID, TEXT, KEY = "__id", "__text", "__key"
_PART, _PLACE, _NTH = "__part", "__place", "__nth"


def messages(rows: DataFrame, feed: Feed, flow: str, epoch: Epoch, at_once: int) -> DataFrame:
    """Of each row `ID`, the row itself as `TEXT`, its `KEY`, `DIFF` and `VERSION`. In as many partitions as may be
    written at once; rows of one of the partitions that they had stay together, in their order. Of an epoch that is told
    `once` a task that Spark does again gets none."""
    texts = rows.withColumn(TEXT, document(feed))
    if feed.key:
        key = key_text(feed)
        return _told(epoch, texts.repartition(at_once), _identity(flow, key, F.col(VERSION)), key)
    placed = texts.select("*", F.spark_partition_id().alias(_PART), F.monotonically_increasing_id().alias(_PLACE))
    numbered = placed.withColumn(_NTH, F.row_number().over(Window.partitionBy(TEXT).orderBy(_PLACE)))
    shared = numbered.repartition(at_once, _PART).sortWithinPartitions(_PLACE)
    identity = _identity(flow, F.lit(epoch.number), F.col(TEXT), F.col(_NTH))
    return _told(epoch, shared, identity, F.lit(None).cast("string"))


def _told(epoch: Epoch, rows: DataFrame, identity: Column, key: Column) -> DataFrame:
    told = rows.select(identity.alias(ID), TEXT, key.alias(KEY), DIFF, VERSION)
    return tried_once(told, TEXT) if epoch.once else told


def _identity(flow: str, *parts: Column) -> Column:
    """A key that is null is left out: it is another one than the empty text."""
    return F.sha2(F.concat_ws("\n", F.lit(flow), *(part.cast("string") for part in parts)), 256)
