"""One epoch into Redis: the tasks write rows, many in one call of a script, and the ledger follows them.

The ledger stands in the same server, so that one whose last seconds were lost in a crash has lost the ledger's too: the
next epoch does not follow on it, and is refused instead of leaving a hole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from millrace.errors import ExtraMissing, MillraceError, SinkFailed, SinkTargetUnfit, SinkUnreachable
from millrace.kernel.calling import quoted
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, RefusedRow, Sink, Writer
from millrace.sinks.ledger import Entry, Epoch, due
from millrace.sinks.redis_scripts import LEDGER, RANKING, ROWS
from millrace.sinks.tasks import reason_of, refused_in_tasks
from millrace.sinks.texts import document, fields, joined_key, key_text

if TYPE_CHECKING:
    from millrace.sinks.redis import Redis, RedisRanking

CONNECT_S, ANSWER_S = 5, 20
# While a script runs nobody else is served: some 300 rows are a millisecond. So many such calls are sent at once.
ROWS_A_CALL, CALLS_AT_ONCE = 250, 8
BYTES_AT_ONCE = 4 * 1024 * 1024
GONE_MS = 3_600_000
# Unless the server says otherwise.
_LARGEST_BYTES = 512 * 1024 * 1024
_NULL_KEY = "its key is null, or a part of it"


class RedisWriter(Writer):
    def __init__(self, sink: Redis, url: str, flow: str, feed: Feed) -> None:
        self._sink, self._url, self._feed = sink, url, feed
        self._ledger = _Ledger(sink, url, flow)

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        self._ledger.write(epoch, lambda: refused_in_tasks(self._texts(rows), self._sink, self._work()), refuse)

    def _texts(self, rows: DataFrame) -> DataFrame:
        key = F.concat(F.lit(f"{self._sink.prefix}:"), joined_key(self._feed))
        whole = fields(self._feed) if self._sink.form == "hash" else document(self._feed)
        return _texts(rows, self._feed, key, F.when(F.col(DIFF) > 0, whole).otherwise(""), F.col(DIFF) < 0)

    def _work(self) -> _Task:
        ttl = "" if self._sink.ttl_ms is None else str(self._sink.ttl_ms)
        return _Task(self._sink, self._url, ROWS, (self._sink.form, ttl, str(GONE_MS)), None)

    def close(self) -> None:
        self._ledger.close()


class RankingWriter(Writer):
    def __init__(self, sink: RedisRanking, url: str, flow: str, feed: Feed) -> None:
        self._sink, self._url, self._feed = sink, url, feed
        self._ledger = _Ledger(sink, url, flow)
        with told(sink):
            kind = self._ledger.client.type(sink.ranking).decode()
        if kind not in ("none", "zset"):
            self.close()
            reason, remedy = f"it is a {kind} there, not a sorted set", "name another key, or delete that one"
            raise SinkTargetUnfit(sink=sink.name, target=sink.ranking, reason=reason, remedy=remedy, where=sink.where)

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        task = _Task(self._sink, self._url, RANKING, (str(GONE_MS),), self._sink.ranking)
        self._ledger.write(epoch, lambda: refused_in_tasks(self._texts(rows), self._sink, task), refuse)

    def _texts(self, rows: DataFrame) -> DataFrame:
        score = F.col(quoted(self._sink.score)).cast("double").cast("string")
        known = F.coalesce(F.when(F.col(DIFF) > 0, score), F.lit(""))
        return _texts(rows, self._feed, joined_key(self._feed), known, known == "NaN")

    def close(self) -> None:
        self._ledger.close()


def _texts(rows: DataFrame, feed: Feed, key: Column, value: Column, doubted: Column) -> DataFrame:
    """What the tasks are given of a row: its key, its version, what is to be there, and where that does not say what
    it was and it may be refused, itself for the dead letters."""
    dead = F.when(key.isNull() | doubted, F.struct(key_text(feed), document(feed)))
    return rows.select(key, F.col(VERSION).cast("string"), value, dead)


class _Ledger:
    """The ledger of one sink, and how an epoch is written by it."""

    def __init__(self, sink: Sink, url: str, flow: str) -> None:
        self._sink, self._key = sink, f"{LEDGER}{flow}:{sink.name}"
        self.client = connect(sink, url)

    def write(self, epoch: Epoch, rows: Any, refuse: Refuse) -> None:
        with told(self._sink):
            number, ranges = self.client.hmget(self._key, "epoch", "ranges")
            held = None if number is None else Entry(int(number), ranges.decode())
            if not due(self._sink.name, epoch, held, self._sink.where):
                return
            if refused := rows():
                refuse(refused)
            self.client.hset(self._key, mapping={"epoch": epoch.number, "ranges": epoch.ranges})

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.client.close()


class _Task:
    """What a task does with its rows. `ranking` is the one key of all of them; without it each has its own."""

    def __init__(self, sink: Sink, url: str, script: str, options: Sequence[str], ranking: str | None) -> None:
        self._sink, self._url, self._script, self._options = sink, url, script, options
        self._ranking = ranking

    def __call__(self, rows: Iterator[Row]) -> Iterable[RefusedRow]:
        with told(self._sink), contextlib.closing(connect(self._sink, self._url)) as client:
            largest = _largest_bytes(client)
            script = client.register_script(self._script)
            while calls := list(_calls(rows)):
                pipeline = client.pipeline(transaction=False)
                sent = []
                for call in calls:
                    some, refused = _fitting(call, largest)
                    yield from refused
                    if some:
                        keys, values = self._words(some)
                        script(keys=keys, args=[*self._options, *values], client=pipeline)
                        sent.append(some)
                for some, answer in zip(sent, pipeline.execute(), strict=True):
                    yield from self._refused(some, answer)

    def _words(self, some: list[Row]) -> tuple[list[str], list[str]]:
        if self._ranking is not None:
            return [self._ranking], [word for key, version, score, _ in some for word in (key, version, score)]
        return [row[0] for row in some], [word for _, version, text, _ in some for word in (version, text)]

    def _refused(self, some: list[Row], answer: list[Any]) -> Iterator[RefusedRow]:
        for number, reason in zip(answer[::2], answer[1::2], strict=True):
            yield _refused(some[number - 1], reason.decode(errors="replace"))


def _calls(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """So many calls, or so many bytes, as are sent at once."""
    size = 0
    for _ in range(CALLS_AT_ONCE):
        some: list[Row] = []
        for row in islice(rows, ROWS_A_CALL):
            some.append(row)
            size += len(row[2])
            if size >= BYTES_AT_ONCE:
                break
        if some:
            yield some
        if size >= BYTES_AT_ONCE or not some:
            return


def _fitting(rows: list[Row], largest: int) -> tuple[list[Row], list[RefusedRow]]:
    """Rows that the server can be given. One that is too large would end the connection, and the others with it."""
    fitting: list[Row] = []
    refused: list[RefusedRow] = []
    for row in rows:
        key, _, text, _ = row
        if key is None:
            refused.append(_refused(row, _NULL_KEY))
        elif 4 * max(len(text), len(key)) > largest and max(len(text.encode()), len(key.encode())) > largest:
            refused.append(_refused(row, f"it is larger than the {largest} bytes that the server takes"))
        else:
            fitting.append(row)
    return fitting, refused


def _refused(row: Row, reason: str) -> RefusedRow:
    key, _, text, dead = row
    return RefusedRow(key, text, reason) if dead is None else RefusedRow(dead[0], dead[1], reason)


def _largest_bytes(client: Any) -> int:
    """What the server takes at once; some do not tell."""
    with contextlib.suppress(_client().exceptions.ResponseError):
        return int(client.config_get("proto-max-bulk-len").get("proto-max-bulk-len", _LARGEST_BYTES))
    return _LARGEST_BYTES


def _client() -> Any:
    try:
        import redis
    except ImportError as error:
        raise ExtraMissing(what="writing to Redis", reason=f"no module {error.name}", extra="redis") from None
    return redis


def connect(sink: Sink, url: str) -> Any:
    redis = _client()
    try:
        return redis.Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=ANSWER_S,
            socket_keepalive=True,
            retry=redis.retry.Retry(redis.backoff.NoBackoff(), 1),
        )
    except ValueError:  # its text may hold a part of a password
        remedy = "write it as redis://user:password@host:port/0, or rediss:// for TLS"
        raise SinkTargetUnfit(
            sink=sink.name, target="its server", reason="that is not a URL of Redis", remedy=remedy, where=sink.where
        ) from None


@contextlib.contextmanager
def told(sink: Sink) -> Iterator[None]:
    """Errors of the client as ours. None of them holds the URL."""
    errors = _client().exceptions
    try:
        yield
    except MillraceError:
        raise
    except (errors.ConnectionError, errors.TimeoutError) as error:
        raise SinkUnreachable(sink=sink.name, reason=reason_of(error), where=sink.where) from None
    except errors.RedisError as error:
        raise SinkFailed(sink=sink.name, reason=reason_of(error), where=sink.where) from None
