"""OpenSearch as a sink: the suite, the mapping, versions, an alias that is switched, a server that is busy. On some
days all of it on Elasticsearch too."""

from __future__ import annotations

import contextlib
import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from millrace.config import Settings, load
from millrace.errors import OptionInvalid, SinkColumnUnfit, SinkFailed, SinkTargetGone, SinkTargetUnfit, SinkUnreachable
from millrace.sinks import DIFF, VERSION, Epoch, Feed, RefusedRow, Sink
from millrace.sinks.http import Answer, Caller
from millrace.sinks.opensearch import opensearch
from millrace.sinks.opensearch_bulk import Bulks, Index
from millrace.sinks.opensearch_index import LEDGER, Indexes
from millrace.testing.sinks import SinkSuite
from tests.sinks.way import Way

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)
_PAGE = 10_000


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def documents(url: str, index: str) -> Iterator[dict[str, Any]]:
    ask(url, "POST", f"/{index}/_refresh")
    found = ask(url, "POST", f"/{index}/_search?scroll=1m", {"size": _PAGE})
    while found["hits"]["hits"]:
        yield from (hit["_source"] for hit in found["hits"]["hits"])
        found = ask(url, "POST", "/_search/scroll", {"scroll": "1m", "scroll_id": found["_scroll_id"]})


class TestOpenSearch(SinkSuite):
    @pytest.fixture(autouse=True)
    def _server(self, url: str) -> Iterator[None]:
        self.url, self.way = url, Way(urlsplit(url).port or 0)
        yield
        self.way.close()

    def settings(self) -> Settings:
        return load(self.folder, {"MILLRACE_SINKS_OPENSEARCH_URL": f"http://127.0.0.1:{self.way.port}"})

    def sink(self, *, keyed: bool) -> Sink:  # noqa: ARG002 -- it holds keys
        index = f"held{next(_numbers)}"
        # A mapping of somebody's own, which is kept: names are exact terms of whatever length.
        body = {"mappings": {"properties": {"name": {"type": "keyword"}}}, "aliases": {index: {}}}
        ask(self.url, "PUT", f"/{index}-000001", body)
        return opensearch(index, key="id")

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        return list(documents(self.url, sink.index))  # type: ignore[attr-defined]

    def refused_row(self, sink: Sink) -> Mapping[str, Any]:  # noqa: ARG002 -- a hook
        return {"id": 4711, "name": "odd", "score": float("nan")}

    def too_large_row(self, sink: Sink) -> Mapping[str, Any]:  # noqa: ARG002 -- a hook
        return {"id": 4712, "name": "x" * 40_000}

    def away(self) -> AbstractContextManager[None]:
        return self.way.cut()


@pytest.fixture(params=["opensearch", pytest.param("elasticsearch", marks=pytest.mark.turn(1, 6))])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


Write = Callable[..., list[RefusedRow]]


@pytest.fixture
def write(spark: SparkSession, url: str, tmp_path: Path) -> Write:
    """Writes rows with a sign and a version, by a sink that is opened for them; gives what was refused."""
    numbers = itertools.count()
    settings = load(tmp_path, {"MILLRACE_SINKS_OPENSEARCH_URL": url})

    def written(index: str, columns: str, *rows: tuple[Any, ...], key: Any = "id") -> list[RefusedRow]:
        frame = spark.createDataFrame(list(rows), f"{columns}, {DIFF} int, {VERSION} long")
        sink, own = opensearch(index, key=key), tmp_path / index
        feed = Feed(frame.drop(DIFF, VERSION).schema, sink.key)
        sink.check(feed)
        refused: list[RefusedRow] = []
        with contextlib.closing(sink.open(settings, index, feed, own)) as writer:
            writer.write(Epoch(index, next(numbers), "[]"), frame, refused.extend)
        return refused

    return written


def test_types_and_what_is_added_later(url: str, write: Write) -> None:
    columns = (
        "id int, price decimal(12,2), big decimal(38,10), at timestamp, day date, tags array<string>, "
        "place struct<lat: double, names: array<string>>, about map<string, string>, raw binary, ok boolean"
    )
    big, at = Decimal("12345678901234567890.1234567890"), datetime(2026, 1, 2, 3, 4, 5, 678901)
    place, about = (1.5, ["x"]), {"a.b": "1", "c": "2"}
    row = (1, Decimal("9999999999.10"), big, at, date(1999, 1, 2), ["x", "y"], place, about, b"\0\xff", True)
    assert not write("typed", columns, (*row, 1, 5))
    assert list(ask(url, "GET", "/_alias/typed")) == ["typed-000001"]
    (found,) = documents(url, "typed")
    assert found == {
        "id": 1,
        "price": 9999999999.1,
        "big": str(big),
        "at": "2026-01-02T03:04:05.678901Z",
        "day": "1999-01-02",
        "tags": ["x", "y"],
        "place": {"lat": 1.5, "names": ["x"]},
        "about": about,
        "raw": "AP8=",
        "ok": True,
    }
    for query in (
        {"term": {"price": "9999999999.10"}},
        {"term": {"big": str(big)}},
        {"range": {"big.number": {"gt": 1e19}}},
        {"range": {"at": {"gte": "2026-01-02T03:04:05.678Z", "lt": "2026-01-02T03:04:05.679Z"}}},
        {"term": {"tags.keyword": "y"}},
        {"term": {"place.lat": 1.5}},
    ):
        assert ask(url, "POST", "/typed/_count", {"query": query})["count"] == 1, query
    assert ask(url, "POST", "/typed/_count", {"query": {"term": {"price": "9999999999.11"}}})["count"] == 0

    # A column that came, and a whole number that grew.
    assert not write("typed", "id long, price decimal(12,2), note string", (2**40, None, "new words", 1, 6))
    assert ask(url, "POST", "/typed/_refresh")
    assert ask(url, "POST", "/typed/_count", {"query": {"match": {"note": "words"}}})["count"] == 1
    with pytest.raises(SinkTargetUnfit, match=r"price.*millrace rebuild opensearch\.typed"):
        write("typed", "id long, price string", (3, "dear", 1, 7))


def test_an_older_row_never_takes_the_place_of_a_newer(url: str, write: Write) -> None:
    def held() -> list[str]:
        return sorted(row["name"] for row in documents(url, "aged"))

    columns = "region string, id long, name string"
    refused = write("aged", columns, ("a:b", 1, "nine", 1, 9), ("", 2, "ten", 1, 10), key=["region", "id"])
    assert not refused
    assert not write("aged", columns, ("a:b", 1, "eight", 1, 8), ("", 2, "gone", -1, 11), key=["region", "id"])
    assert held() == ["nine"]
    assert not write("aged", columns, ("a:b", 1, "eight", -1, 8), ("", 2, "ten", 1, 10), key=["region", "id"])
    assert held() == ["nine"]
    # Of one version, what was written last: the attempt that was committed.
    assert not write("aged", columns, ("a:b", 1, "nine again", 1, 9), ("", 2, "twelve", 1, 12), key=["region", "id"])
    assert held() == ["nine again", "twelve"]
    assert ask(url, "GET", "/aged/_doc/a%253Ab:1")["_version"] == 9


def test_an_index_that_somebody_deleted_is_not_made_again_without_its_documents(url: str, write: Write) -> None:
    write("emptied", "id long", (1, 1, 1))
    ask(url, "DELETE", "/emptied-000001")
    for ledger in (f"/{LEDGER}/_doc/emptied:opensearch.emptied", None):
        with pytest.raises(SinkTargetGone, match=r"up to epoch 0.*millrace rebuild opensearch\.emptied"):
            write("emptied", "id long", (2, 1, 2))
        if ledger:
            ask(url, "DELETE", ledger)


def test_keys_that_no_document_can_have(url: str, write: Write) -> None:
    rows = [(key, 1, 1, 1) for key in (None, "", "é" * 257, "é" * 256, 'quo"te\n')]
    refused = write("keyed", "id string, n int", *rows)
    assert sorted(str(each.key) for each in refused) == ["", "None", "é" * 257]
    assert {row["id"] for row in documents(url, "keyed")} == {"é" * 256, 'quo"te\n'}


def test_the_alias_is_switched_to_an_index_that_was_built_beside(spark: SparkSession, url: str, write: Write) -> None:
    write("switched", "id long", (1, 1, 1))
    sink = opensearch("switched", key="id")
    feed = Feed(spark.createDataFrame([], "id string").schema, ("id",))
    with contextlib.closing(Caller(sink, url, 30)) as caller:
        indexes = Indexes(sink, caller, "switched", feed)
        before = Index("switched", "switched-000001")
        after = indexes.beside(before)
        assert (after.physical, len(list(documents(url, "switched")))) == ("switched-000002", 1)
        indexes.switch(before, after)
        assert indexes.ready(pytest.fail) == after
        assert not list(documents(url, "switched"))
    # Without its alias, nothing is written to an index that the server would make up.
    task = Bulks(sink, url, after)
    ask(url, "DELETE", "/switched-000002/_alias/switched")
    with pytest.raises(SinkFailed, match="switched"):
        list(task(iter([(b'{"index":{"_id":"1"}}\n{}\n', None, None, None)])))


def test_a_busy_server_is_asked_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server itself is too quick to be busy: its answers are."""
    answers = [
        Answer(429, {}, b""),
        Answer(200, {}, b'{"errors":true,"items":[{"index":{"status":200}},{"index":{"status":429,"error":{}}}]}'),
        Answer(503, {}, b'{"error":"closed"}'),
        Answer(200, {}, b'{"errors":false,"items":[{"index":{"status":200}}]}'),
    ]
    sent: list[bytes] = []

    def answered(_: Caller, method: str, path: str, body: bytes, headers: Any) -> Answer:
        sent.append(body)
        return answers[min(len(sent), len(answers)) - 1]

    monkeypatch.setattr(Caller, "ask", answered)
    monkeypatch.setattr("millrace.sinks.opensearch_bulk.FIRST_PAUSE_S", 0.001)
    task = Bulks(opensearch("busy", key="id"), url, Index("busy", "busy-000001"))
    rows = [(b'{"index":{"_id":"1"}}\n{}\n{"delete":{"_id":"2"}}\n', None, None, None)]
    assert not list(task(iter(rows)))
    assert [body.count(b"\n") for body in sent] == [3, 3, 1, 1]
    answers[:] = [Answer(503, {}, b"")]
    with pytest.raises(SinkUnreachable, match="HTTP 503"):
        list(task(iter(rows)))


def test_what_is_refused_before_anything_runs(spark: SparkSession) -> None:
    with pytest.raises(OptionInvalid, match="lower-case"):
        opensearch("Orders")
    with pytest.raises(SinkColumnUnfit, match="_id"):
        opensearch("orders", key="_id").check(Feed(spark.createDataFrame([], "_id long").schema, ("_id",)))
