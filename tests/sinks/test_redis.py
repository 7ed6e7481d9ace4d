"""Redis as a sink: the suite for hashes, JSON and rankings, versions, times to live, every type."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import redis as client
from pyspark.sql import SparkSession

from millrace import local
from millrace.config import Settings, load
from millrace.errors import ExtraMissing, OptionInvalid, SinkColumnUnfit, SinkKeyOther, SinkTargetGone, SinkTargetUnfit
from millrace.sinks import DIFF, VERSION, Epoch, Feed, RefusedRow, Sink
from millrace.sinks.redis import Redis, redis, redis_ranking
from millrace.sinks.redis_scripts import LEDGER, RANKING, ROWS
from millrace.testing.sinks import SinkSuite

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)
_READ = {"id": int, "name": str, "score": float, "seen": "true".__eq__}


class _OnValkey(SinkSuite):
    @pytest.fixture(autouse=True)
    def _server(self, settings: Settings, valkey: str) -> Iterator[None]:
        self.project = settings
        with contextlib.closing(client.Redis.from_url(valkey, decode_responses=True)) as self.server:
            yield

    def settings(self) -> Settings:
        return self.project

    def away(self) -> AbstractContextManager[None]:
        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            local.down(self.project, ("valkey",))
            try:
                yield
            finally:
                local.up(self.project, ("valkey",))

        return stopped()


class TestHashes(_OnValkey):
    form: ClassVar[Literal["hash", "json"]] = "hash"
    odd = ""

    def sink(self, *, keyed: bool) -> Sink:  # noqa: ARG002 -- it holds keys
        return redis(f"held{next(_numbers)}", key="id", form=self.form)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        assert isinstance(sink, Redis)
        return self.read([*{*self.server.scan_iter(f"{sink.prefix}:*", count=10_000)} - {self.odd}])

    def read(self, keys: list[str]) -> list[dict[str, Any]]:
        pipeline = self.server.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        rows = pipeline.execute()
        return [{name: read(row[name]) for name, read in _READ.items() if name in row} for row in rows]

    def refused_row(self, sink: Sink) -> Mapping[str, Any]:
        self.odd = f"{sink.prefix}:4711"  # type: ignore[attr-defined]
        self.server.rpush(self.odd, "somebody else's list")
        return {"id": 4711, "name": "odd"}

    def too_large_row(self, sink: Sink) -> Mapping[str, Any]:  # noqa: ARG002 -- a hook
        self.server.config_set("proto-max-bulk-len", 1024 * 1024)
        return {"id": 4712, "name": "x" * 1024 * 1024}


@pytest.mark.turn(0, 2)
class TestJson(TestHashes):
    form = "json"

    def read(self, keys: list[str]) -> list[dict[str, Any]]:
        return [json.loads(text) for text in (self.server.mget(keys) if keys else [])]


@pytest.mark.turn(1, 2)
class TestRanking(_OnValkey):
    kept = ("id", "score")

    def sink(self, *, keyed: bool) -> Sink:  # noqa: ARG002 -- it holds keys
        return redis_ranking(f"scores{next(_numbers)}", member="id", score="score")

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        found = self.server.zrange(sink.ranking, 0, -1, withscores=True)  # type: ignore[attr-defined]
        return [{"id": int(member), "score": score} for member, score in found]

    def refused_row(self, sink: Sink) -> Mapping[str, Any]:  # noqa: ARG002 -- a hook
        return {"id": 4711, "score": float("nan")}

    def _holds(self, sink: Sink, keyed: bool, rows: Any, **how: Any) -> None:
        """A member without a score is not in a ranking."""
        last = {row[0]: row for row in rows}
        super()._holds(sink, keyed, [row for row in last.values() if row[2] is not None], **how)


@pytest.fixture
def server(settings: Settings, valkey: str) -> Iterator[Any]:
    with contextlib.closing(client.Redis.from_url(local.address(settings, "valkey"), decode_responses=True)) as found:
        yield found


@pytest.mark.parametrize("form", ["hash", "json"])
def test_an_older_row_never_takes_the_place_of_a_newer(server: Any, form: str) -> None:
    key, gone, value = f"old-{form}:1", f"millrace:gone:old-{form}:1", '{"name":"%s"}'
    script = server.register_script(ROWS)

    def write(version: str, text: str = "{}") -> str | None:
        assert script(keys=[key], args=[form, "", 60_000, version, text]) == []
        if not server.exists(key):
            return None
        return str(server.hget(key, "name") if form == "hash" else json.loads(server.get(key))["name"])

    assert write("9", value % "nine") == "nine"
    assert write("8", value % "eight") == "nine"
    assert write("9", value % "nine again") == "nine again"
    assert write("-8") == "nine again"
    # As numbers: 10 is more than 9.
    assert write("-10") is None
    assert 0 < server.pttl(gone) <= 60_000
    assert write("9", value % "nine") is None
    assert write("11", value % "eleven") == "eleven"
    assert not server.exists(gone)


def test_an_older_score_never_takes_the_place_of_a_newer(server: Any) -> None:
    script = server.register_script(RANKING)

    def write(version: str, score: str) -> float | None:
        assert script(keys=["old-scores"], args=[60_000, "ann", version, score]) == []
        found = server.zscore("old-scores", "ann")
        return None if found is None else float(found)

    assert write("9", "1.5") == 1.5
    assert write("8", "7") == 1.5
    assert write("-10", "0") is None
    assert write("9", "1.5") is None
    assert write("11", "2") == 2


def test_types_keys_and_times_to_live(spark: SparkSession, settings: Settings, server: Any, tmp_path: Path) -> None:
    columns = "region string, id long, amount decimal(38,10), at timestamp, tags array<string>, raw binary, note string"
    big, at = Decimal("12345678901234567890.1234567890"), datetime(2026, 1, 2, 3, 4, 5, 678901)
    rows = spark.createDataFrame(
        [
            ("a:b", 1, big, at, ["x", 'y"'], b"\0\xff", None, 1, 7),
            ("two\nlines", 3, None, None, None, None, "lines\n", 1, 7),
            (None, 2, None, None, None, None, "lost", 1, 7),
        ],
        f"{columns}, {DIFF} int, {VERSION} long",
    )
    feed, refused = Feed(spark.createDataFrame([], columns).schema, ("region", "id")), list[RefusedRow]()
    for form in ("hash", "json"):
        sink = redis(f"typed-{form}", key=["region", "id"], ttl="1 hour", form=form)  # type: ignore[arg-type]
        with contextlib.closing(sink.open(settings, "flow", feed, tmp_path / form)) as writer:
            writer.write(Epoch("flow", 0, "[]"), rows, refused.extend)
        server.delete(f"{LEDGER}flow:redis.typed-{form}")
        emptied = contextlib.closing(sink.open(settings, "flow", feed, tmp_path / form))
        with emptied as writer, pytest.raises(SinkTargetGone, match="up to epoch 0"):
            writer.write(Epoch("flow", 1, "[]"), rows, refused.extend)
    assert server.hgetall("typed-hash:a%3Ab:1") == {
        "__version": "7",
        "region": "a:b",
        "id": "1",
        "amount": str(big),
        "at": "2026-01-02T03:04:05.678901Z",
        "tags": '["x","y\\""]',
        "raw": "AP8=",
    }
    document = json.loads(server.get("typed-json:a%3Ab:1"), parse_float=Decimal)
    assert document["amount"] == big
    assert (document["__version"], document["note"], document["tags"]) == (7, None, ["x", 'y"'])
    assert server.hget("typed-hash:two\nlines:3", "note") == "lines\n"
    assert 0 < server.pttl("typed-hash:a%3Ab:1") <= 3_600_000
    assert [(each.key, "lost" in each.row, "null" in each.reason) for each in refused] == [('{"id":2}', True, True)] * 2


def test_what_is_refused_before_anything_runs(
    spark: SparkSession, settings: Settings, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for options in ({"form": "xml"}, {"ttl": "0 seconds"}, {"key": []}):
        with pytest.raises(OptionInvalid):
            redis("customer", **options)  # type: ignore[arg-type]
    with pytest.raises(SinkKeyOther, match="known by id"):
        redis("customer", key="region").keyed(("id",), ())
    assert redis("customer", key=["region", "id"]).keyed(("id",), ()) == ("region", "id")
    feed = Feed(spark.createDataFrame([], "id long, name string, score double").schema, ("id",))
    with pytest.raises(SinkColumnUnfit, match="a score is a number"):
        redis_ranking("scores", member="id", score="name").check(feed)
    server.set("taken", "a text")
    with pytest.raises(SinkTargetUnfit, match="it is a string there"):
        redis_ranking("taken", member="id", score="score").open(settings, "flow", feed, tmp_path)
    monkeypatch.setenv("MILLRACE_SINKS_CACHE_URL", "http://:canary@localhost")
    with pytest.raises(SinkTargetUnfit, match="not a URL of Redis") as raised:
        redis("customer", key="id", server="cache").open(load(tmp_path), "flow", feed, tmp_path)
    assert "canary" not in str(raised.value)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ExtraMissing, match=r"millrace\[redis\]"):
        redis("customer", key="id").open(settings, "flow", feed, tmp_path)
