"""Webhooks, against a receiver that is a process of its own and can be killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.config import Settings, load
from millrace.errors import OptionInvalid, SinkRefusesMost, SinkServerUnknown, SinkTargetUnfit, SinkUnreachable
from millrace.sinks import DIFF, VERSION, Epoch, Feed, RefusedRow, Sink, tasks, webhook_writer
from millrace.sinks.circuit import Circuit, circuit_of
from millrace.sinks.messages import ID, messages
from millrace.sinks.webhook import webhook
from millrace.testing.sinks import SinkSuite
from tests.command import until

pytestmark = pytest.mark.spark

_numbers = itertools.count(1)


class Server:
    """The receiver, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "posts.jsonl"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.sinks.receiver", str(self.port), str(self.file)]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        until(self._answers, "a receiver that answers")

    def _answers(self) -> bool:
        with socket.socket() as asked:
            return asked.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def posts(self, path: str) -> list[dict[str, Any]]:
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        return [post for post in map(json.loads, lines) if post["path"] == path]


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("receiver"))
    yield server
    server.kill()


def settings_of(folder: Path, url: str, name: str = "hook") -> Settings:
    return load(folder, {f"MILLRACE_SINKS_{name.upper()}_URL": url})


class TestWebhook(SinkSuite):
    many = 2_000
    in_order = True

    @pytest.fixture(autouse=True)
    def _server(self, receiver: Server) -> None:
        self.receiver, self.path = receiver, ""

    def settings(self) -> Settings:
        return settings_of(self.folder, f"http://127.0.0.1:{self.receiver.port}{self.path}")

    def sink(self, *, keyed: bool) -> Sink:
        number = next(_numbers)
        self.path = f"/hook{number}"
        return webhook("hook", key="id" if keyed else None, name=f"hook{number}")

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        """What a receiver that minds the ids has: of keys the last post, otherwise all."""
        taken = {post["id"]: post for post in self.receiver.posts(f"/{sink.name}") if post["status"] == 204}
        if not sink.key:
            return [post["row"] for post in taken.values()]
        last: dict[int, dict[str, Any]] = {}
        for post in taken.values():
            last[post["row"]["id"]] = post
        return [post["row"] for post in last.values() if post["diff"] > 0]

    def refused_row(self, sink: Sink) -> Mapping[str, Any]:  # noqa: ARG002 -- a hook
        return {"id": 4711, "name": "odd"}

    def too_large_row(self, sink: Sink) -> Mapping[str, Any]:  # noqa: ARG002 -- a hook
        return {"id": 4712, "name": "x" * 100_000}

    def away(self) -> AbstractContextManager[None]:
        @contextlib.contextmanager
        def killed() -> Iterator[None]:
            self.receiver.kill()
            try:
                yield
            finally:
                self.receiver.start()

        return killed()


COLUMNS = "id long, name string"


class Writing:
    """Writes epochs of a stream's rows to a path of its own."""

    def __init__(self, spark: SparkSession, receiver: Server, folder: Path) -> None:
        self._spark, self.receiver, self._folder = spark, receiver, folder
        self.number = next(_numbers)
        self.sink = webhook("hook", concurrency=3, name=f"webhook{self.number}")
        self.refused: list[RefusedRow] = []

    def write(self, number: int, *rows: tuple[int, str], partitions: int = 1, once: bool = False) -> None:
        url = f"http://ann:canary@127.0.0.1:{self.receiver.port}/webhook{self.number}?token=canary"
        feed = Feed(self._spark.createDataFrame([], COLUMNS).schema)
        writer = self.sink.open(settings_of(self._folder, url), "flow", feed, self._folder)
        frame = self._spark.createDataFrame(list(rows), COLUMNS).repartition(partitions)
        signed = frame.withColumns({DIFF: F.lit(1), VERSION: F.lit(number)})
        writer.write(Epoch("flow", number, "[]", checked=not once, once=once), signed, self.refused.extend)

    @property
    def posts(self) -> list[dict[str, Any]]:
        return self.receiver.posts(f"/webhook{self.number}?token=canary")


@pytest.fixture
def writing(spark: SparkSession, receiver: Server, tmp_path: Path) -> Writing:
    return Writing(spark, receiver, tmp_path)


def test_rows_that_are_alike_have_ids_of_their_own_that_partitions_do_not_change(writing: Writing) -> None:
    rows = [(1, "same")] * 3 + [(2, "other")]
    writing.write(0, *rows, partitions=3)
    first = writing.posts
    assert len({post["id"] for post in first}) == len(first) == 4
    assert all(post["header"] == post["id"] and post["authorization"].startswith("Basic ") for post in first)
    # Another try of the same epoch, as if the ledger had not been reached, with other partitions.
    (writing._folder / "ledger.json").unlink()
    writing.write(0, *rows, partitions=1)
    assert {post["id"] for post in writing.posts[4:]} == {post["id"] for post in first}
    writing.write(1, *rows)
    assert not {post["id"] for post in writing.posts[8:]} & {post["id"] for post in first}


def test_a_key_that_is_null_has_another_id_than_an_empty_one(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(None, 1), ("", 1)], "name string, n int").withColumns(
        {DIFF: F.lit(1), VERSION: F.lit(7)}
    )
    feed = Feed(rows.select("name", "n").schema, ("name",))
    told = messages(rows, feed, "flow", Epoch("flow", 7, "[]"), 1).collect()
    assert len({row[ID] for row in told}) == 2


def test_rows_of_a_partition_are_posted_in_their_order_and_not_too_many_at_once(writing: Writing) -> None:
    rows = [(number, "slow" if number % 7 == 0 else "quick") for number in range(60)]
    rows[20] = (20, "fails 2")
    writing.write(0, *rows)
    taken = [post["row"]["id"] for post in writing.posts if post["status"] == 204]
    assert taken == list(range(60))
    writing.write(1, *[(number, "slow") for number in range(60)], partitions=8)
    assert max(post["at_once"] for post in writing.posts) <= writing.sink.concurrency


def test_a_busy_receiver_is_asked_again_and_a_row_that_it_refuses_is_kept(writing: Writing) -> None:
    writing.write(0, (1, "fails 3"), (2, "odd"), (3, "fine"))
    assert sorted(post["status"] for post in writing.posts if post["row"]["id"] == 1) == [204, 503, 503, 503]
    (refused,) = writing.refused
    assert refused.reason == "HTTP 422: no such customer"
    assert refused.row == '{"id":2,"name":"odd"}'


@pytest.mark.parametrize(("name", "reason"), [("loses 2", "closed connection"), ("breaks 2", "HTTP 500")])
def test_at_most_once_a_row_that_may_have_been_taken_is_not_posted_again(
    name: str, reason: str, writing: Writing
) -> None:
    busy, lost, rest = (10 * writing.number + place for place in range(3))  # the receiver counts by what it is told
    rows = [(busy, "fails 2"), (lost, name), (rest, "never asked")]  # who is busy has not taken it
    with pytest.raises(SinkUnreachable, match=reason):
        writing.write(0, *rows, once=True)
    assert [post["row"]["id"] for post in writing.posts] == [busy, busy, busy, lost]
    circuit = circuit_of("flow", writing.sink.name)
    until(lambda: not circuit.open_s(), "a circuit that is half open")
    writing.write(1, (4, "fine"))
    # Where a repeat is known by its id, it is posted until somebody answers.
    writing.write(2, *rows)
    assert [post["row"]["id"] for post in writing.posts[5:]] == [busy, busy, busy, lost, lost, lost, rest]


def test_a_receiver_that_does_not_know_us_opens_the_circuit(writing: Writing) -> None:
    with pytest.raises(SinkUnreachable, match="HTTP 401"):
        writing.write(0, (1, "stranger"))
    posts = len(writing.posts)
    with pytest.raises(SinkUnreachable, match=r"HTTP 401; it is asked again in \d+ s") as raised:
        writing.write(0, (1, "fine"))
    assert "canary" not in str(raised.value)
    circuit = circuit_of("flow", writing.sink.name)
    until(lambda: not circuit.open_s(), "a circuit that is half open")
    # Half open: one try.
    with pytest.raises(SinkUnreachable, match="HTTP 503"):
        writing.write(0, (1, "fails 9"))
    assert len(writing.posts) == posts + 1
    until(lambda: not circuit.open_s(), "a circuit that is half open")
    writing.write(0, (1, "fine"))
    assert circuit.failures == 0
    assert not writing.refused


def test_an_address_at_which_nobody_takes_posts_is_no_rows_fault(writing: Writing) -> None:
    with pytest.raises(SinkUnreachable, match=r"every row of the epoch was answered with HTTP 4(04|10)"):
        writing.write(0, (1, "nobody"), (2, "nobody"), (3, "gone"), partitions=2)
    assert not writing.refused
    circuit = circuit_of("flow", writing.sink.name)
    until(lambda: not circuit.open_s(), "a circuit that is half open")
    # One row may mean itself by that.
    writing.write(0, (1, "nobody"), (2, "fine"))
    assert [each.reason for each in writing.refused] == ["HTTP 404"]


@pytest.mark.parametrize(
    ("partitions", "reason"), [(1, "each of 4 rows"), (2, "every row of the epoch")], ids=["of one task", "of all"]
)
def test_nor_is_it_where_more_rows_are_posted_than_may_be_refused(
    partitions: int, reason: str, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MOST_REFUSED", 3)
    monkeypatch.setattr(webhook_writer, "MOST_REFUSED", 3)
    with pytest.raises(SinkUnreachable, match=f"{reason}.* answered with HTTP 404"):
        writing.write(0, *[(number, "nobody") for number in range(5)], partitions=partitions)
    circuit = circuit_of("flow", writing.sink.name)
    until(lambda: not circuit.open_s(), "a circuit that is half open")
    # Somebody is there.
    with pytest.raises(SinkRefusesMost, match="more than 3 rows"):
        writing.write(0, (0, "fine"), *[(number, "nobody") for number in range(1, 6)])


def test_the_circuit_stays_open_longer_each_time() -> None:
    circuit = Circuit()
    spans = []
    for _ in range(8):
        circuit.failed("away")
        spans.append(circuit.open_s())
    assert 0.4 < spans[0] <= 1.0
    assert 14 < spans[-1] <= 30.0
    circuit.answered()
    assert not circuit.open_s()


def test_what_is_refused_before_anything_runs(writing: Writing, tmp_path: Path) -> None:
    with pytest.raises(OptionInvalid, match="from 1 to"):
        webhook("hook", concurrency=0)
    feed = Feed(writing._spark.createDataFrame([], COLUMNS).schema)
    with pytest.raises(SinkServerUnknown):
        webhook("hok").open(settings_of(tmp_path, "http://localhost"), "flow", feed, tmp_path)
    with pytest.raises(SinkTargetUnfit, match="not a URL of HTTP") as raised:
        webhook("hook").open(settings_of(tmp_path, "ftp://canary.example"), "flow", feed, tmp_path)
    assert "canary" not in str(raised.value)
