"""One epoch into OpenSearch: the tasks send documents by `_bulk`, and the ledger follows them.

The version of a document is the row's place in the log, of type `external_gte`. A stale one is answered with 409 and is
as good as written: something newer is there. `external` would answer so to an epoch that is written again, too; but
then half of it would be from the attempt that failed, whose rows need not be the same (a time of day, a lookup).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from millrace.errors import SinkFailed, SinkUnreachable
from millrace.kernel.calling import quoted
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, RefusedRow, Writer
from millrace.sinks.http import BUSY, Answer, Caller, pause_s
from millrace.sinks.ledger import Epoch, due
from millrace.sinks.opensearch_index import (
    Index,
    Indexes,
    Ledger,
    as_text,
    check,
    reason_in,
    reason_of_error,
)
from millrace.sinks.tasks import refused_in_tasks
from millrace.sinks.texts import document, joined_key, key_text

if TYPE_CHECKING:
    from millrace.sinks.opensearch import OpenSearch

ANSWER_S = 30
# As large as the server's makers advise; a row that is larger goes alone.
BULK_BYTES, BULK_ROWS = 4 * 1024 * 1024, 5_000
TRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S = 7, 0.1, 3.0
_LONGEST_ID_BYTES = 512
_BULK = {"Content-Type": "application/x-ndjson"}
_STALE, _TOO_LARGE, _BAD = 409, 413, 400


class OpenSearchWriter(Writer):
    def __init__(self, sink: OpenSearch, url: str, flow: str, feed: Feed) -> None:
        self._sink, self._url, self._feed = sink, url, feed
        self._caller = Caller(sink, url, ANSWER_S)
        try:
            self._index = Indexes(sink, self._caller, sink.index, feed).ready()
            self._ledger = Ledger(sink, self._caller, flow)
        except BaseException:
            self.close()
            raise

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        if not due(self._sink.name, epoch, self._ledger.held(), self._sink.where):
            return
        if refused := refused_in_tasks(self._lines(rows), self._sink, _Task(self._sink, self._url, self._index)):
            refuse(refused)
        self._ledger.write(epoch)

    def _lines(self, rows: DataFrame) -> DataFrame:
        """Of each row the line that says what is to be done, the document, and the key for the dead letters."""
        key = joined_key(self._feed)
        about = F.struct(key.alias("_id"), F.col(VERSION).alias("version"), F.lit("external_gte").alias("version_type"))
        word = F.when(F.col(DIFF) > 0, F.lit('{"index":')).otherwise(F.lit('{"delete":'))
        fits = (F.octet_length(key) <= _LONGEST_ID_BYTES) & (F.length(key) > 0)
        action = F.when(fits, F.concat(word, F.to_json(about), F.lit("}")))
        whole, dead = document(self._feed), key_text(self._feed)
        return rows.withColumns(self._texts()).select(action, F.col(DIFF) > 0, whole, dead)

    def _texts(self) -> dict[str, Column]:
        wide = [each.name for each in self._feed.columns.fields if as_text(each.dataType)]
        return {name: F.col(quoted(name)).cast("string") for name in wide}

    def close(self) -> None:
        self._caller.close()


class _Task:
    """What a task does: sends its rows in bulks, and those again that the server had no time for."""

    def __init__(self, sink: OpenSearch, url: str, index: Index) -> None:
        self._sink, self._url = sink, url
        # Without the alias the server would make an index of its own under this name.
        alias = "&require_alias=true" if index.aliased else ""
        self._path = f"/{quote(index.name)}/_bulk?filter_path=errors,items.*.status,items.*.error{alias}"

    def __call__(self, rows: Iterator[Row]) -> Iterable[RefusedRow]:
        with contextlib.closing(Caller(self._sink, self._url, ANSWER_S)) as caller:
            for some in _bulks(rows):
                yield from self._written(caller, some)

    def _written(self, caller: Caller, rows: list[Row]) -> Iterator[RefusedRow]:
        """Sends rows until each of them is written or refused."""
        left = []
        for row in rows:
            if row[0] is None:
                reason = f"its key is null, empty, or longer than {_LONGEST_ID_BYTES} bytes"
                yield RefusedRow(row[3], row[2], reason)
            else:
                left.append(row)
        for tries in range(TRIES):
            if not left:
                return
            if tries:
                time.sleep(pause_s(tries - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S))
            answer = caller.ask("POST", self._path, _body(left), _BULK)
            reason = reason_in(answer)
            if answer.status in BUSY:
                continue
            if answer.status in (_TOO_LARGE, _BAD):
                yield from self._halves(caller, left, reason)
                return
            check(self._sink, answer, whole=True)
            left, refused, reason = self._left(left, answer)
            yield from refused
        if left:
            raise SinkUnreachable(sink=self._sink.name, reason=reason, where=self._sink.where)

    def _halves(self, caller: Caller, rows: list[Row], reason: str) -> Iterator[RefusedRow]:
        """What the server refuses as a whole is one row's fault, or all of them are too large together."""
        if len(rows) == 1:
            yield RefusedRow(rows[0][3], rows[0][2], reason)
            return
        middle = len(rows) // 2
        yield from self._written(caller, rows[:middle])
        yield from self._written(caller, rows[middle:])

    def _left(self, rows: list[Row], answer: Answer) -> tuple[list[Row], list[RefusedRow], str]:
        """Rows to be sent again, rows that are refused, and the last reason."""
        if answer.body.startswith(b'{"errors":false'):
            return [], [], ""
        again: list[Row] = []
        refused: list[RefusedRow] = []
        reason = ""
        for row, item in zip(rows, json.loads(answer.body)["items"], strict=True):
            (told,) = item.values()
            status, error = told["status"], told.get("error")
            if error is None or status == _STALE:
                continue
            reason = reason_of_error(error)
            if status in BUSY:
                again.append(row)
            elif status in (_BAD, _TOO_LARGE):
                refused.append(RefusedRow(row[3], row[2], reason))
            else:  # the index is gone, or closed to writers
                raise SinkFailed(sink=self._sink.name, reason=reason, where=self._sink.where)
        return again, refused, reason


def _bulks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    some: list[Row] = []
    size = 0
    for row in rows:
        length = len(row[2]) if row[1] else 0
        if some and (size + length > BULK_BYTES or len(some) >= BULK_ROWS):
            yield some
            some, size = [], 0
        some.append(row)
        size += length
    if some:
        yield some


def _body(rows: list[Row]) -> bytes:
    lines = [f"{action}\n{text}\n" if came else f"{action}\n" for action, came, text, _ in rows]
    return "".join(lines).encode()
