"""One epoch into Redis: the tasks write rows, many in one call of a script, and the ledger follows them.

The ledger stands in the same server, so that one whose last seconds were lost in a crash has lost the ledger's too: the
next epoch does not follow on it, and is refused instead of leaving a hole.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.errors import SinkTargetUnfit
from millrace.kernel.calling import quoted
from millrace.kernel.pieces import pieces
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, Sink, Writer
from millrace.sinks.ledger import Entry, Epoch
from millrace.sinks.redis_calls import Calling, connect, told
from millrace.sinks.redis_scripts import LEDGER, RANKING, ROWS
from millrace.sinks.tasks import refused_in_tasks
from millrace.sinks.texts import document, fields, joined_key, key_text
from millrace.sinks.witness import WitnessedLedger

if TYPE_CHECKING:
    from millrace.sinks.redis import Redis, RedisRanking

# For how long a row that was deleted leaves its version: longer than a task of a process that was thought dead lives.
GONE_MS = 3_600_000
_NULL_KEY, _NO_NUMBER = "its key is null, or a part of it", "its score is not a number"


class RedisWriter(Writer):
    def __init__(self, sink: Redis, url: str, flow: str, feed: Feed, folder: Path) -> None:
        self._feed, self._prefix, self._form = feed, f"{sink.prefix}:", sink.form
        ttl = "" if sink.ttl_ms is None else str(sink.ttl_ms)
        calling = Calling(sink, url, ROWS, (sink.form, ttl, str(GONE_MS)), prefix=self._prefix)
        self._epochs = _Epochs(sink, url, flow, folder, calling)

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        key = F.concat(F.lit(self._prefix), joined_key(self._feed))
        whole = fields(self._feed) if self._form == "hash" else document(self._feed)
        self._epochs.write(epoch, _lines(rows, self._feed, key, whole, F.col(DIFF) < 0, F.lit(None)), refuse)

    def close(self) -> None:
        self._epochs.close()


class RankingWriter(Writer):
    def __init__(self, sink: RedisRanking, url: str, flow: str, feed: Feed, folder: Path) -> None:
        self._sink, self._feed = sink, feed
        calling = Calling(sink, url, RANKING, (str(GONE_MS),), ranking=sink.ranking)
        self._epochs = _Epochs(sink, url, flow, folder, calling)
        with told(sink):
            kind = self._epochs.client.type(sink.ranking).decode()
        if kind not in ("none", "zset"):
            self.close()
            reason, remedy = f"it is a {kind} there, not a sorted set", "name another key, or delete that one"
            raise SinkTargetUnfit(sink=sink.name, target=sink.ranking, reason=reason, remedy=remedy, where=sink.where)

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        score = F.col(quoted(self._sink.score)).cast("double")
        went = (F.col(DIFF) < 0) | score.isNull()
        text = F.coalesce(score.cast("string"), F.lit("0"))
        odd = F.when(F.isnan(score) & (F.col(DIFF) > 0), F.lit(_NO_NUMBER))
        self._epochs.write(epoch, _lines(rows, self._feed, joined_key(self._feed), text, went, odd), refuse)

    def close(self) -> None:
        self._epochs.close()


def _lines(rows: DataFrame, feed: Feed, key: Column, text: Column, went: Column, odd: Column) -> DataFrame:
    """What the tasks are given: three lines for each row. A row that lines cannot tell, or that is refused for a reason
    (`odd`, or its key), goes beside them."""
    version = F.concat(F.when(went, "-").otherwise(""), F.col(VERSION).cast("string"))
    reason = F.coalesce(F.when(key.isNull(), F.lit(_NULL_KEY)), odd)
    beside = reason.isNotNull() | (F.instr(key, "\n") > 0)
    return rows.select(
        F.when(~beside, F.concat_ws("\n", key, version, text).cast("binary")).alias("lines"),
        reason.cast("string").alias("reason"),
        F.when(beside, F.array(key, version, text)).alias("words"),
        F.when(beside, key_text(feed)).alias("key"),
        F.when(beside, document(feed)).alias("row"),
    )


class _Epochs:
    """Writes epochs, and knows by the ledger which."""

    def __init__(self, sink: Sink, url: str, flow: str, folder: Path, calling: Calling) -> None:
        self._sink, self._calling = sink, calling
        self._key = f"{LEDGER}{flow}:{sink.name}"
        self.client = connect(sink, url)
        self._ledger = WitnessedLedger(sink, flow, folder, self._held, self._enter)

    def write(self, epoch: Epoch, lines: DataFrame, refuse: Refuse) -> None:
        with told(self._sink):
            if not self._ledger.due(epoch):
                return
            if refused := refused_in_tasks(pieces(lines), self._sink, self._calling):
                refuse(refused)
            self._ledger.write(epoch)

    def _held(self) -> Entry | None:
        number, ranges = self.client.hmget(self._key, "epoch", "ranges")
        return None if number is None else Entry(int(number), ranges.decode())

    def _enter(self, epoch: Epoch) -> None:
        self.client.hset(self._key, mapping={"epoch": epoch.number, "ranges": epoch.ranges})

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.client.close()
