"""Epochs into Kafka exactly once: prepared, committed, done again, torn, by two drivers, from an older checkpoint.

Here the driver is a test that writes epochs as `foreachBatch` does, with the checkpoint's files as Spark writes them.
What readers of committed records see is the judge. Kills of whole processes are in `test_delivery_kills`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace import local
from millrace.engine import Run
from millrace.engine.failures import run_failed
from millrace.engine.plan import Flow
from millrace.errors import (
    CheckpointOlder,
    EpochTorn,
    FlowFailed,
    FlowTakenOver,
    MillraceError,
    SpeculationRefused,
    TransactionTimeout,
)
from millrace.flow import App
from millrace.kernel import delivering
from millrace.log import Log
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

OUT = "out"
ROWS = 20
POINTS = ("BEFORE_PREPARE", "AFTER_PREPARE", "AFTER_SOME_COMMITS", "AFTER_ALL_COMMITS")


def some_flow() -> Flow:
    app = App("any")

    @app.stream(app.topic("in", "id long"))
    def copied(rows: DataFrame) -> DataFrame:
        return rows

    return Flow("copied", (copied,))


FLOW = some_flow()


@dataclass
class Driver:
    """A flow of two tasks an epoch; epoch N gives the values N * ROWS up to (N + 1) * ROWS."""

    spark: SparkSession
    log: Log
    checkpoint: Path
    name: str
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.checkpoint.exists():
            (self.checkpoint / "offsets").mkdir(parents=True)
            (self.checkpoint / "commits").mkdir()
            (self.checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    @property
    def _options(self) -> dict[str, str]:
        own = {"flow": self.name, "checkpoint": str(self.checkpoint), "topic": self.log.topics.outside(OUT)}
        return {**self.log.data_source.options, **own, **self.options}

    def begin(self) -> None:
        with told():
            delivering.begin(self.spark, self._options)

    def end(self) -> None:
        delivering.end(self.checkpoint)

    def plan(self, epoch: int, end: int | None = None) -> None:
        """As Spark does before it runs an epoch."""
        offsets = json.dumps({"in": {"0": (epoch + 1) * ROWS if end is None else end}})
        (self.checkpoint / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{offsets}")

    def write(self, epoch: int, rows: DataFrame | None = None) -> None:
        if not (self.checkpoint / "offsets" / str(epoch)).exists():
            self.plan(epoch)
        if rows is None:
            numbers = self.spark.range(epoch * ROWS, (epoch + 1) * ROWS, 1, 2)
            rows = numbers.selectExpr("cast(id % 3 as string) as key", "cast(id as string) as value")
        with told():
            writing = rows.write.format(delivering.FORMAT).options(**self._options, epoch=str(epoch))
            writing.mode("append").save()

    def commit(self, epoch: int) -> None:
        """As Spark does after it."""
        (self.checkpoint / "commits" / str(epoch)).write_text("v1\n{}")

    @contextmanager
    def stopping_at(self, point: str) -> Iterator[None]:
        """The epoch stops there, and whatever this JVM knows of the flow is gone, as after a crash."""
        java: Any = self.spark._jvm
        java.System.setProperty("millrace.fail.point", point)
        try:
            with pytest.raises(FlowFailed) as failure:
                yield
            assert point in str(failure.value.__cause__)
        finally:
            java.System.clearProperty("millrace.fail.point")
            self.end()

    def values(self) -> list[int]:
        return [int(record.text or "") for record in self.log.read(OUT)]

    def has(self, epochs: int) -> bool:
        return sorted(self.values()) == list(range(epochs * ROWS))

    def held_back(self) -> int:
        """How many offsets are there that readers do not get to."""
        ends = [self.log.topics.offsets(OUT, committed=committed) for committed in (True, False)]
        return sum(ends[1][number][1] - ends[0][number][1] for number in ends[0])


@contextmanager
def told() -> Iterator[None]:
    """What the engine makes of Spark's errors."""
    try:
        yield
    except MillraceError:
        raise
    except Exception as error:
        raise run_failed(FLOW, error, Path("spark.log")) from error


@pytest.fixture
def driver(spark: SparkSession, project: Project, tmp_path: Path) -> Iterator[Driver]:
    project.log.topics.create(OUT, partitions=2)
    made = Driver(spark, project.log, tmp_path / "checkpoint", f"{project.settings.prefix}.copied")
    yield made
    made.end()


def test_an_epoch_that_is_stopped_anywhere_is_delivered_once(driver: Driver) -> None:
    for epoch, point in enumerate(POINTS):
        with driver.stopping_at(point):
            driver.write(epoch)
        if point == "BEFORE_PREPARE":
            assert driver.held_back() == 0, "nobody will commit what is open: readers do not wait for it"
        assert driver.has(epoch + 1) == (point == "AFTER_ALL_COMMITS")
        driver.begin()
        assert driver.held_back() == 0
        assert driver.has(epoch if point == "BEFORE_PREPARE" else epoch + 1)
        driver.write(epoch)
        driver.commit(epoch)
        assert driver.has(epoch + 1)
    for key in range(3):
        epochs = [value // ROWS for value in driver.values() if value % 3 == key]
        assert epochs == sorted(epochs), "a key's records are in the order of their epochs"
    # Nothing is left to be done.
    assert {path.name for path in (driver.checkpoint / delivering.LEDGER).iterdir()} == {
        "delivered-2",
        "delivered-3",
        "owner",
        "partitions",
    }


def test_what_was_delivered_is_not_delivered_again_and_another_epoch_of_that_number_is_refused(driver: Driver) -> None:
    driver.write(0)
    driver.write(0)
    nothing = driver.spark.range(0).selectExpr("cast(id as string) as value")
    driver.write(1, nothing)
    one = driver.spark.range(ROWS, ROWS + 1).selectExpr("cast(id as string) as value")
    driver.plan(2, end=1)
    driver.write(2, one)
    assert sorted(driver.values()) == list(range(ROWS + 1))
    driver.begin()
    driver.plan(2, end=2)
    with pytest.raises(CheckpointOlder, match="holds epoch 2, and it is at 2"):
        driver.write(2, one)
    with pytest.raises(CheckpointOlder, match="rebuild"):
        driver.write(0)
    assert sorted(driver.values()) == list(range(ROWS + 1))
    assert driver.held_back() == 0


def test_a_checkpoint_from_an_older_copy_is_refused(driver: Driver, tmp_path: Path, until: Callable[..., None]) -> None:
    group = f"{driver.name}.delivered"

    def noted(epoch: int) -> bool:
        return any(f" {epoch} " in (place.metadata or "") for place in places(driver.log, group))

    for epoch in range(3):
        driver.write(epoch)
        driver.commit(epoch)
        if epoch == 0:
            driver.plan(1)
            shutil.copytree(driver.checkpoint, tmp_path / "copy")
    until(lambda: noted(2), "the note of the last epoch")
    driver.end()
    shutil.rmtree(driver.checkpoint)
    shutil.copytree(tmp_path / "copy", driver.checkpoint)
    with pytest.raises(CheckpointOlder, match="holds epoch 2, and it is at 1"):
        driver.begin()
    with pytest.raises(CheckpointOlder):  # without a word from the engine, too
        driver.write(1)
    assert driver.has(3)
    # A copy of which only the last epoch is missing, and had begun, knows what was delivered. With other input it
    # would be another epoch.
    driver.plan(2)
    driver.commit(1)
    driver.begin()
    driver.write(2)
    assert driver.has(3)
    for path in (driver.checkpoint / delivering.LEDGER).glob("delivered-*"):
        path.unlink()
    driver.plan(2, end=7)
    with pytest.raises(CheckpointOlder):
        driver.begin()
    # A flow that is begun anew is another query.
    shutil.rmtree(driver.checkpoint)
    again = Driver(driver.spark, driver.log, driver.checkpoint, driver.name)
    again.begin()
    again.write(0)
    assert Counter(again.values()) == Counter(range(3 * ROWS)) + Counter(range(ROWS))


def places(log: Log, group: str) -> list[Any]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = log._connection.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return list(asked[group].result().topic_partitions)


def test_a_torn_epoch_is_named_and_one_of_which_nothing_was_seen_is_done_again(
    driver: Driver, project: Project, tmp_path: Path, until: Callable[..., None]
) -> None:
    driver.options["kafka.transaction.timeout.ms"] = "5000"
    other = Driver(driver.spark, driver.log, tmp_path / "other", f"{driver.name}2", driver.options)
    with driver.stopping_at("AFTER_SOME_COMMITS"):
        driver.write(0)
    other.plan(0)
    with other.stopping_at("AFTER_PREPARE"):
        other.write(1)
    assert driver.held_back() > 0
    until(lambda: driver.held_back() == 0, "the end of what nobody committed", 60)
    for _ in range(2):  # as often as it is started
        with pytest.raises(EpochTorn, match=r"of epoch 0 a part \(1 transactions\)"):
            driver.begin()
    with pytest.raises(EpochTorn):
        driver.write(1)
    part = sorted(driver.values())
    assert 0 < len(part) < ROWS
    other.begin()
    assert sorted(driver.values()) == part
    other.write(1)
    assert sorted(driver.values()) == [*part, *range(ROWS, 2 * ROWS)]
    other.end()
    driver.options["kafka.transaction.timeout.ms"] = str(2**31 - 1)
    with pytest.raises(TransactionTimeout, match="this Kafka allows 7 days"):
        other.begin()


def test_two_drivers_of_one_flow_deliver_each_epoch_once(driver: Driver, tmp_path: Path) -> None:
    """Again and again a new one begins while another is at work, wherever that is. They reach the checkpoint by
    different names, so that they know nothing of each other."""
    last, turns = 40, 8
    for epoch in range(last):
        driver.plan(epoch)
    ended: list[str] = []

    def drive(own: Driver) -> None:
        try:
            own.begin()
            for epoch in range(reached(driver.checkpoint), last):
                own.write(epoch)
            ended.append("done")
        except (FlowTakenOver, CheckpointOlder) as error:  # what it is about to do was done by the other
            ended.append(error.code)
        finally:
            own.end()

    threads: list[threading.Thread] = []
    for turn in range(turns):
        link = tmp_path / f"link-{turn}"
        link.symlink_to(driver.checkpoint)
        threads.append(threading.Thread(target=drive, args=(replace(driver, checkpoint=link),)))
        threads[-1].start()
        if turn:
            threads[-2].join()
    threads[-1].join()
    assert len(ended) == turns
    assert ended.count("MR-FLOW-TAKEN-OVER") > 1, ended
    drive(driver)
    assert ended[-1] == "done"
    assert Counter(driver.values()) == Counter(range(last * ROWS))
    assert driver.held_back() == 0


def test_a_driver_that_was_replaced_while_it_wrote_does_not_commit(
    driver: Driver, tmp_path: Path, until: Callable[..., None]
) -> None:
    """The new one has seen that nothing is prepared, and is about to end what is open: a commit now could be torn."""
    (tmp_path / "link").symlink_to(driver.checkpoint)
    other = replace(driver, checkpoint=tmp_path / "link")
    java: Any = driver.spark._jvm
    refused: list[MillraceError] = []

    def old() -> None:
        try:
            driver.write(0)
        except MillraceError as error:
            refused.append(error)

    def reaches(point: str) -> Callable[[], bool]:
        return lambda: java.System.getProperty("millrace.fail.paused") == point

    threads = [threading.Thread(target=old), threading.Thread(target=other.begin)]
    driver.begin()
    java.System.setProperty("millrace.fail.pause", "BEFORE_PREPARE BEFORE_FENCE")
    try:
        for thread, point in zip(threads, ("BEFORE_PREPARE", "BEFORE_FENCE"), strict=True):
            thread.start()
            until(reaches(point), point)
        java.System.setProperty("millrace.fail.pause", "BEFORE_FENCE")
        threads[0].join()
    finally:
        java.System.clearProperty("millrace.fail.pause")
        threads[1].join()
    assert [type(error) for error in refused] == [FlowTakenOver]
    assert not driver.values()
    other.write(0)
    assert driver.has(1)
    assert driver.held_back() == 0
    other.end()


def reached(checkpoint: Path) -> int:
    """The epoch that Spark would begin with, one that may be done already."""
    delivered = (checkpoint / delivering.LEDGER).glob("delivered-*")
    return max((int(path.name.partition("-")[2]) for path in delivered), default=0)


def test_a_flow_that_is_renamed(driver: Driver, tmp_path: Path) -> None:
    """With its checkpoint it goes on under the new name. Without it begins afresh, and what was prepared under the old
    name stays the old one's, which the next start of that ends."""
    with driver.stopping_at("AFTER_PREPARE"):
        driver.write(0)
    moved = Driver(driver.spark, driver.log, driver.checkpoint, f"{driver.name}.renamed")
    moved.begin()
    assert driver.has(1)
    moved.write(0)
    moved.commit(0)
    moved.write(1)
    assert driver.has(2)
    assert driver.held_back() == 0
    moved.end()

    driver.plan(1)
    driver.commit(1)
    with driver.stopping_at("AFTER_PREPARE"):
        driver.write(2)
    afresh = Driver(driver.spark, driver.log, tmp_path / "afresh", f"{driver.name}.afresh")
    afresh.begin()
    afresh.write(0)
    assert driver.held_back() > 0
    driver.begin()
    assert driver.held_back() == 0
    driver.write(2)
    assert Counter(driver.values()) == Counter(range(3 * ROWS)) + Counter(range(ROWS))
    afresh.end()


def test_what_a_killed_flow_left_open_is_ended_at_the_next_start_even_without_its_ledger(driver: Driver) -> None:
    from confluent_kafka import Producer

    open_ones = []
    for partition in (0, 7):
        options = {"bootstrap.servers": driver.log.address, "transactional.id": f"{driver.name}.{partition}.0"}
        producer = Producer({**options, "log_level": 0})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(driver.log.topics.outside(OUT), b"never", partition=partition % 2)
        producer.flush()
        open_ones.append(producer)
    driver.write(0)
    assert driver.held_back() == 0
    assert driver.has(1)
    for producer in open_ones:
        with pytest.raises(Exception, match=r"fenced|epoch"):
            producer.commit_transaction(30)


def test_a_broker_that_is_away_at_the_start_is_asked_again_at_the_next(driver: Driver) -> None:
    impatient = {"kafka.request.timeout.ms": "500", "kafka.default.api.timeout.ms": "1000"}
    driver.options = {"kafka.bootstrap.servers": "127.0.0.1:1", **impatient}
    for _ in range(2):
        with pytest.raises(FlowFailed, match="TimeoutException"):
            driver.begin()
    driver.options = {}
    driver.begin()
    driver.write(0)
    assert driver.has(1)


def test_speculation_is_refused(driver: Driver) -> None:
    conf: Any = driver.spark.sparkContext._jsc.sc().conf()
    conf.set("spark.speculation", "true")
    try:
        with pytest.raises(SpeculationRefused):
            driver.begin()
    finally:
        conf.set("spark.speculation", "false")


def test_a_real_time_stream_reads_committed_records_behind_aborted_ones(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    app = App("both")

    @app.stream(app.topic("events", "id long"), delivery="exactly once", schema="id long")
    def copied(events: DataFrame) -> DataFrame:
        return events

    @app.stream(copied, mode="realtime", epoch="10 minutes")
    def at_once(rows: DataFrame) -> DataFrame:
        return rows

    def write(first: int) -> None:
        project.write("events", [json.dumps({"id": n}).encode() for n in range(first, first + ROWS)])

    def seen() -> list[int]:
        return sorted(record.json()["id"] for record in project.log.read("at_once"))

    java: Any = spark._jvm
    java.System.setProperty("millrace.fail.point", "BEFORE_PREPARE")
    with Run(app, project.settings, spark=spark) as run:
        write(0)
        until(lambda: run.poll() is not None and run.standings["copied"].state == "restarting", "an aborted epoch")
        java.System.clearProperty("millrace.fail.point")
        for first in (0, ROWS):
            write(first) if first else None
            until(lambda: run.poll() is not None and len(seen()) >= first + ROWS, "all of them", 60)  # noqa: B023
        run.stop()
    assert seen() == list(range(2 * ROWS))
    written = sum(last for _, last in project.log.topics.offsets("copied").values())
    assert written > 3 * ROWS, "what was aborted takes offsets, too"


@pytest.mark.turn(1, 2)
def test_the_broker_is_killed_in_the_middle_of_an_epoch_and_between_prepare_and_commit(
    spark: SparkSession, folder: Path, until: Callable[..., None]
) -> None:
    from millrace import config

    settings = config.load(folder)
    with local.held(settings, ("kafka",)):
        log = Log(settings)
        log.topics.create(OUT, partitions=2)
        driver = Driver(spark, log, folder / "checkpoint", "shop.copied")

        other = Driver(spark, log, folder / "other", "shop.other")
        other.plan(0)
        with other.stopping_at("AFTER_PREPARE"):
            other.write(1)
        many = spark.range(0, ROWS * 10_000, 1, 2).selectExpr(f"cast(id % {ROWS} as string) as value")

        def try_once() -> None:
            with suppress(MillraceError):
                driver.write(0, many)

        before = driver.held_back()
        writing = threading.Thread(target=try_once)
        writing.start()
        until(lambda: driver.held_back() > before + 1_000, "an open transaction")
        (row,) = (row for row in local.status(settings) if row.server == "kafka")
        assert row.pid is not None
        os.kill(row.pid, signal.SIGKILL)
        until(lambda: local.status(settings)[0].state == "died", "the kill")
        local.up(settings, ("kafka",))
        writing.join()
        driver.write(0, many)
        other.write(1)
        assert Counter(driver.values()) == Counter(dict.fromkeys(range(ROWS), 10_000)) + Counter(range(ROWS, 2 * ROWS))
        assert driver.held_back() == 0
        driver.end()
        other.end()
