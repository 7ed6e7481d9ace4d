"""One epoch to a webhook: so many tasks post rows one after the other, and the ledger follows them.

An id is made of the flow, the key and the version, or where there is no key of the row, its epoch and how many like it
came before: never of partitions, which are others when an epoch that was owed is written at last.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from millrace.errors import SinkUnreachable
from millrace.sinks.circuit import circuit_of
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, RefusedRow, Writer
from millrace.sinks.http import BUSY, Answer, Caller, pause_s
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.tasks import refused_in_tasks
from millrace.sinks.texts import document, key_text
from millrace.sinks.webhook import Webhook

ANSWER_S = 10
TRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S = 6, 0.2, 5.0
# A receiver that asks for a longer pause is asked again by the next try of the epoch.
LONGEST_ASKED_S = 10.0
_HEADERS = {"Content-Type": "application/json", "User-Agent": "millrace"}
# Who posts is refused, not what: every row would be.
_NOT_US = (401, 403, 407)
_FIRST_REFUSAL, _FIRST_FAILURE = 400, 500
_SHOWN_BYTES = 300
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
        task = _Posting(self._sink, self._url, tries=1 if self._circuit.failures else TRIES)
        try:
            refused = refused_in_tasks(self._posts(rows, epoch), self._sink, task)
        except SinkUnreachable as error:
            self._circuit.failed(str(error.facts["reason"]))
            raise
        self._circuit.answered()
        if refused:
            refuse(refused)
        self._ledger.write(epoch)

    def _posts(self, rows: DataFrame, epoch: Epoch) -> DataFrame:
        """Of each row its id, its body and its key. Not more partitions than may be posted to at once."""
        whole = document(self._feed)
        if self._feed.key:
            identity = self._identity(key_text(self._feed), F.col(VERSION))
            shared = rows.withColumn(_TEXT, whole).repartition(self._sink.concurrency)
            return shared.select(identity, self._body(identity), key_text(self._feed))
        placed = rows.select("*", F.spark_partition_id().alias(_PART), F.monotonically_increasing_id().alias(_PLACE))
        alike = Window.partitionBy(_TEXT).orderBy(_PLACE)
        numbered = placed.withColumn(_TEXT, whole).withColumn(_NTH, F.row_number().over(alike))
        shared = numbered.repartition(self._sink.concurrency, _PART).sortWithinPartitions(_PLACE)
        identity = self._identity(F.lit(epoch.number), F.col(_TEXT), F.col(_NTH))
        return shared.select(identity, self._body(identity), F.lit(None).cast("string"))

    def _identity(self, *parts: Column) -> Column:
        texts = [F.lit(self._flow), *(F.coalesce(part.cast("string"), F.lit("")) for part in parts)]
        return F.sha2(F.concat_ws("\n", *texts), 256)

    def _body(self, identity: Column) -> Column:
        about = F.struct(
            identity.alias("id"),
            F.lit(self._flow).alias("flow"),
            F.col(DIFF).alias("diff"),
            F.col(VERSION).alias("version"),
        )
        head = F.to_json(about)
        return F.concat(F.substr(head, F.lit(1), F.length(head) - 1), F.lit(',"row":'), F.col(_TEXT), F.lit("}"))


class _Posting:
    """What a task does: posts its rows, each until it is taken or refused."""

    def __init__(self, sink: Webhook, url: str, tries: int) -> None:
        self._sink, self._url, self._tries = sink, url, tries

    def __call__(self, rows: Iterator[Row]) -> Iterable[RefusedRow]:
        tries = self._tries
        with contextlib.closing(Caller(self._sink, self._url, ANSWER_S)) as caller:
            for identity, body, key in rows:
                answer = self._posted(caller, identity, body.encode(), tries)
                tries = TRIES  # a server that was away has answered
                if not answer.good:
                    yield RefusedRow(key, body, _reason(answer))

    def _posted(self, caller: Caller, identity: str, body: bytes, tries: int) -> Answer:
        headers = {**_HEADERS, "Idempotency-Key": identity}
        for tried in range(tries):
            pause = pause_s(tried, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            try:
                answer = caller.ask("POST", "", body, headers)
            except SinkUnreachable:
                if tried + 1 == tries:
                    raise
            else:
                if _settled(answer):
                    return answer
                if tried + 1 == tries or answer.status in _NOT_US:
                    raise SinkUnreachable(sink=self._sink.name, reason=_reason(answer), where=self._sink.where)
                pause = max(pause, _asked_s(answer))
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")


def _settled(answer: Answer) -> bool:
    """Whether the row is taken, or refused for what it is."""
    own_fault = _FIRST_REFUSAL <= answer.status < _FIRST_FAILURE
    return answer.good or (own_fault and answer.status not in BUSY and answer.status not in _NOT_US)


def _asked_s(answer: Answer) -> float:
    """The pause that a receiver asks for, if it is short."""
    asked = answer.headers.get("retry-after", "")
    return min(float(asked), LONGEST_ASKED_S) if asked.isdecimal() else 0.0


def _reason(answer: Answer) -> str:
    said = " ".join(answer.body[:_SHOWN_BYTES].decode(errors="replace").split())
    return f"HTTP {answer.status}" + (f": {said}" if said else "")
