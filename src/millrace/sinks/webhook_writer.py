"""One epoch to a webhook: so many tasks post rows one after the other, and the ledger follows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.errors import SinkUnreachable
from millrace.failpoint import FailPoint
from millrace.sinks.circuit import circuit_of
from millrace.sinks.contract import DIFF, MOST_REFUSED, VERSION, Feed, Refuse, RefusedRow, Writer
from millrace.sinks.http import Caller
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.messages import ID, KEY, TEXT, messages
from millrace.sinks.tasks import refused_in_tasks
from millrace.sinks.webhook import Webhook
from millrace.sinks.webhook_posts import ANSWER_S, NOBODY, TRIES, Posting


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
        tries = 1 if self._circuit.failures else TRIES
        task = Posting(self._sink, self._url, tries, MOST_REFUSED, once=epoch.once)
        try:
            posts = self._posts(rows, epoch)
            refused = refused_in_tasks(posts, self._sink, task, lambda found: self._refuse_nobody(found, rows))
        except SinkUnreachable as error:
            self._circuit.failed(str(error.facts["reason"]))
            raise
        self._circuit.answered()
        if refused:
            refuse(refused)
        FailPoint.SINK_BEFORE_LEDGER.reached(self._sink.name)
        self._ledger.write(epoch)

    def _refuse_nobody(self, refused: Sequence[RefusedRow], rows: DataFrame) -> None:
        """Where every row is answered as if nobody took posts there, it is the address that is wrong, or what answers
        at it is not the receiver yet: such rows are to be posted again, and no dead letters."""
        if refused and all(each.reason.startswith(NOBODY) for each in refused) and len(refused) == rows.count():
            reason = f"every row of the epoch was answered with {refused[0].reason}"
            raise SinkUnreachable(sink=self._sink.name, reason=reason, where=self._sink.where)

    def _posts(self, rows: DataFrame, epoch: Epoch) -> DataFrame:
        """Of each row its id, what is told of it, itself and its key."""
        told = messages(rows, self._feed, self._flow, epoch, self._sink.concurrency)
        names = {ID: "id", DIFF: "diff", VERSION: "version"}
        identity, diff, version = (F.col(column).alias(name) for column, name in names.items())
        head = F.to_json(F.struct(identity, F.lit(self._flow).alias("flow"), diff, version))
        return told.select(ID, head, TEXT, KEY)
