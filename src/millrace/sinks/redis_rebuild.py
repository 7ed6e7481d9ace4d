"""Rows in Redis built again: under keys of their own, which are then renamed to those that people read.

Redis has no second name for many keys. So the switch goes key by key, and each has an answer at every moment: rows that
are no longer there go first, then every new row takes the place of the old one by one RENAME. A reader may see some
keys before others, as with every epoch. How far it has come stands in the ledger of what is built beside.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import functions as F

from millrace.kernel.calling import quoted
from millrace.sinks.comparing import Held, plain
from millrace.sinks.contract import Sink, Writer
from millrace.sinks.ledger import Entry, Epoch, FileLedger
from millrace.sinks.rebuilding import Rebuilding, Site, Which
from millrace.sinks.redis_calls import ROWS_A_CALL, connect, told
from millrace.sinks.redis_scripts import GONE, LEDGER, MOVE, VERSIONS
from millrace.sinks.redis_writer import RankingWriter, RedisWriter
from millrace.sinks.texts import SEPARATOR, document, fields, joined_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millrace.sinks.redis import Redis, RedisRanking

T = TypeVar("T")
_VERSION = "__version"
_STAGE, _MOVING = "stage", "moving"

_logger = logging.getLogger("millrace.engine")


class _OnRedis(Rebuilding):
    def __init__(self, sink: Sink, url: str, site: Site) -> None:
        self._sink, self._url, self._site = sink, url, site
        self._client = connect(sink, url)
        self._ledger_key, self._beside_key = (f"{LEDGER}{flow}:{sink.name}" for flow in (site.flow, site.flow_beside))
        # Nobody else's keys begin so: names of sinks have no colon.
        self._space = f"millrace:{site.purpose}:{site.flow}:{sink.name}"

    @property
    def keyed(self) -> bool:
        return True

    def held(self) -> Entry | None:
        with told(self._sink):
            number, ranges = self._client.hmget(self._ledger_key, "epoch", "ranges")
        return None if number is None else Entry(int(number), ranges.decode())

    def begin(self, epoch: Epoch) -> Writer:  # noqa: ARG002 -- the switch writes it
        self.discard()
        with told(self._sink):
            self._client.hset(self._beside_key, "begun", 1)
        return self._writer()

    @abstractmethod
    def _writer(self) -> Writer:
        """Of what is built beside."""

    def discard(self) -> None:
        with told(self._sink):
            self._remove(self._scan(f"{self._space}{SEPARATOR}"))
            self._client.delete(self._beside_key, f"{VERSIONS}{self._space}{SEPARATOR}ranking")
        self._site.forget_beside()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.close()

    def _switched(self, epoch: Epoch, on: Any) -> None:
        """The ledger, and no more that something is built beside."""
        on.hset(self._ledger_key, mapping={"epoch": epoch.number, "ranges": epoch.ranges})
        on.delete(self._beside_key)

    def _settled(self, epoch: Epoch) -> None:
        FileLedger(self._site.folder).write(epoch)
        self._site.forget_beside()

    def _scan(self, begins: str) -> Iterator[str]:
        """The keys that begin so; one may come twice."""
        pattern = re.sub(r"([\\*?\[\]^])", r"\\\1", begins) + "*"
        for key in self._client.scan_iter(match=pattern, count=1_000):
            yield key.decode(errors="surrogateescape")

    def _remove(self, keys: Iterable[str]) -> None:
        for some in _batches(keys, 1_000):
            self._client.unlink(*(key.encode(errors="surrogateescape") for key in some))


class RowsRebuilding(_OnRedis):
    def __init__(self, sink: Redis, url: str, site: Site) -> None:
        super().__init__(sink, url, site)
        self._rows: Redis = sink
        self.expires = sink.ttl_ms is not None
        self._live = f"{sink.prefix}{SEPARATOR}"
        self._new = f"{self._space}{SEPARATOR}"
        self._type = "hash" if sink.form == "hash" else "string"

    def _writer(self) -> Writer:
        sink, site = replace(self._rows, prefix=self._space), self._site
        return RedisWriter(sink, self._url, site.flow_beside, site.feed, site.folder_beside)

    def there(self, which: Which) -> Iterator[Held]:
        begins = self._live if which == "live" else self._new
        with told(self._sink):
            for keys in _batches(self._scan(begins), ROWS_A_CALL):
                for key, values in zip(keys, self._read(keys), strict=True):
                    name = key[len(begins) :]
                    # Other keys may begin alike: those of a sink with the prefix `customer:eu`, say.
                    if values is not None and self._name_of(values) == name:
                        yield name, plain({field: value for field, value in values.items() if field != _VERSION})

    def _read(self, keys: tuple[str, ...]) -> list[dict[str, Any] | None]:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            given = key.encode(errors="surrogateescape")
            (pipeline.hgetall if self._type == "hash" else pipeline.get)(given)
        return [self._understood(answer) for answer in pipeline.execute(raise_on_error=False)]

    def _understood(self, answer: Any) -> dict[str, Any] | None:
        """A row's fields; None of what is no row of ours, or has gone meanwhile."""
        if isinstance(answer, dict) and _VERSION.encode() in answer:
            return {_text(name): _text(value) for name, value in answer.items()}
        if isinstance(answer, bytes) and answer.startswith(b'{"__version":'):
            with contextlib.suppress(ValueError):
                found = json.loads(answer, parse_float=_Number, parse_int=_Number)
                return found if isinstance(found, dict) else None
        return None

    def _name_of(self, values: dict[str, Any]) -> str | None:
        """The key that a row of ours has by what stands in it."""
        parts = [values.get(name) for name in self._site.feed.key]
        if any(part is None for part in parts):
            return None
        texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
        if len(texts) > 1:
            texts = [text.replace("%", "%25").replace(SEPARATOR, "%3A") for text in texts]
        return SEPARATOR.join(texts)

    def wanted(self, rows: DataFrame) -> Iterator[Held]:
        feed = self._site.feed
        whole = fields(feed) if self._type == "hash" else document(feed)
        for key, text in rows.select(joined_key(feed), whole).toLocalIterator():
            if key is not None:
                yield key, plain(json.loads(text, parse_float=_Number, parse_int=_Number))

    def switch(self, epoch: Epoch) -> None:
        with told(self._sink):
            if not self._client.exists(self._beside_key):
                return self._settled(epoch)
            if self._client.hget(self._beside_key, _STAGE) is None:
                for names in _batches((name for name, _ in self.there("live")), 1_000):
                    self._remove(self._lacking(names))
                # From here on a row that is not beside any more has been moved, and is not surplus.
                self._client.hset(self._beside_key, _STAGE, _MOVING)
            self._move()
            self._remove(self._scan(f"{GONE}{self._live}"))
            self._switched(epoch, self._client)
        return self._settled(epoch)

    def _lacking(self, names: Iterable[str]) -> Iterator[str]:
        named, pipeline = list(names), self._client.pipeline(transaction=False)
        for name in named:
            pipeline.exists(f"{self._new}{name}".encode(errors="surrogateescape"))
        for name, there in zip(named, pipeline.execute(), strict=True):
            if not there:
                yield f"{self._live}{name}"

    def _move(self) -> None:
        move = self._client.register_script(MOVE)
        left = 0
        for keys in _batches(self._scan(self._new), ROWS_A_CALL):
            pairs = [text for key in keys for text in (key, self._live + key[len(self._new) :])]
            left += move([text.encode(errors="surrogateescape") for text in pairs], [self._type])
        if left:
            _logger.warning("%s: %d keys hold something else, and were left alone", self._sink.name, left)


class RankingRebuilding(_OnRedis):
    """One sorted set, and the versions of its members: both are renamed in one transaction with the ledger."""

    def __init__(self, sink: RedisRanking, url: str, site: Site) -> None:
        super().__init__(sink, url, site)
        self._ranking: RedisRanking = sink
        self._new = f"{self._space}{SEPARATOR}ranking"

    def _writer(self) -> Writer:
        sink, site = replace(self._ranking, ranking=self._new), self._site
        return RankingWriter(sink, self._url, site.flow_beside, site.feed, site.folder_beside)

    def there(self, which: Which) -> Iterator[Held]:
        name = self._ranking.ranking if which == "live" else self._new
        with told(self._sink):
            for member, score in self._client.zscan_iter(name, count=1_000):
                yield _text(member), repr(float(score))

    def wanted(self, rows: DataFrame) -> Iterator[Held]:
        score = F.col(quoted(self._ranking.score)).cast("double")
        for key, number in rows.select(joined_key(self._site.feed), score).toLocalIterator():
            if key is not None and number is not None and number == number:
                yield key, repr(float(number))

    def switch(self, epoch: Epoch) -> None:
        name = self._ranking.ranking
        with told(self._sink):
            if self._client.exists(self._beside_key):
                pipeline = self._client.pipeline(transaction=True)
                for new, old in ((self._new, name), (f"{VERSIONS}{self._new}", f"{VERSIONS}{name}")):
                    if self._client.exists(new):
                        pipeline.rename(new, old)
                    else:
                        pipeline.delete(old)
                self._switched(epoch, pipeline)
                pipeline.execute()
            self._remove(self._scan(f"{GONE}{name}{SEPARATOR}"))
        self._settled(epoch)


class _Number(str):
    """A number of JSON, which is not the text of the same digits."""

    __slots__ = ()


def _batches(given: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    items = iter(given)
    while some := tuple(islice(items, size)):
        yield some


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")
