"""What was written is what is read, from any place, to any end; what was not written is told."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from millrace.errors import (
    AcksInvalid,
    PartitionUnknown,
    RecordsUndelivered,
    RecordTooLarge,
    ValueUnwritable,
)
from millrace.log import Log, Record
from millrace.log.record import timestamp_ms
from tests.command import until
from tests.log.making import forget_before, random_bytes

pytestmark = pytest.mark.server

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def timed(log: Log, make_topic: Callable[..., str]) -> tuple[str, list[Record]]:
    """A topic whose timestamps are out of order, and all of its records."""
    name = make_topic(partitions=3, retention="forever")
    chance = random.Random(7)
    with log.writer(name) as writer:
        for number in range(600):
            time = START + timedelta(seconds=number, milliseconds=chance.randrange(-60_000, 60_000))
            writer.write({"n": number}, key=f"k{chance.randrange(20)}", time=time)
    records = list(log.read(name))
    assert len(records) == 600
    return name, records


def test_what_was_written_is_what_is_read(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(partitions=4, retention="forever")
    chance = random.Random(1)
    sizes = [10] * 400 + [5_000] * 40 + [900_000] * 4
    written: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    with log.writer(name) as writer:
        for size in sizes:
            key, value = random_bytes(chance, 50), random_bytes(chance, size)
            names = ("a", "b", "ü", "")
            headers = tuple((chance.choice(names), random_bytes(chance, 20)) for _ in range(chance.randrange(4)))
            partition = chance.randrange(4)
            time = START + timedelta(milliseconds=chance.randrange(10**9))
            writer.write(value, key=key, headers=headers, partition=partition, time=time)
            written[partition].append((key, value, headers, time))
        assert writer.written == len(sizes)
    read: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for record in log.read(name):
        assert record.topic == name
        assert record.offset == len(read[record.partition])
        read[record.partition].append((record.key, record.value, record.headers, record.time))
    assert read == written


def test_texts_and_dicts_are_read_back(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    log.write(name, "grüße")
    log.write(name, {"amount": 1.5, "who": "ü"}, key="k", headers={"h": "v"})
    first, second = log.read(name)
    assert first.text == "grüße"
    assert second.json() == {"amount": 1.5, "who": "ü"}
    assert (second.key, second.headers) == (b"k", (("h", b"v"),))
    with pytest.raises(ValueUnwritable):
        log.write(name, {"x": object()})


def test_a_batch_keeps_its_order_even_when_the_queue_is_full(
    log: Log, make_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.log.writer.QUEUE_RECORDS", 700)
    monkeypatch.setattr("millrace.log.writer.QUEUE_BYTES", 40_000)
    monkeypatch.setattr("millrace.log.writer._BATCH_RECORDS", 500)
    name = make_topic()
    values = [b"%d" % number for number in range(20_000)]
    with log.writer(name) as writer:
        writer.write_batch(values[:15_000])
        writer.write_batch(values[15_000:], [b"key"] * 5_000)
    records = list(log.read(name))
    assert [record.value for record in records] == values
    assert Counter(record.key for record in records) == {None: 15_000, b"key": 5_000}


def test_a_key_goes_where_javas_clients_put_it(log: Log, make_topic: Callable[..., str]) -> None:
    """Murmur2 of these keys as Kafka's own tests state it: Spark, Debezium and this writer must agree."""
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    name = make_topic(partitions=7)
    with log.writer(name) as writer:
        for key in hashes:
            writer.write(b"x", key=key)
    found = {record.key: record.partition for record in log.read(name)}
    assert found == {key.encode(): (number & 0x7FFFFFFF) % 7 for key, number in hashes.items()}


def test_a_record_too_large_is_one_sentence_and_its_neighbours_arrive(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(config={"max.message.bytes": "20000"})
    with log.writer(name) as writer:
        with pytest.raises(RecordTooLarge, match="20001 bytes does not fit"):
            writer.write(b"x" * 20_001)
        with pytest.raises(RecordTooLarge):
            writer.write_batch([b"x" * 30_000])
        # Far more than the limit in all, and each of them within it.
        writer.write_batch([b"y" * 15_000] * 50)
    # The client's own count is a little smaller than the broker's: found out only on delivery.
    with pytest.raises(RecordTooLarge, match="19950 bytes"), log.writer(name) as writer:
        writer.write(b"x" * 19_950)
    log.write(name, b"last")
    assert Counter(len(record.value or b"") for record in log.read(name)) == {15_000: 50, 4: 1}


def test_a_record_up_to_the_limit_is_written(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(config={"max.message.bytes": str(5 * 1024 * 1024)})
    value = random.Random(3).randbytes(5 * 1024 * 1024 - 200)
    log.write(name, value)
    assert [record.value for record in log.read(name)] == [value]


def refused(log: Log, name: str, value: bytes) -> bool:
    """Whether the broker does not take it: what the controller has noted, it does a moment later."""
    heard: list[object] = []
    producer = Producer({"bootstrap.servers": log.address})
    producer.produce(log.topics.outside(name), value, on_delivery=lambda error, _: heard.append(error))
    producer.flush(30)
    return heard[0] is not None  # compared with ==, a KafkaError leaves an exception behind


def test_records_that_are_not_acknowledged_are_counted_and_told_once(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    writer = log.writer(name)
    writer.write(b"fits")
    writer.flush()
    log.topics.alter(name, config={"max.message.bytes": "1000"})  # which the writer does not know
    until(lambda: refused(log, name, b"x" * 2_000), "the broker holds itself to it")
    for _ in range(3):
        writer.write(b"x" * 2_000, partition=0)
    with pytest.raises(RecordsUndelivered, match=r"3 of \d+ records were not acknowledged .* 2000 bytes does not fit"):
        writer.flush()
    writer.flush()


def test_records_that_nobody_waited_for_are_warned_of(log: Log, make_topic: Callable[..., str]) -> None:
    writer = log.writer(make_topic())
    writer.write(b"x")
    with pytest.warns(ResourceWarning, match="1 records were not flushed"):
        del writer


def test_with_acks_0_nobody_knows(log: Log, make_topic: Callable[..., str]) -> None:
    """What the broker refuses is lost without a word. (That 1 and all differ takes brokers to kill.)"""
    name = make_topic(config={"max.message.bytes": "20000"})
    for number, acks in enumerate(("all", 1, 0), 1):
        log.write(name, f"{acks}", acks=acks)
        until(lambda: len(list(log.read(name))) == number, "it arrives")  # noqa: B023
    for acks in ("all", 1):
        with pytest.raises(RecordTooLarge):
            log.write(name, b"x" * 19_950, acks=acks)
    log.write(name, b"x" * 19_950, acks=0)
    log.write(name, "behind")
    assert [record.text for record in log.read(name)] == ["all", "1", "0", "behind"]
    with pytest.raises(AcksInvalid):
        log.writer(name, acks=2)


def test_an_error_in_the_block_is_the_one_that_is_told_and_what_was_taken_is_sent(
    log: Log, make_topic: Callable[..., str]
) -> None:
    name = make_topic()

    def fail() -> None:
        with log.writer(name) as writer:
            writer.write(b"before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [record.value for record in log.read(name)] == [b"before"]


def test_reading_from_an_offset(log: Log, timed: tuple[str, list[Record]]) -> None:
    name, records = timed
    for start in (0, 1, 150, 10_000):
        assert set(log.read(name, start)) == {record for record in records if record.offset >= start}
    assert set(log.read(name, 150, partition=2)) == {
        record for record in records if record.offset >= 150 and record.partition == 2
    }
    assert list(log.read(name, "latest")) == []
    with pytest.raises(PartitionUnknown, match="it has 3"):
        log.read(name, partition=3)


def test_reading_by_time_is_a_filter_by_timestamp(log: Log, timed: tuple[str, list[Record]]) -> None:
    name, records = timed
    middle = sorted(record.time for record in records if record.time)[300]
    cases: list[tuple[datetime | None, datetime | None]] = [
        (START + timedelta(seconds=200), None),
        (middle, None),
        (START - timedelta(days=1), None),
        (START + timedelta(days=1), None),
        (None, middle),
        (START + timedelta(seconds=150), START + timedelta(seconds=151)),
    ]
    for start, end in cases:
        expected = {
            record
            for record in records
            if record.time and (start is None or record.time >= start) and (end is None or record.time < end)
        }
        assert set(log.read(name, start or "earliest", until=end)) == expected, (start, end)


def test_a_limit_is_kept(log: Log, timed: tuple[str, list[Record]]) -> None:
    name, records = timed
    assert len(list(log.read(name, limit=7))) == 7
    assert len(list(log.read(name, limit=100_000))) == len(records)
    assert list(log.read(name, limit=0)) == []


def test_the_end_is_the_end_as_of_now(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    log.write(name, b"before")
    reading = log.read(name)
    log.write(name, b"after")
    assert [record.value for record in reading] == [b"before"]


def test_what_retention_took_is_said(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    with log.writer(name) as writer:
        writer.write_batch([b"%d" % number for number in range(10)])
    forget_before(log, name, 6)
    assert [record.offset for record in log.read(name)] == [6, 7, 8, 9]
    reader = log.reader(name, 2)
    assert reader.expired == 4
    assert [record.offset for record in reader.records()] == [6, 7, 8, 9]


def test_a_follower_goes_on_until_it_is_stopped(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(partitions=2)
    log.write(name, b"0")
    stop = threading.Event()
    seen: list[bytes | None] = []

    def follow() -> None:
        seen.extend(record.value for record in log.read(name, follow=True, stop=stop))

    thread = threading.Thread(target=follow)
    heard = log.read(name, follow=True)
    thread.start()
    assert next(heard).value == b"0"
    log.write(name, b"1")
    assert next(heard).value == b"1"
    heard.close()  # a generator that is left closes its client
    assert len(list(log.read(name, follow=True, limit=2))) == 2
    assert len(list(log.read(name, follow=True, lasting_s=1))) == 2
    assert len(list(log.read(name, follow=True, until=datetime.now(UTC) + timedelta(seconds=1)))) == 2
    stop.set()
    thread.join()
    assert sorted(value for value in seen if value) == [b"0", b"1"]


def test_only_committed_records_are_read(log: Log, bootstrap: str, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    outside = log.topics.outside(name)

    def transaction(value: bytes) -> Producer:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{outside}-{value.decode()}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(outside, value)
        producer.flush()
        return producer

    transaction(b"committed").commit_transaction(30)
    until(lambda: log.topics.offsets(name)[0] == (0, 2), "the mark of the commit is there")
    reading = log.read(name)  # whose end is that mark, not a record
    log.write(name, b"too late")
    assert [record.value for record in reading] == [b"committed"]
    forget_before(log, name, 3)
    transaction(b"aborted").abort_transaction(30)
    log.write(name, b"plain")
    assert [record.value for record in log.read(name)] == [b"plain"]
    still_open = transaction(b"open")
    log.write(name, b"behind it")
    # The end is where the open transaction begins: a bounded reading does not wait for it.
    assert [record.value for record in log.read(name)] == [b"plain"]
    following = log.read(name, follow=True)
    assert next(following).value == b"plain"
    still_open.abort_transaction(30)
    assert next(following).value == b"behind it"
    following.close()
    assert [record.value for record in log.read(name)] == [b"plain", b"behind it"]


def test_timestamps_are_the_brokers_milliseconds(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    before = timestamp_ms(datetime.now(UTC))
    log.write(name, b"x")
    (record,) = log.read(name)
    assert record.time
    assert before <= timestamp_ms(record.time) <= timestamp_ms(datetime.now(UTC))
