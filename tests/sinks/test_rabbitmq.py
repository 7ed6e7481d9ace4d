"""RabbitMQ as a sink: the suite, ids, order, a queue that is full, gone, or another than was said; a server killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace import local
from millrace.config import Settings, load
from millrace.errors import (
    ExtraMissing,
    GuaranteeMissing,
    MillraceError,
    OptionInvalid,
    QueueServerUnknown,
    SinkFailed,
    SinkTargetUnfit,
    SinkUnreachable,
)
from millrace.flow import App
from millrace.sinks import DIFF, VERSION, Epoch, Feed, RefusedRow, Sink, rabbitmq_writer
from millrace.sinks import rabbitmq_publishing as publishing
from millrace.sinks.rabbitmq import RabbitMQ, rabbitmq
from millrace.sinks.rabbitmq_writer import WRITTEN_DOWN_S
from millrace.testing.sinks import SinkSuite
from tests import rabbit
from tests.command import until
from tests.sinks.way import Way

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)
COLUMNS = "id long, name string"
CANARY = "canary-77ab10"
NOTHING = Feed(StructType())


@pytest.fixture
def url(settings: Settings, rabbitmq: str) -> Iterator[str]:
    first = next(_numbers)
    yield (found := local.address(settings, "rabbitmq"))
    with rabbit.channel(found) as opened:  # they would stay in the server's memory
        for number in range(first, next(_numbers)):
            opened.queue_delete(f"queue{number}")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who kills the server waits until it has written a new queue down."""
    monkeypatch.setattr(rabbitmq_writer, "WRITTEN_DOWN_S", 0.0)


def settings_of(folder: Path, url: str) -> Settings:
    return load(folder, {"MILLRACE_QUEUES_RABBITMQ_URL": url})


class TestRabbitMQ(SinkSuite):
    many = 20_000
    in_order = True

    @pytest.fixture(autouse=True)
    def _server(self, url: str) -> Iterator[None]:
        self.url, self.way = url, Way(urlsplit(url).port or 0)
        yield
        self.way.close()

    def settings(self) -> Settings:
        return settings_of(self.folder, f"amqp://guest:guest@127.0.0.1:{self.way.port}/")

    def sink(self, *, keyed: bool) -> Sink:
        return rabbitmq(f"queue{next(_numbers)}", key="id" if keyed else None)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        """What workers that mind the ids have: of keys the last message, otherwise all."""
        taken = {each.id: each for each in rabbit.look(self.url, sink.queue)}  # type: ignore[attr-defined]
        rows = [(json.loads(each.body), each.headers["millrace.diff"]) for each in taken.values()]
        if not sink.key:
            return [row for row, _ in rows]
        last = {row["id"]: (row, diff) for row, diff in rows}
        return [row for row, diff in last.values() if diff > 0]

    def refused_row(self, sink: Sink) -> Mapping[str, Any]:
        """For its size, and for nothing else: what waits beside it then goes on another channel."""
        return self.too_large_row(sink)

    def too_large_row(self, sink: Sink) -> Mapping[str, Any]:  # noqa: ARG002 -- a hook
        return {"id": 4712, "name": "x" * 17 * 1024 * 1024}

    def away(self) -> AbstractContextManager[None]:
        return self.way.cut()


class Writing:
    """Writes epochs of a stream's rows to a queue of its own."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, **options: Any) -> None:
        self._spark, self.url, self.folder = spark, url, folder
        self.sink: RabbitMQ = rabbitmq(f"queue{next(_numbers)}", **{"concurrency": 2, **options})
        self.refused: list[RefusedRow] = []

    def write(self, number: int, rows: Any, *, partitions: int = 1, once: bool = False) -> None:
        frame = rows if not isinstance(rows, list) else self._spark.createDataFrame(rows, COLUMNS)
        signed = frame.repartition(partitions).withColumns({DIFF: F.lit(1), VERSION: F.lit(number)})
        writer = self.sink.open(settings_of(self.folder, self.url), "flow", Feed(frame.schema), self.folder)
        writer.write(Epoch("flow", number, "[]", checked=not once, once=once), signed, self.refused.extend)

    @property
    def messages(self) -> list[rabbit.Found]:
        return rabbit.look(self.url, self.sink.queue)


@pytest.fixture
def writing(spark: SparkSession, url: str, tmp_path: Path) -> Callable[..., Writing]:
    return lambda **options: Writing(spark, url, tmp_path, **options)


def test_messages_have_ids_that_a_repeat_has_too_and_are_in_order(writing: Callable[..., Writing]) -> None:
    mine = writing()
    rows = [(number, "same" if number < 3 else "other") for number in (1, 1, 1, *range(2, 500))]
    mine.write(0, rows)
    first = mine.messages
    assert len({message.id for message in first}) == len(rows)
    assert [json.loads(message.body)["id"] for message in first] == [number for number, _ in rows]
    assert first[0].headers == {"millrace.flow": "flow", "millrace.diff": 1, "millrace.version": 0}
    (mine.folder / "ledger.json").unlink()  # as if it had been killed before the ledger
    mine.write(0, rows, partitions=3)
    again = mine.messages[len(rows) :]
    assert {message.id for message in again} == {message.id for message in first}
    mine.write(1, rows)
    assert not {message.id for message in mine.messages[2 * len(rows) :]} & {message.id for message in first}


def test_a_queue_that_is_full_is_waited_for(writing: Callable[..., Writing], monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"x-queue-type": "classic", "x-max-length": 100, "x-overflow": "reject-publish"}
    mine = writing(arguments=full)
    wanted, taken, stop = {str(number) for number in range(1_000)}, set[str](), threading.Event()

    def work() -> None:
        while not stop.wait(0.05):
            taken.update(json.loads(found.body)["name"] for found in rabbit.take(mine.url, mine.sink.queue))

    rabbit.declare(mine.url, mine.sink.queue, full)
    worker = threading.Thread(target=work)
    worker.start()
    try:
        mine.write(0, [(number, str(number)) for number in range(1_000)])
        until(lambda: taken == wanted, "all of them with the worker")
    finally:
        stop.set()
        worker.join()
    # Published by this process, so that its patience can be made shorter.
    monkeypatch.setattr(publishing, "FULL_S", 0.5)
    rows = ((f"i{number}", "{}", None, 1, 1) for number in range(200))
    with pytest.raises(SinkFailed, match="the queue takes no more"):
        publishing.Publishing(mine.sink, mine.url, mine.sink.queue, "flow")(rows)
    assert rabbit.count(mine.url, mine.sink.queue) >= 100
    assert not mine.refused


def test_at_most_once_what_waits_beside_a_row_that_is_too_large_is_not_published_again(
    writing: Callable[..., Writing],
) -> None:
    mine = writing()
    rows = [*((number, "fits") for number in range(20)), (20, "x" * 17 * 1024 * 1024)]
    with pytest.raises(SinkFailed, match="larger than"):
        mine.write(0, rows, once=True)
    assert not mine.refused
    mine.write(1, [(21, "fits")], once=True)
    ids = [message.id for message in mine.messages]
    assert len(ids) == len(set(ids))
    assert 1 <= len(ids) <= 21


def test_a_queue_that_is_deleted_is_made_anew_and_nothing_is_refused(
    writing: Callable[..., Writing], spark: SparkSession, url: str
) -> None:
    mine = writing()
    rows = spark.createDataFrame([(1, "one"), (2, "two")], COLUMNS)
    signed = rows.withColumns({DIFF: F.lit(1), VERSION: F.lit(0)})
    writer = mine.sink.open(settings_of(mine.folder, url), "flow", Feed(rows.schema), mine.folder)
    with rabbit.channel(url) as opened:
        opened.queue_delete(mine.sink.queue)
    with pytest.raises(SinkFailed, match="is gone: NO_ROUTE"):
        writer.write(Epoch("flow", 0, "[]"), signed, mine.refused.extend)
    writer.close()
    mine.write(0, [(1, "one"), (2, "two")])
    assert [json.loads(found.body)["name"] for found in mine.messages] == ["one", "two"]
    assert not mine.refused


def test_the_server_is_killed_in_the_middle_of_an_epoch(
    writing: Callable[..., Writing], spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_writer, "WRITTEN_DOWN_S", WRITTEN_DOWN_S)
    mine = writing()
    rows = spark.range(0, 30_000, 1, 2).selectExpr("id", "concat('n', id) name")
    (pid,) = (row.pid for row in local.status(settings) if row.server == "rabbitmq")
    first = 2 * publishing.WAITING_ROWS

    class Killing(publishing.Publishing):
        """Kills the server when as many are confirmed as may wait, and more are to come."""

        def __call__(self, rows: Iterator[Any]) -> Iterable[RefusedRow]:
            return super().__call__(self.killing(rows))

        def killing(self, rows: Iterator[Any]) -> Iterator[Any]:
            for number, row in enumerate(rows):
                if number == first:
                    with contextlib.suppress(ProcessLookupError):  # the other task has
                        os.kill(pid, signal.SIGKILL)
                yield row

    with monkeypatch.context() as patched:
        patched.setattr(rabbitmq_writer, "Publishing", Killing)
        with pytest.raises(SinkUnreachable):
            mine.write(0, rows, partitions=2)
    local.up(settings, ("rabbitmq",))

    def is_written() -> bool:  # as a flow does, which tries again: a busy machine takes its time to elect a leader
        try:
            mine.write(0, rows, partitions=2)
        except (SinkUnreachable, SinkFailed) as error:
            print(error)  # why, if it never is
            return False
        return True

    until(is_written, "the epoch")
    messages = mine.messages
    assert len({message.id for message in messages}) == 30_000
    assert {json.loads(message.body)["id"] for message in messages} == set(range(30_000))
    assert len(messages) >= 30_000 + publishing.WAITING_ROWS, "those of the first try are there too, with their ids"


def test_a_server_that_stops_is_noticed(
    writing: Callable[..., Writing], settings: Settings, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """By this process too."""
    monkeypatch.setattr(publishing, "ANSWER_S", 2)
    mine = writing()
    rows = ((f"i{number}", json.dumps({"id": number}), None, 1, 0) for number in itertools.count())
    mine.write(0, [(1, "one")])
    (pid,) = (row.pid for row in local.status(settings) if row.server == "rabbitmq")
    victim = psutil.Process(pid)

    def endless() -> Iterator[Any]:
        for number, row in enumerate(rows):
            if number == 10_000:
                victim.suspend()
            yield row

    try:
        with pytest.raises(SinkUnreachable, match="no confirmation within 2 s"):
            publishing.Publishing(mine.sink, url, mine.sink.queue, "flow")(endless())
    finally:
        victim.resume()


def test_what_cannot_be_is_one_sentence(writing: Callable[..., Writing], url: str, tmp_path: Path) -> None:
    mine = writing()
    rabbit.declare(url, mine.sink.queue)  # a classic one
    with pytest.raises(SinkTargetUnfit, match=r"inequivalent arg 'x-queue-type'.*name its arguments"):
        mine.write(0, [(1, "one")])
    passing = writing()
    rabbit.declare(url, passing.sink.queue, durable=False)
    with pytest.raises(SinkTargetUnfit, match="it must be durable"):
        passing.write(0, [(1, "one")])
    fine = writing(arguments={"x-queue-type": "classic", "x-max-length": 10})
    fine.write(0, [(1, "one")])
    assert len(fine.messages) == 1

    port = urlsplit(url).port
    cases: list[tuple[str, type[MillraceError], str]] = [
        (f"amqp://guest:{CANARY}@127.0.0.1:{port}/", SinkUnreachable, "ACCESS_REFUSED"),
        (f"amqp://guest:{CANARY}@127.0.0.1:1/", SinkUnreachable, "Connection refused"),
        (f"https://guest:{CANARY}@127.0.0.1", SinkTargetUnfit, "not a URL of RabbitMQ"),
    ]
    for wrong, kind, said in cases:
        fine.url = wrong
        with pytest.raises(kind, match=said) as raised:
            fine.write(1, [(1, "one")])
        assert CANARY not in str(raised.value)
    with pytest.raises(QueueServerUnknown):
        rabbitmq("q", server="rabit").open(load(tmp_path, {}), "flow", NOTHING, tmp_path)


def test_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[dict[str, Any]] = [
        {"queue": ""},
        {"queue": "amq.gen"},
        {"queue": "€" * 100},
        {"queue": "q", "arguments": {"x-max-length": 1.5}},
        {"queue": "q", "arguments": "quorum"},
        {"queue": "q", "concurrency": 0},
        {"queue": "q", "key": []},
    ]
    for each in options:
        with pytest.raises(OptionInvalid):
            rabbitmq(**each)
    sink = rabbitmq("orders to pack")
    assert (sink.name, sink.guarantee) == ("rabbitmq.orders-to-pack", "at least once with ids")
    assert sink.servers(load(tmp_path, {})) == ("rabbitmq",)
    assert sink.servers(settings_of(tmp_path, "amqp://x")) == ()
    assert replace(sink, server="other").servers(load(tmp_path, {})) == ()
    views = App("shop").topic("views", "id long")
    with pytest.raises(GuaranteeMissing):
        views.to(sink, delivery="exactly once")
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(ExtraMissing, match=r"millrace\[rabbitmq\]"):
        sink.open(settings_of(tmp_path, "amqp://a:b@127.0.0.1:1"), "flow", NOTHING, tmp_path)
