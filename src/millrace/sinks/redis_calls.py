"""What a task does for Redis: calls a script with its rows, many in a call, several calls at once. Workers import this
file, and so it imports little."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from millrace.errors import ExtraMissing, MillraceError, SinkFailed, SinkTargetUnfit, SinkUnreachable
from millrace.sinks.contract import RefusedRow, Sink
from millrace.sinks.tasks import reason_of

CONNECT_S, ANSWER_S = 5, 20
# While a script runs nobody else is served: so many rows are about a millisecond.
ROWS_A_CALL = 250
# What the server takes at once, unless it says otherwise.
_LARGEST_BYTES = 512 * 1024 * 1024
# A row is its key, its version (with a minus if it went), and what is to be there.
_WORDS = 3


class Calling:
    """`ranking` is the one key of all rows; without it each has its own, behind `prefix`."""

    def __init__(
        self, sink: Sink, url: str, script: str, options: Sequence[str], *, prefix: str = "", ranking: str | None = None
    ) -> None:
        self._sink, self._url, self._script, self._options = sink, url, script, options
        self._prefix, self._ranking = prefix, ranking

    def __call__(self, rows: Iterator[Any]) -> Iterable[RefusedRow]:
        with told(self._sink), contextlib.closing(connect(self._sink, self._url)) as client:
            largest = _largest_bytes(client)
            number = client.script_load(self._script)
            for lines, reason, words, key, row in rows:
                if reason is not None:
                    yield RefusedRow(key, row, reason)
                    continue
                found = [word.encode() for word in words] if lines is None else bytes(lines).split(b"\n")[:-1]
                if max(map(len, found)) > largest:
                    found, refused = self._fitting(found, largest)
                    yield from refused
                yield from self._called(client, number, found)

    def _called(self, client: Any, number: str, words: list[bytes]) -> Iterator[RefusedRow]:
        pipeline, step = client.pipeline(transaction=False), _WORDS * ROWS_A_CALL
        calls = [words[first : first + step] for first in range(0, len(words), step)]
        for call in calls:
            keys, values = self._divided(call)
            pipeline.evalsha(number, len(keys), *keys, *self._options, *values)
        for call, answer in zip(calls, pipeline.execute(), strict=True):
            for place, reason in zip(answer[::2], answer[1::2], strict=True):
                first = _WORDS * (place - 1)
                yield self._refused(call[first], call[first + 2], reason.decode(errors="replace"))

    def _divided(self, words: list[bytes]) -> tuple[list[Any], list[bytes]]:
        """What the script takes for keys, and what for values."""
        if self._ranking is not None:
            return [self._ranking], words
        values = words.copy()
        del values[::_WORDS]
        return words[::_WORDS], values

    def _fitting(self, words: list[bytes], largest: int) -> tuple[list[bytes], list[RefusedRow]]:
        """Rows that the server can be given. One that is too large would end the connection, and the others with it."""
        fitting: list[bytes] = []
        refused: list[RefusedRow] = []
        for first in range(0, len(words), _WORDS):
            row = words[first : first + _WORDS]
            if max(map(len, row)) <= largest:
                fitting += row
            else:
                reason = f"it is larger than the {largest} bytes that the server takes"
                refused.append(self._refused(row[0], row[2], reason))
        return fitting, refused

    def _refused(self, key: bytes, row: bytes, reason: str) -> RefusedRow:
        return RefusedRow(key.decode().removeprefix(self._prefix), row.decode(), reason)


def _largest_bytes(client: Any) -> int:
    """Some servers do not tell."""
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
