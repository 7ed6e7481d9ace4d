"""One epoch to a webhook: so many tasks post rows one after the other, and the ledger follows them.

An id is made of the flow, the key and the version, or where there is no key of the row, its epoch and how many like it
came before: never of partitions, which are others when an epoch that was owed is written at last.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from millrace.errors import SinkUnreachable
from millrace.failpoint import FailPoint
from millrace.sinks.circuit import circuit_of
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, Writer
from millrace.sinks.http import Caller
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.tasks import refused_in_tasks
from millrace.sinks.texts import document, key_text
from millrace.sinks.webhook import Webhook
from millrace.sinks.webhook_posts import ANSWER_S, TRIES, Posting

_PART, _PLACE, _NTH, _TEXT = "__part", "__place", "__nth", "__text"


class WebhookWriter(Writer):
    def __init__(self, sink: Webhook, url: str, flow: str, feed: Feed, folder: Path) -> None:
        self._sink, self._url, self._flow, self._feed = sink, url, flow, feed
        self._ledger, self._circuit = FileLedger(folder), circuit_of(flow, sink.name)
        Caller(sink, url, ANSWER_S)  # a URL that is none is told now

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        if not due(self._sink.name, epoch, self._ledger.held(), self._sink.where):
            return
        if left_s := self._circuit.open_s():
            reason = f"{self._circuit.reason}; it is asked again in {left_s:.0f} s"
            raise SinkUnreachable(sink=self._sink.name, reason=reason, where=self._sink.where)
        task = Posting(self._sink, self._url, tries=1 if self._circuit.failures else TRIES)
        try:
            refused = refused_in_tasks(self._posts(rows, epoch), self._sink, task)
        except SinkUnreachable as error:
            self._circuit.failed(str(error.facts["reason"]))
            raise
        self._circuit.answered()
        if refused:
            refuse(refused)
        FailPoint.SINK_BEFORE_LEDGER.reached(self._sink.name)
        self._ledger.write(epoch)

    def _posts(self, rows: DataFrame, epoch: Epoch) -> DataFrame:
        """Of each row its id, what is told of it, itself and its key. As many partitions as may be posted at once."""
        texts = rows.withColumn(_TEXT, document(self._feed))
        if self._feed.key:
            key = key_text(self._feed)
            return self._told(texts.repartition(self._sink.concurrency), self._identity(key, F.col(VERSION)), key)
        placed = texts.select("*", F.spark_partition_id().alias(_PART), F.monotonically_increasing_id().alias(_PLACE))
        numbered = placed.withColumn(_NTH, F.row_number().over(Window.partitionBy(_TEXT).orderBy(_PLACE)))
        shared = numbered.repartition(self._sink.concurrency, _PART).sortWithinPartitions(_PLACE)
        identity = self._identity(F.lit(epoch.number), F.col(_TEXT), F.col(_NTH))
        return self._told(shared, identity, F.lit(None).cast("string"))

    def _told(self, rows: DataFrame, identity: Column, key: Column) -> DataFrame:
        flow, diff, version = (
            F.lit(self._flow).alias("flow"),
            F.col(DIFF).alias("diff"),
            F.col(VERSION).alias("version"),
        )
        head = F.to_json(F.struct(identity.alias("id"), flow, diff, version))
        return rows.select(identity, head, F.col(_TEXT), key)

    def _identity(self, *parts: Column) -> Column:
        texts = [F.lit(self._flow), *(F.coalesce(part.cast("string"), F.lit("")) for part in parts)]
        return F.sha2(F.concat_ws("\n", *texts), 256)
