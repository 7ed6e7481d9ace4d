"""Topics are made, listed, described, changed and deleted; names stay within their prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from millrace.errors import (
    CountInvalid,
    DurationInvalid,
    PartitionsFewer,
    PartitionsMoveKeys,
    PartitionUnknown,
    SizeInvalid,
    TopicConfigInvalid,
    TopicExists,
    TopicNameInvalid,
    TopicUnknown,
)
from millrace.log import Extent, Log
from millrace.log.topics import size_bytes
from tests.command import until

pytestmark = pytest.mark.server


def test_a_topic_is_described_as_it_was_made(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(
        partitions=3,
        replication=1,
        retention="7 days",
        retention_bytes="10 GB",
        compact=True,
        config={"max.message.bytes": "2000000"},
    )
    found = log.topics.describe(name)
    assert found.name == name
    assert found.config == {
        "cleanup.policy": "compact,delete",
        "max.message.bytes": "2000000",
        "retention.bytes": str(10 * 1024**3),
        "retention.ms": str(7 * 86_400_000),
    }
    assert [partition.number for partition in found.partitions] == [0, 1, 2]
    for partition in found.partitions:
        assert partition.replicas == partition.in_sync == (partition.leader,)
        assert (partition.first, partition.last) == (0, 0)
    assert found.offsets == 0


def test_a_plain_topic_has_the_brokers_defaults(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    assert log.topics.describe(name).config == {}
    assert log.topics.config(name)["cleanup.policy"] == "delete"


def test_first_and_last_tell_where_records_are(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(partitions=2)
    with log.writer(name) as writer:
        for _ in range(5):
            writer.write(b"x", partition=1)
    assert [(part.first, part.last) for part in log.topics.describe(name).partitions] == [(0, 0), (0, 5)]
    assert log.topics.offsets(name) == {0: (0, 0), 1: (0, 5)}


def test_the_extents_of_many_topics(log: Log, make_topic: Callable[..., str]) -> None:
    first, second = make_topic(partitions=2, retention="forever"), make_topic()
    written = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)]
    for time in written:
        log.write(first, "x", partition=1, time=time)
    found = log.topics.extents([first, second, "nowhere"])
    assert found == {
        first: {0: Extent(0, 0, None), 1: Extent(0, 3, written[1])},
        second: {0: Extent(0, 0, None)},
    }
    assert log.topics.extents([]) == {}
    newest = [record.time for record in log.newest(first, 2, partition=1)]
    assert newest == written[1:]
    with pytest.raises(PartitionUnknown):
        next(log.newest(first, 2, partition=2))


def test_configuration_is_changed_and_reset(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(retention="7 days")
    log.topics.alter(name, retention=timedelta(hours=1), compact=False, config={"segment.bytes": "1048576"})
    changed = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.bytes": "1048576"}
    until(lambda: log.topics.describe(name).config == changed, "what was changed")
    log.topics.alter(name, retention="forever", reset=["segment.bytes", "cleanup.policy"])
    until(lambda: log.topics.describe(name).config == {"retention.ms": "-1"}, "what was reset")


def test_partitions_are_added_only_when_keys_may_move(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic(partitions=2)
    keys = [f"key-{number}" for number in range(50)]

    def places() -> dict[bytes | None, int]:
        ends = {number: last for number, (_, last) in log.topics.offsets(name).items()}
        with log.writer(name) as writer:
            for key in keys:
                writer.write(b"x", key=key)
        return {
            record.key: record.partition for record in log.read(name) if record.offset >= ends.get(record.partition, 0)
        }

    before = places()
    with pytest.raises(PartitionsMoveKeys, match="most keys move"):
        log.topics.alter(name, partitions=6)
    assert len(log.topics.describe(name).partitions) == 2
    log.topics.alter(name, partitions=6, keys_may_move=True)
    after = places()
    assert before.keys() == after.keys() == {key.encode() for key in keys}
    moved = [key for key in before if before[key] != after[key]]
    assert len(moved) > len(keys) / 3  # the warning is true
    with pytest.raises(PartitionsFewer, match="Kafka only adds"):
        log.topics.alter(name, partitions=3, keys_may_move=True)
    log.topics.alter(name, partitions=6)  # as many as there are: nothing moves


def test_a_deleted_topic_is_gone(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    log.write(name, b"x")
    assert log.topics.exists(name)
    log.topics.delete(name)
    assert not log.topics.exists(name)
    with pytest.raises(TopicUnknown):
        log.write(name, b"x")
    with pytest.raises(TopicUnknown):
        log.topics.delete(name)
    with pytest.raises(TopicUnknown):
        log.topics.identity(name)


def test_an_unknown_topic_is_named_with_the_nearest(log: Log) -> None:
    log.topics.ensure("payments-near")
    for use in (log.topics.describe, log.topics.delete, log.writer, log.reader):
        with pytest.raises(TopicUnknown, match=r"there is no topic 'payment-near'; did you mean 'payments-near'\?"):
            use("payment-near")


def test_a_second_topic_of_the_name_is_refused_and_ensure_is_not(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    with pytest.raises(TopicExists):
        log.topics.create(name)
    assert not log.topics.ensure(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a/b", "x" * 250])
def test_names_kafka_does_not_take_are_refused_before_it_is_asked(log: Log, name: str) -> None:
    with pytest.raises(TopicNameInvalid):
        log.topics.create(name)


def test_wrong_configuration_is_the_users_error(log: Log) -> None:
    for options in (
        {"config": {"no.such": "1"}},
        {"config": {"retention.ms": "x"}},
        {"replication": 7},
    ):
        with pytest.raises(TopicConfigInvalid):
            log.topics.create("wrong", **options)  # type: ignore[arg-type]
    for options in ({"partitions": 0}, {"partitions": -3}, {"partitions": 10**14}, {"replication": 0}):
        with pytest.raises(CountInvalid):
            log.topics.create("wrong", **options)  # type: ignore[arg-type]
    with pytest.raises(DurationInvalid):
        log.topics.create("wrong", retention="7")
    with pytest.raises(SizeInvalid):
        log.topics.create("wrong", retention_bytes="much")
    assert not log.topics.exists("wrong")


def test_sizes() -> None:
    assert [size_bytes(size) for size in (5, "5", "1 kB", "1.5MB", "10 GiB", "1t")] == [
        5, 5, 1024, 1_572_864, 10 * 1024**3, 1024**4
    ]  # fmt: skip


def test_prefixes_do_not_see_each_other(log: Log) -> None:
    dev, test, bare = (Log(replace(log.settings, prefix=prefix)) for prefix in ("dev", "test", ""))
    dev.topics.create("shared")
    dev.write("shared", "dev's")
    assert not test.topics.exists("shared")
    test.topics.create("shared", partitions=2)
    test.write("shared", "test's")
    assert [topic.name for topic in dev.topics.list()] == ["shared"]
    assert [topic.partitions for topic in test.topics.list()] == [2]
    assert [record.text for record in dev.read("shared")] == ["dev's"]
    assert [record.text for record in test.read("shared")] == ["test's"]
    everything = {topic.name for topic in dev.topics.list(everything=True)}
    assert {"dev.shared", "test.shared"} <= everything
    dev.topics.delete("shared")
    assert test.topics.exists("shared")
    test.topics.delete("shared")
    assert not any(topic.name.startswith("_") for topic in bare.topics.list())


def test_kafkas_own_topics_are_listed_only_on_request(log: Log, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    with log.join("makes-consumer-offsets", [name]) as reader:
        log.write(name, b"x")
        assert len(list(reader.records(limit=1))) == 1
    bare = Log(replace(log.settings, prefix=""))
    assert "__consumer_offsets" not in {topic.name for topic in bare.topics.list()}
    assert "__consumer_offsets" in {topic.name for topic in bare.topics.list(everything=True)}
