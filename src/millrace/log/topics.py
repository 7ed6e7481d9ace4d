"""Topics: making, listing, describing, changing and deleting them.

Names go in and come out without the prefix of the settings. Topics whose name begins with "_" are those by which
Kafka and Connect keep their own state: they are listed only with `everything`, which also shows other prefixes' topics
and therefore gives outside names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from millrace.durations import milliseconds
from millrace.errors import (
    CountInvalid,
    KafkaRefused,
    PartitionsFewer,
    PartitionsMoveKeys,
    SizeInvalid,
    TopicConfigInvalid,
    TopicExists,
    TopicNameInvalid,
    TopicUnknown,
    nearest,
)
from millrace.log.connection import ANSWER_S, Connection, reason
from millrace.log.record import moment as moment_of
from millrace.log.record import timestamp_ms

LONGEST_NAME = 249
FOREVER = "forever"
LIMIT = "max.message.bytes"
DEFAULT_LIMIT_BYTES = 1_048_588
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b?)")
_SIZES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_REFUSED = (
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError._INVALID_ARG,
)
MOST_PARTITIONS = 10_000
MOST_COPIES = 100
# A leader is being chosen: just after a topic was made, partitions were added or a broker was lost.
_PASSING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
_AGAIN_S = 0.05
_STARTS_S = 3.0


@dataclass(frozen=True)
class Partition:
    """`first` is the offset of the oldest record, `last` the one that the next record will get."""

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True)
class Extent:
    """Where a partition's records begin and end, those of open transactions too, and when the newest was written."""

    first: int
    last: int
    newest: datetime | None


@dataclass(frozen=True)
class TopicSummary:
    name: str
    partitions: int
    replication: int


@dataclass(frozen=True)
class TopicDescription:
    """`config` holds what differs from the broker's defaults."""

    name: str
    partitions: tuple[Partition, ...]
    config: Mapping[str, str]

    @property
    def offsets(self) -> int:
        """How many offsets are taken: at least the number of records, since compaction and transactions leave holes."""
        return sum(partition.last - partition.first for partition in self.partitions)


class Topics:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, everything: bool = False) -> tuple[TopicSummary, ...]:
        found = []
        for topic in self._metadata().topics.values():
            name = topic.topic if everything else self._connection.settings.unnamed(topic.topic)
            if name and (everything or not name.startswith("_")):
                replication = max((len(partition.replicas) for partition in topic.partitions.values()), default=0)
                found.append(TopicSummary(name, len(topic.partitions), replication))
        return tuple(sorted(found, key=lambda topic: topic.name))

    def exists(self, name: str) -> bool:
        return self.outside(name) in self._metadata().topics

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int | None = None,
        retention: str | timedelta | None = None,
        retention_bytes: int | str | None = None,
        compact: bool | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Makes a topic. `retention` is a duration or "forever"; `replication` is the broker's default unless given."""
        outside = self.outside(name)
        wanted = {**_config(retention, retention_bytes, compact), **(config or {})}
        counts = (("partitions", partitions, MOST_PARTITIONS), ("replication", replication, MOST_COPIES))
        for option, number, most in counts:
            if number is not None and not 1 <= number <= most:
                raise CountInvalid(option=option, given=number, most=most)
        topic = NewTopic(outside, partitions, replication or -1, config=wanted)
        try:
            self._admin.create_topics([topic], operation_timeout=ANSWER_S)[outside].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicExists(topic=name) from None
            raise self._refused(name, error, "create a topic") from None
        self._settled(outside, partitions)

    def ensure(self, name: str, **options: Any) -> bool:
        """Makes the topic unless it is there. Says whether it was made."""
        if self.exists(name):
            return False
        try:
            self.create(name, **options)
        except TopicExists:  # somebody was faster
            return False
        return True

    def identity(self, name: str) -> str:
        """What tells a topic from another of the same name that was made after it was deleted."""
        outside = self.outside(name)
        self.known(name)
        try:
            found = self._admin.describe_topics(TopicCollection([outside]), request_timeout=ANSWER_S)[outside].result()
        except KafkaException as error:
            raise self._refused(name, error, "describe a topic") from None
        return str(found.topic_id)

    def describe(self, name: str) -> TopicDescription:
        known = self.known(name)
        offsets = self.offsets(name, committed=False)
        partitions = tuple(
            Partition(
                number,
                found.leader if found.leader >= 0 else None,
                tuple(found.replicas),
                tuple(found.isrs),
                *offsets[number],
            )
            for number, found in sorted(known.partitions.items())
        )
        own = {
            entry.name: entry.value
            for entry in self._entries(name).values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value and not entry.is_sensitive
        }
        return TopicDescription(name, partitions, dict(sorted(own.items())))

    def config(self, name: str) -> dict[str, str]:
        """Everything that holds for the topic, the broker's defaults included."""
        return {entry.name: entry.value for entry in self._entries(name).values()}

    def alter(
        self,
        name: str,
        *,
        partitions: int | None = None,
        keys_may_move: bool = False,
        retention: str | timedelta | None = None,
        retention_bytes: int | str | None = None,
        compact: bool | None = None,
        config: Mapping[str, str] | None = None,
        reset: Iterable[str] = (),
    ) -> None:
        """Changes a topic; `reset` names options that go back to the broker's default.

        Kafka finds a key's partition by the number of them, so adding some moves keys: that is done only
        with `keys_may_move`.
        """
        found = len(self.known(name).partitions)
        if partitions is not None and partitions < found:
            raise PartitionsFewer(topic=name, found=found, wanted=partitions)
        if partitions is not None and partitions > found and not keys_may_move:
            raise PartitionsMoveKeys(topic=name, found=found, wanted=partitions)
        wanted = {**_config(retention, retention_bytes, compact), **(config or {})}
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in wanted.items()
        ]
        entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in reset]
        outside = self.outside(name)
        try:
            if entries:
                resource = ConfigResource(ResourceType.TOPIC, outside, incremental_configs=entries)
                self._admin.incremental_alter_configs([resource], request_timeout=ANSWER_S)[resource].result()
            if partitions is not None and partitions > found:
                more = NewPartitions(outside, partitions)
                self._admin.create_partitions([more], operation_timeout=ANSWER_S)[outside].result()
                self._settled(outside, partitions)
        except KafkaException as error:
            raise self._refused(name, error, "change a topic") from None

    def delete(self, name: str) -> None:
        self.known(name)
        outside = self.outside(name)
        future = self._admin.delete_topics([outside], operation_timeout=ANSWER_S)[outside]
        self._connection.answer(future, f"delete topic {name!r}")
        self._until(lambda: outside not in self._metadata().topics, f"delete topic {name!r}")

    def names(self) -> tuple[str, ...]:
        """Every topic that there is, by its outside name."""
        return tuple(self._metadata().topics)

    def offsets(self, name: str, *, committed: bool = True) -> dict[int, tuple[int, int]]:
        """For each partition where its records begin and where they end as of now.

        With `committed` the end is that of readers: where the first open transaction begins.
        """
        self.known(name)
        return self.offsets_of(self.outside(name), committed=committed)

    def last(self, name: str, *, committed: bool = True) -> dict[int, int]:
        """For each partition where its records end as of now, in one question instead of two."""
        return self.ends(self.outside(name), OffsetSpec.latest(), committed=committed)

    def offsets_of(self, outside: str, *, committed: bool = True) -> dict[int, tuple[int, int]]:
        """The same by the outside name, for topics of others too."""
        first = self.ends(outside, OffsetSpec.earliest())
        last = self.ends(outside, OffsetSpec.latest(), committed=committed)
        return {number: (first[number], last[number]) for number in sorted(first.keys() & last.keys())}

    def extents(self, names: Iterable[str]) -> dict[str, dict[int, Extent]]:
        """Of those topics that are there, where the records of each partition begin and end, and when the newest one
        was written: three requests, however many topics."""
        there = self._metadata().topics
        known = {outside: name for name in names if (outside := self.outside(name)) in there}
        places = [TopicPartition(outside, number) for outside in known for number in there[outside].partitions]
        if not places:
            return {}
        first, last, newest = (
            self._admin.list_offsets(dict.fromkeys(places, spec), request_timeout=ANSWER_S)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp())
        )
        found: dict[str, dict[int, Extent]] = {name: {} for name in known.values()}
        for place in places:
            begin, end, top = (self._connection.answer(each[place], "list offsets") for each in (first, last, newest))
            time_ms = top.timestamp if top.offset >= 0 else None
            extent = Extent(begin.offset, end.offset, None if time_ms is None else moment_of(time_ms))
            found[known[place.topic]][place.partition] = extent
        return found

    def at(self, name: str, moment: datetime) -> dict[int, int]:
        """For each partition where the records begin that arrived then or later: its end, if there are none."""
        outside = self.outside(name)
        last = self.ends(outside, OffsetSpec.latest())  # first: what arrives meanwhile is not before that moment
        found = self.ends(outside, OffsetSpec.for_timestamp(timestamp_ms(moment)))
        return {number: last[number] if offset < 0 else offset for number, offset in found.items()}

    def ends(self, outside: str, spec: Any, *, committed: bool = True) -> dict[int, int]:
        """For each partition the offset that `spec` asks for, -1 if there is none."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                # Asked for all topics: asking for one by name could make it, where brokers make topics on their own.
                topics = self._metadata().topics
                if outside not in topics:
                    raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
                asked = {TopicPartition(outside, number): spec for number in topics[outside].partitions}
                futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S)
                return {place.partition: future.result().offset for place, future in futures.items()}
            except KafkaException as error:
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                    action = f"say where the records of topic {outside!r} are"
                    raise self._connection.trouble(error.args[0], action) from None
                time.sleep(_AGAIN_S)

    def known(self, name: str) -> Any:
        """The broker's description of a topic that has to exist."""
        outside = self.outside(name)
        deadline = time.monotonic() + _STARTS_S
        # A broker that has just started answers before it knows its topics; who believes that ends a flow for good.
        while not (topics := self._metadata().topics) and time.monotonic() < deadline:
            time.sleep(_AGAIN_S)
        if outside not in topics:
            raise TopicUnknown(topic=name, hint=nearest(name, [topic.name for topic in self.list()]))
        return topics[outside]

    def outside(self, name: str) -> str:
        outside = self._connection.settings.named(name)
        fault = ""
        if not name:
            fault = "it is empty"
        elif name in (".", ".."):
            fault = "it means a folder"
        elif not _NAME.fullmatch(name):
            fault = "of it, Kafka does not take " + " ".join(sorted(set(re.sub(r"[a-zA-Z0-9._-]", "", name))))
        elif len(outside) > LONGEST_NAME:
            fault = f"it is {len(outside)} characters long"
        if fault:
            raise TopicNameInvalid(topic=name, reason=fault)
        return outside

    @property
    def _admin(self) -> Any:
        return self._connection.admin

    def _settled(self, outside: str, partitions: int) -> None:
        """Returns when a new topic or partition can be used: the broker knows it, and it has a leader."""

        def there() -> bool:
            topics = self._metadata().topics
            return outside in topics and len(topics[outside].partitions) >= partitions

        self._until(there, f"make partitions of topic {outside!r} ready")
        self.ends(outside, OffsetSpec.latest())

    def _until(self, condition: Callable[[], bool], action: str) -> None:
        deadline = time.monotonic() + ANSWER_S
        while not condition():
            if time.monotonic() > deadline:
                reason = f"it took more than {ANSWER_S:.0f} s"
                raise KafkaRefused(address=self._connection.address, action=action, reason=reason)
            time.sleep(_AGAIN_S)

    def reach(self, within_s: float) -> None:
        """Raises when no broker answers so soon: for whoever cannot wait as long as a request may take."""
        self._metadata(within_s)

    def _metadata(self, within_s: float = ANSWER_S) -> Any:
        try:
            return self._admin.list_topics(timeout=within_s)
        except KafkaException as error:
            raise self._connection.trouble(error.args[0], "list topics") from None

    def _entries(self, name: str) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, self.outside(name))
        future = self._admin.describe_configs([resource], request_timeout=ANSWER_S)[resource]
        entries: dict[str, Any] = self._connection.answer(future, f"say how topic {name!r} is configured")
        return entries

    def _refused(self, name: str, error: KafkaException, action: str) -> Exception:
        cause = error.args[0]
        if cause.code() in _REFUSED:
            return TopicConfigInvalid(topic=name, reason=reason(cause))
        return self._connection.trouble(cause, action)


def size_bytes(size: int | str) -> int:
    """ "10 GB" as a number. Kilo is 1024 here, as in Kafka's own defaults."""
    if isinstance(size, int):
        return size
    found = _SIZE.fullmatch(size.strip().lower())
    if not found:
        raise SizeInvalid(text=size)
    return int(float(found[1]) * 1024 ** _SIZES[found[2][:1].replace("b", "")])


def _config(
    retention: str | timedelta | None, retention_bytes: int | str | None, compact: bool | None
) -> dict[str, str]:
    config = {}
    if retention is not None:
        config["retention.ms"] = "-1" if retention == FOREVER else str(milliseconds(retention))
    if retention_bytes is not None:
        config["retention.bytes"] = "-1" if retention_bytes == FOREVER else str(size_bytes(retention_bytes))
    if compact is not None:
        both = compact and (retention is not None or retention_bytes is not None)
        config["cleanup.policy"] = "compact,delete" if both else "compact" if compact else "delete"
    return config
