"""Groups share out partitions, remember their place, tell their lag, and are moved only when nobody reads with them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from millrace.errors import GroupActive, GroupUnknown, MemberReplaced, PartitionUnknown, SeekNothing, SeekOutside
from millrace.log import GroupReader, Groups, Log
from millrace.log.lag import Lag
from tests.command import until
from tests.log.making import forget_before

pytestmark = pytest.mark.server


def read(log: Log, group: str, topic: str, limit: int) -> list[bytes | None]:
    with log.join(group, [topic]) as reader:
        return [record.value for record in reader.records(limit=limit)]


def lags(log: Log, group: str) -> dict[int, Lag]:
    return {lag.partition: lag for lag in log.groups.lag(group)}


def test_a_group_goes_on_where_it_was(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic()
    values = [b"%d" % number for number in range(20)]
    with log.writer(name) as writer:
        writer.write_batch(values)
    assert read(log, group, name, 5) == values[:5]
    assert read(log, group, name, 7) == values[5:12]
    assert read(log, f"{group}-other", name, 2) == values[:2]


def test_what_was_being_worked_on_in_a_crash_comes_again(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic()
    with log.writer(name) as writer:
        writer.write_batch([b"%d" % number for number in range(10)])

    def work() -> None:
        with log.join(group, [name]) as reader:
            for record in reader.records():
                if record.value == b"4":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert lags(log, group)[0].committed == 4
    assert read(log, group, name, 2) == [b"4", b"5"]


def test_stop_ends_a_reader_that_waits(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic()
    log.write(name, b"x")
    stop = threading.Event()
    with log.join(group, [name]) as reader:
        for record in reader.records(stop=stop):
            assert record.value == b"x"
            stop.set()
    assert lags(log, group)[0].records == 0


def test_lag_is_the_count_of_what_is_unread_and_its_age(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic(partitions=3)
    old = datetime.now(UTC) - timedelta(hours=2)
    with log.writer(name) as writer:
        for partition, count in ((0, 10), (1, 25)):
            for number in range(count):
                writer.write(b"%d" % number, partition=partition, time=old + timedelta(minutes=number))
    with log.join(group, [name]) as reader:
        taken = Counter(record.partition for record in reader.records(limit=13))
        reader.commit()
        found = lags(log, group)
    for partition, count in ((0, 10), (1, 25), (2, 0)):
        lag = found[partition]
        assert (lag.topic, lag.end) == (name, count)
        assert lag.records == count - taken[partition]
        if lag.records:
            age = (datetime.now(UTC) - old - timedelta(minutes=taken[partition])).total_seconds()
            assert age - 120 < lag.seconds <= age  # of the first unread record: its neighbours are a minute apart
        else:
            assert lag.seconds == 0
    assert sum(lag.records for lag in found.values()) == 35 - 13


def test_offsets_that_no_record_has_are_no_lag(
    log: Log, bootstrap: str, make_topic: Callable[..., str], group: str
) -> None:
    """A transaction's end takes an offset: a group that has read everything would lag behind by one for ever."""
    name = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"lag-{name}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(log.topics.outside(name), b"x")
    producer.commit_transaction(30)
    assert read(log, group, name, 1) == [b"x"]
    (lag,) = log.groups.lag(group)
    assert lag.end - (lag.committed or 0) == 1
    assert (lag.records, lag.seconds) == (0, 0.0)


def test_what_retention_took_before_it_was_read_is_counted(
    log: Log, make_topic: Callable[..., str], group: str
) -> None:
    name = make_topic()
    with log.writer(name) as writer:
        writer.write_batch([b"%d" % number for number in range(10)])
    assert read(log, group, name, 2) == [b"0", b"1"]
    forget_before(log, name, 6)
    (lag,) = log.groups.lag(group)
    assert (lag.committed, lag.expired, lag.records) == (2, 4, 4)


def test_an_active_group_is_not_moved_and_an_idle_one_is(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic(partitions=2, retention="forever")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with log.writer(name) as writer:
        for number in range(10):
            writer.write(b"%d" % number, partition=0, time=start + timedelta(hours=number))
    with log.join(group, [name]) as reader:
        assert len(list(reader.records(limit=3))) == 3
        with pytest.raises(GroupActive, match=rf"'{group}' is being read by millrace at 127\.0\.0\.1"):
            log.groups.seek(group, "earliest")
        reader.commit()
        assert lags(log, group)[0].committed == 3
    cases: list[tuple[object, int, int]] = [
        ("earliest", 0, 0),
        ("latest", 10, 0),
        (start + timedelta(hours=4), 4, 0),
        (start + timedelta(hours=4, seconds=1), 5, 0),
        (start + timedelta(days=9), 10, 0),
        (start - timedelta(days=9), 0, 0),
    ]
    for to, first, second in cases:
        moves = log.groups.seek(group, to)  # type: ignore[arg-type]
        assert {move.partition: move.after for move in moves} == {0: first, 1: second}, to
        assert lags(log, group)[0].committed == first
    (move,) = log.groups.seek(group, 7, partition=0)
    assert (move.topic, move.before, move.after) == (name, 0, 7)
    assert read(log, group, name, 3) == [b"7", b"8", b"9"]


def test_a_move_can_be_looked_at_before(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic()
    with log.writer(name) as writer:
        writer.write_batch([b"%d" % number for number in range(10)])
    read(log, group, name, 4)
    (move,) = log.groups.moves(group, "latest", topic=name)
    assert (move.before, move.after) == (4, 10)
    assert log.groups.places(group) == {name: {0: 4}}
    assert log.groups.seek(group, "latest", topic=name) == (move,)
    assert log.groups.places(group) == {name: {0: 10}}
    with pytest.raises(SeekOutside):
        log.groups.moves(group, 11, topic=name)


def test_who_joins_between_the_look_and_the_move_is_not_moved(
    log: Log, make_topic: Callable[..., str], group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_topic()
    log.write(name, b"x")
    look, looks = Groups._refuse_active, [0]

    def too_early(groups: Groups, name: str) -> None:
        looks[0] += 1
        if looks[0] > 1:
            look(groups, name)

    monkeypatch.setattr(Groups, "_refuse_active", too_early)
    with log.join(group, [name]) as reader:
        assert len(list(reader.records(limit=1))) == 1
        with pytest.raises(GroupActive):
            log.groups.seek(group, "earliest")


def test_a_move_that_cannot_be_is_refused(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic()
    log.write(name, b"x")
    with pytest.raises(SeekNothing):
        log.groups.seek(group, "earliest")
    with pytest.raises(SeekOutside, match="holds 0 to 1"):
        log.groups.seek(group, 5, topic=name)
    with pytest.raises(PartitionUnknown):
        log.groups.seek(group, 0, topic=name, partition=3)
    with pytest.raises(GroupUnknown):
        log.groups.describe(group)
    log.groups.seek(group, "latest", topic=name)  # a new group may be given its place beforehand
    with pytest.raises(GroupUnknown, match=f"did you mean '{group}'"):
        log.groups.lag(f"{group}x")


def shares(log: Log, group: str) -> list[tuple[tuple[str, int], ...]]:
    try:
        return sorted(member.partitions for member in log.groups.describe(group).members)
    except GroupUnknown:  # nobody has joined yet
        return []


def test_members_and_their_partitions(log: Log, make_topic: Callable[..., str], group: str) -> None:
    name = make_topic(partitions=2)
    stop = threading.Event()

    def work(reader: GroupReader) -> None:
        with reader:
            for _ in reader.records(stop=stop):
                pass

    readers = [log.join(group, [name], member=member) for member in ("one", None)]
    threads = [threading.Thread(target=work, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        until(lambda: shares(log, group) == [((name, 0),), ((name, 1),)], "each has one partition")
        found = log.groups.describe(group)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert found.state == "stable"
    assert {member.name for member in found.members} == {"one", None}
    assert {member.client for member in found.members} == {"millrace"}
    assert group in {found.name for found in log.groups.list()}
    assert f"tests-log.{group}" in {found.name for found in log.groups.list(everything=True)}


def test_a_static_member_keeps_its_partitions_and_is_replaced_by_its_like(
    log: Log, make_topic: Callable[..., str], group: str
) -> None:
    name = make_topic(partitions=2)
    log.write(name, b"x")
    with log.join(group, [name], member="one") as reader:
        assert len(list(reader.records(limit=1))) == 1
    # It has left, and is still expected back: nobody else gets its partitions, and its place is not moved.
    (member,) = log.groups.describe(group).members
    assert member.name == "one"
    assert member.partitions == ((name, 0), (name, 1))
    with pytest.raises(GroupActive, match="read by one at"):
        log.groups.seek(group, "earliest")
    older = log.join(group, [name], member="one")
    log.write(name, b"y")
    assert [record.value for record in older.records(limit=1)] == [b"y"]
    with log.join(group, [name], member="one") as newer:
        log.write(name, b"z")
        assert [record.value for record in newer.records(limit=1)] == [b"z"]
        with pytest.raises(MemberReplaced, match="'one'"):
            list(older.records(limit=100))  # it may have been handed a record or two before it is told
    older.close()
