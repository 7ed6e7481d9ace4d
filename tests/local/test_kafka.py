"""What Kafka acknowledged survives: kill -9 of the one broker, and of the leader among three under load."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from millrace import config, local
from millrace.config import Settings
from millrace.errors import BrokersFixed, FolderUnfit
from millrace.log import Log
from tests.command import until

pytestmark = pytest.mark.server

IN_FLIGHT = 500
WIDE = 12
FETCH_WAIT_S = 0.5  # Kafka's own: so long does a leader wait for records before it answers a follower


def pid(settings: Settings, server: str) -> int:
    (row,) = (row for row in local.status(settings) if row.server == server)
    assert row.pid is not None, row
    return row.pid


def state(settings: Settings, server: str) -> str:
    return {row.server: row.state for row in local.status(settings)}[server]


def values(log: Log, topic: str) -> list[int]:
    return [int(record.value or b"") for record in log.read(topic)]


class Load:
    """Writes numbers without a pause and remembers which of them were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, acks: str) -> None:
        options = {"bootstrap.servers": bootstrap, "acks": acks, "enable.idempotence": acks == "all", "linger.ms": 2}
        self._producer = Producer({**options, "queue.buffering.max.messages": IN_FLIGHT, "log_level": 0})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: set[int] = set()

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self.send(number)
                number += 1
            except BufferError:  # the broker is away, or slower than this loop
                self._producer.poll(0.01)
        self.flush()

    def send(self, number: int) -> None:
        def told(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.add(number)

        self._producer.produce(self._topic, str(number).encode(), on_delivery=told)

    def flush(self) -> None:
        assert self._producer.flush(90) == 0

    def reach(self, count: int) -> None:
        until(lambda: len(self.acknowledged) >= count, f"{count} acknowledged records", 120)


@pytest.mark.turn(0, 2)
def test_acknowledged_records_and_connect_survive_kill_9(folder: Path) -> None:
    settings = config.load(folder)
    with local.held(settings, ("kafka", "connect")) as addresses:
        log = Log(settings)
        log.topics.create("kept", partitions=2)
        with Load(addresses["kafka"], "kept", "all") as load:
            load.reach(2_000)
            os.kill(pid(settings, "kafka"), signal.SIGKILL)
            so_far = len(load.acknowledged)
            until(lambda: state(settings, "kafka") == "died", "the kill")
            assert local.up(settings, ("kafka",))["kafka"] == addresses["kafka"]
            load.reach(so_far + 2_000)
        read = values(Log(settings), "kept")
        assert load.acknowledged <= set(read), "an acknowledged record was lost"
        assert len(read) == len(set(read)), "an idempotent producer writes nothing twice"

        os.kill(pid(settings, "connect"), signal.SIGKILL)
        until(lambda: state(settings, "connect") == "died", "the kill")
        url = local.up(settings, ("connect",))["connect"]
        with urllib.request.urlopen(url) as answer:
            assert json.load(answer)["kafka_cluster_id"]


def transactions(bootstrap: str, number: int) -> Producer:
    options = {"bootstrap.servers": bootstrap, "transactional.id": f"kill-{number}", "log_level": 0}
    producer = Producer(options)
    producer.init_transactions(30)  # ends what an earlier producer of that name left open
    return producer


def commit_until_it_fails(bootstrap: str, number: int, topic: str) -> None:
    producer = transactions(bootstrap, number)
    with contextlib.suppress(KafkaException):
        while True:
            producer.begin_transaction()
            for partition in range(WIDE):
                producer.produce(topic, b"", partition=partition)
            producer.commit_transaction(2)


def held_back(bootstrap: str, topic: str) -> int:
    """How many partitions have records that readers of committed ones do not get to."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        options = {"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation, "log_level": 0}
        consumer = Consumer(options)
        parts = [TopicPartition(topic, partition) for partition in range(WIDE)]
        ends.append([consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts])
        consumer.close()
    return sum(committed < written for committed, written in zip(*ends, strict=True))


@pytest.mark.turn(0, 2)
def test_no_transaction_stays_open_for_ever_when_the_broker_is_killed_in_its_commit(folder: Path) -> None:
    settings = config.load(folder)
    with local.held(settings, ("kafka",)) as addresses:
        for turn in range(2):
            topic, bootstrap = f"turn-{turn}", addresses["kafka"]
            Log(settings).topics.create(topic, partitions=WIDE)
            loads = [threading.Thread(target=commit_until_it_fails, args=(bootstrap, n, topic)) for n in range(3)]
            for load in loads:
                load.start()
            until(lambda: min(Log(settings).topics.offsets(topic).values())[1] > 200, "committed transactions")  # noqa: B023
            os.kill(pid(settings, "kafka"), signal.SIGKILL)
            until(lambda: state(settings, "kafka") == "died", "the kill")
            for load in loads:
                load.join()
            local.up(settings, ("kafka",))
            for number in range(len(loads)):
                transactions(bootstrap, number)
            until(lambda: held_back(bootstrap, topic) == 0, "the end of every transaction", 60)  # noqa: B023


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = config.load(tmp_path_factory.mktemp("three"))
    with local.held(settings, ("kafka",), brokers=3):
        yield settings


def leader(log: Log, topic: str) -> str:
    (partition,) = log.topics.describe(topic).partitions
    return "kafka" if partition.leader == 1 else f"kafka-{partition.leader}"


@pytest.mark.turn(1, 2)
def test_acks_all_loses_nothing_when_the_leader_is_killed_under_load(three: Settings) -> None:
    log = Log(three)
    log.topics.create("all", partitions=1)
    assert len(log.topics.describe("all").partitions[0].replicas) == 3
    with Load(local.address(three, "kafka"), "all", "all") as load:
        load.reach(2_000)
        killed = leader(log, "all")
        os.kill(pid(three, killed), signal.SIGKILL)
        load.reach(len(load.acknowledged) + 2_000)
        assert leader(Log(three), "all") != killed
    local.up(three, ("kafka",))
    read = values(Log(three), "all")
    assert load.acknowledged <= set(read)
    assert len(read) == len(set(read))


@pytest.mark.turn(1, 2)
def test_what_acks_1_can_lose(three: Settings) -> None:
    """Records that only the leader has, acknowledged by it alone, are gone with it.

    leader     ── 0 1 2 … 99 ── acknowledges 100, then 101 … 199 ── killed
    followers  ── 0 1 2 … 99 ── frozen ──────────────────────────── awake, one of them leads: 101 … 199 never were

    (What the followers had asked for before they froze is answered, with nothing, before 100 is written; should one be
    answered later nevertheless, that takes 100 at most.)
    """
    log = Log(three)
    log.topics.create("one", partitions=1)
    address = local.address(three, "kafka")
    safe = Load(address, "one", "all")
    for number in range(100):
        safe.send(number)
    safe.flush()
    first = leader(log, "one")
    followers = {name: pid(three, name) for name in ("kafka", "kafka-2", "kafka-3") if name != first}
    risky = Load(address, "one", "1")
    victim = pid(three, first)
    for follower in followers.values():
        os.kill(follower, signal.SIGSTOP)
    try:
        time.sleep(4 * FETCH_WAIT_S)
        risky.send(100)
        risky.flush()
        for number in range(101, 200):
            risky.send(number)
        risky.flush()
        os.kill(victim, signal.SIGKILL)
    finally:
        for follower in followers.values():
            os.kill(follower, signal.SIGCONT)
    assert risky.acknowledged == set(range(100, 200))
    until(lambda: leader(Log(three), "one") in followers, "another leader", 120)
    local.up(three, ("kafka",))
    assert set(values(Log(three), "one")) - {100} == safe.acknowledged == set(range(100))


@pytest.mark.turn(1, 2)
def test_the_number_of_brokers_is_fixed(three: Settings) -> None:
    with pytest.raises(BrokersFixed, match="millrace reset kafka"):
        local.up(three, ("kafka",), brokers=1)


@pytest.mark.parametrize("name", ["Müller 日本 %20 ${HOME}", "back\\slash = : #"])
def test_data_stays_in_the_project_whatever_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    settings = config.load(folder)
    with local.held(settings, ("kafka",)):
        assert (local.site_of(settings, "kafka").data / "meta.properties").exists()
        assert local.site_of(settings, "kafka").log.exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_comma_in_the_folders_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    with pytest.raises(FolderUnfit, match="comma"):
        local.up(config.load(tmp_path / "a,b"), ("kafka",))
    assert [path.name for path in tmp_path.iterdir()] == ["a,b"]
