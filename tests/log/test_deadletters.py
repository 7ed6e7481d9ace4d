"""A dead letter keeps what the record was, where it stood and why it died; a replay brings it back once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from millrace.errors import DeadLetterUnknown, ReplayOvertaken, TopicUnknown
from millrace.log import Log, Record
from millrace.log import deadletters as layout
from millrace.log.replay import Replay
from tests.log.making import random_bytes

pytestmark = pytest.mark.server

Content = tuple[object, ...]


def content(record: Record) -> Content:
    return (record.key, record.value, record.headers, record.time, record.partition)


@pytest.fixture
def topic(log: Log, make_topic: Callable[..., str]) -> str:
    """Forty records of arbitrary bytes in three partitions."""
    name = make_topic(partitions=3, retention="forever")  # their timestamps are old
    chance = random.Random(5)
    with log.writer(name) as writer:
        for number in range(40):
            headers = [("h", random_bytes(chance, 9)) for _ in range(chance.randrange(3))]
            time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
            value = random_bytes(chance, 1_000)
            writer.write(value, key=random_bytes(chance, 9), headers=headers, partition=number % 3, time=time)
    return name


def bury(log: Log, records: list[Record]) -> None:
    for number, record in enumerate(records):
        log.dead.put(record, f"reason {number}")


def test_a_letter_holds_the_record_its_place_and_the_reason(log: Log, topic: str) -> None:
    records = list(log.read(topic))
    bury(log, records)
    letters = list(log.dead.list(topic))
    assert [letter.record for letter in letters] == records
    assert [letter.reason for letter in letters] == [f"reason {number}" for number in range(40)]
    assert not any(letter.replayed for letter in letters)
    assert log.dead.show(topic, "7").record == records[7]
    with pytest.raises(DeadLetterUnknown, match="'99'"):
        log.dead.show(topic, "99")


def test_the_layout_is_what_the_module_says(log: Log, make_topic: Callable[..., str]) -> None:
    """Flows write letters from Spark by this description alone."""
    name = make_topic()
    log.write(name, b"\xff\x00not json", key=b"\xfe", headers=[("own", b"\x01"), ("own", None)])
    (record,) = log.read(name)
    log.dead.put(record, "not JSON: ü")
    (raw,) = log.read(f"{name}.dead")
    assert (raw.key, raw.value) == (b"\xfe", b"\xff\x00not json")
    assert record.time
    assert raw.headers == (
        ("own", b"\x01"),
        ("own", None),
        ("millrace.dead.topic", f"tests-log.{name}".encode()),
        ("millrace.dead.partition", b"0"),
        ("millrace.dead.offset", b"0"),
        ("millrace.dead.time", str(round(record.time.timestamp() * 1_000)).encode()),
        ("millrace.dead.reason", "not JSON: ü".encode()),
    )
    assert len(log.topics.describe(f"{name}.dead").partitions) == 1
    assert log.topics.describe(f"{name}.dead").config["retention.ms"] == "-1"


def test_the_largest_record_and_a_long_reason_fit(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(config={"max.message.bytes": "20000"})
    log.write(name, b"x" * 19_900)
    (record,) = log.read(name)
    log.dead.put(record, "ü" * 100_000)
    (letter,) = log.dead.list(name)
    assert letter.record == record
    assert letter.reason == "ü" * (layout.REASON_BYTES // 2)


def test_a_replay_writes_each_letter_back_once(log: Log, topic: str) -> None:
    records = list(log.read(topic))
    bury(log, records[:10])
    assert log.dead.replay(topic, ["3", "4"]) == 2
    assert [letter.id for letter in log.dead.list(topic) if letter.replayed] == ["3", "4"]
    assert log.dead.replay(topic, ["4", "5"]) == 1
    assert log.dead.replay(topic) == 7
    assert log.dead.replay(topic) == 0
    expected = Counter(map(content, records)) + Counter(map(content, records[:10]))
    assert Counter(map(content, log.read(topic))) == expected
    assert all(letter.replayed for letter in log.dead.list(topic))
    with pytest.raises(DeadLetterUnknown):
        log.dead.replay(topic, ["12345"])


def test_a_replay_that_breaks_off_has_written_all_or_nothing_of_each_letter(
    log: Log, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.log.replay.TRANSACTION_RECORDS", 4)
    records = list(log.read(topic))
    bury(log, records[:10])
    write, left = Replay.write, [6]

    def breaking(replay: Replay, record: Record, letter: tuple[int, int]) -> None:
        if not left[0]:
            raise ZeroDivisionError
        left[0] -= 1
        write(replay, record, letter)

    monkeypatch.setattr(Replay, "write", breaking)
    with pytest.raises(ZeroDivisionError):
        log.dead.replay(topic)
    # One transaction of four was committed; the two letters after it were not, and no reader is held up by them.
    assert sum(letter.replayed for letter in log.dead.list(topic)) == 4
    for partition in range(3):
        log.write(topic, b"behind", partition=partition)
    assert len(list(log.read(topic))) == 47
    monkeypatch.setattr(Replay, "write", write)
    assert log.dead.replay(topic) == 6
    expected = Counter(map(content, records)) + Counter(map(content, records[:10]))
    assert Counter(content(record) for record in log.read(topic) if record.value != b"behind") == expected


def test_of_two_replays_at_a_time_the_later_one_wins(log: Log, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records = list(log.read(topic))
    bury(log, records[:3])
    write, begun, go_on = Replay.write, threading.Event(), threading.Event()
    ended: list[BaseException] = []

    def held_up(replay: Replay, record: Record, letter: tuple[int, int]) -> None:
        write(replay, record, letter)
        if threading.current_thread() is thread:
            begun.set()
            assert go_on.wait(60)

    def earlier() -> None:
        try:
            log.dead.replay(topic)
        except ReplayOvertaken as error:
            ended.append(error)

    monkeypatch.setattr(Replay, "write", held_up)
    thread = threading.Thread(target=earlier)
    thread.start()
    assert begun.wait(60)
    assert log.dead.replay(topic) == 3
    go_on.set()
    thread.join()
    assert [type(error) for error in ended] == [ReplayOvertaken]
    expected = Counter(map(content, records)) + Counter(map(content, records[:3]))
    assert Counter(map(content, log.read(topic))) == expected


def test_topics_with_letters_are_counted(log: Log, topic: str) -> None:
    assert list(log.dead.list(topic)) == []
    assert log.dead.replay(topic) == 0
    with pytest.raises(TopicUnknown):
        list(log.dead.list("no-such-topic"))
    bury(log, list(log.read(topic, limit=3)))
    log.dead.replay(topic, ["0"])
    (found,) = (summary for summary in log.dead.topics() if summary.topic == topic)
    assert (found.letters, found.replayed) == (3, 1)
    assert found.last


def test_what_somebody_put_there_by_hand_is_shown_too(log: Log, topic: str) -> None:
    log.write(log.dead.topic(topic), b"by hand")
    (letter,) = log.dead.list(topic)
    assert letter.record.value == b"by hand"
    assert letter.reason == "no reason was given"
