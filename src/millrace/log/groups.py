"""Consumer groups: who reads what, how far behind they are, and moving their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.errors import GroupActive, GroupUnknown, PartitionUnknown, SeekNothing, SeekOutside, nearest
from millrace.log.connection import ANSWER_S, Connection
from millrace.log.lag import Lag, lag_of
from millrace.log.record import Position, timestamp_ms
from millrace.log.topics import Topics

_IDLE = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
_ACTIVE_ERRORS = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP, KafkaError.REBALANCE_IN_PROGRESS)


@dataclass(frozen=True)
class GroupSummary:
    """`protocol` is how its members agree on partitions: `classic` or `consumer` (KIP-848)."""

    name: str
    state: str
    protocol: str


@dataclass(frozen=True)
class Member:
    """One process of a group; `name` is the lasting name of a static member. Partitions are (topic, number)."""

    id: str
    name: str | None
    client: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class GroupDescription:
    name: str
    state: str
    protocol: str
    assignor: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Move:
    """Where a group stood in a partition, and where it stands now."""

    topic: str
    partition: int
    before: int | None
    after: int


class Groups:
    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics

    def list(self, *, everything: bool = False) -> tuple[GroupSummary, ...]:
        """The groups of this prefix; with `everything` those of others too, by their outside names."""
        found = []
        for group in self._listed():
            name = group.group_id if everything else self._connection.settings.unnamed(group.group_id)
            if name:
                found.append(GroupSummary(name, _word(group.state), _word(group.type)))
        return tuple(sorted(found, key=lambda group: group.name))

    def describe(self, name: str) -> GroupDescription:
        found = self._known(name)
        members = tuple(self._member(member) for member in found.members)
        return GroupDescription(name, _word(found.state), _word(found.type), found.partition_assignor, members)

    def lag(self, name: str) -> tuple[Lag, ...]:
        """Every partition of every topic that the group reads or has read."""
        assigned = {place.topic for member in self._known(name).members for place in member.assignment.topic_partitions}
        committed = self._committed(name)
        there = set(self._topics.names())
        found = []
        for outside in sorted((assigned | set(committed)) & there):
            topic = self._inside(outside)
            held = self._topics.offsets_of(outside)
            found += lag_of(self._connection, topic, outside, held, committed.get(outside, {}))
        return tuple(found)

    def seek(
        self, name: str, to: Position, *, topic: str | None = None, partition: int | None = None
    ) -> tuple[Move, ...]:
        """Moves a group that nobody reads with to another place: in all its topics, or in one, which may be new to it.

        A time means the first record that is not older; where there is none, the end.
        """
        moves = self._planned(name, to, topic, partition)
        self._move(name, [TopicPartition(*place, move.after) for place, move in moves.items()])
        return tuple(moves.values())

    def moves(
        self, name: str, to: Position, *, topic: str | None = None, partition: int | None = None
    ) -> tuple[Move, ...]:
        """What `seek` would do, and its refusals; moves nothing."""
        return tuple(self._planned(name, to, topic, partition).values())

    def places(self, name: str) -> dict[str, dict[int, int]]:
        """The next offset that the group will read, by topic and partition."""
        # Described first, which waits for the group's coordinator. Asked for offsets while there is none, as when a
        # broker has just started, librdkafka's admin client ends the process (confluent-kafka-javascript, issue 374).
        self._described(name)
        return {self._inside(outside): places for outside, places in self._committed(name).items()}

    def _planned(
        self, name: str, to: Position, topic: str | None, partition: int | None
    ) -> dict[tuple[str, int], Move]:
        """By the outside name of the topic, and the partition."""
        self._refuse_active(name)
        before = self._committed(name)
        outsides = [self._topics.outside(topic)] if topic else sorted(set(before) & set(self._topics.names()))
        if topic:
            self._topics.known(topic)
        if not outsides:
            raise SeekNothing(group=name)
        return {
            (outside, number): Move(self._inside(outside), number, before.get(outside, {}).get(number), after)
            for outside in outsides
            for number, after in self._places(outside, to, partition).items()
        }

    def _places(self, outside: str, to: Position, partition: int | None) -> dict[int, int]:
        held = self._topics.offsets_of(outside)
        topic = self._inside(outside)
        if partition is not None:
            if partition not in held:
                raise PartitionUnknown(topic=topic, partition=partition, count=len(held))
            held = {partition: held[partition]}
        if to == "earliest":
            return {number: first for number, (first, _) in held.items()}
        if to == "latest":
            return {number: last for number, (_, last) in held.items()}
        if isinstance(to, datetime):
            asked = OffsetSpec.for_timestamp(timestamp_ms(to))
            found = self._topics.ends(outside, asked)
            return {number: found[number] if found[number] >= 0 else last for number, (_, last) in held.items()}
        for number, (first, last) in held.items():
            if not first <= to <= last:
                raise SeekOutside(topic=topic, partition=number, offset=to, first=first, last=last)
        return dict.fromkeys(held, to)

    def _move(self, name: str, places: Sequence[TopicPartition]) -> None:
        outside = self._connection.settings.named(name)
        request = [ConsumerGroupTopicPartitions(outside, places)]
        future = self._admin.alter_consumer_group_offsets(request, request_timeout=ANSWER_S)[outside]
        done = self._connection.answer(future, f"move group {name!r}")
        for place in done.topic_partitions:
            if place.error is None:
                continue
            if place.error.code() in _ACTIVE_ERRORS:  # somebody joined between our look and the move
                self._refuse_active(name)
            raise self._connection.trouble(place.error, f"move group {name!r}")

    def _refuse_active(self, name: str) -> None:
        found = self._described(name)
        if found.state in _IDLE and not found.members:
            return
        members = ", ".join(
            f"{member.group_instance_id or member.client_id} at {member.host.lstrip('/')}" for member in found.members
        )
        raise GroupActive(group=name, members=members or f"members that are just joining ({_word(found.state)})")

    def _committed(self, name: str) -> dict[str, dict[int, int]]:
        outside = self._connection.settings.named(name)
        request = [ConsumerGroupTopicPartitions(outside)]
        future = self._admin.list_consumer_group_offsets(request, request_timeout=ANSWER_S)[outside]
        found: dict[str, dict[int, int]] = {}
        for place in self._connection.answer(future, f"say where group {name!r} stands").topic_partitions:
            if place.error is not None:
                raise self._connection.trouble(place.error, f"say where group {name!r} stands")
            if place.offset >= 0:
                found.setdefault(place.topic, {})[place.partition] = place.offset
        return found

    def _known(self, name: str) -> Any:
        """A group without members and without offsets does not exist: Kafka describes any name as a dead group."""
        found = self._described(name)
        if found.state == ConsumerGroupState.DEAD and not self._committed(name):
            raise GroupUnknown(group=name, hint=nearest(name, [group.name for group in self.list()]))
        return found

    def _described(self, name: str) -> Any:
        outside = self._connection.settings.named(name)
        future = self._admin.describe_consumer_groups([outside], request_timeout=ANSWER_S)[outside]
        return self._connection.answer(future, f"describe group {name!r}")

    def _listed(self) -> Any:
        found = self._connection.answer(self._admin.list_consumer_groups(request_timeout=ANSWER_S), "list groups")
        for error in found.errors:
            raise self._connection.trouble(error.args[0], "list groups")
        return found.valid

    def _member(self, member: Any) -> Member:
        places = ((self._inside(place.topic), place.partition) for place in member.assignment.topic_partitions)
        return Member(
            member.member_id, member.group_instance_id, member.client_id, member.host.lstrip("/"), tuple(sorted(places))
        )

    def _inside(self, outside: str) -> str:
        """A topic's own name; the outside one where a group of ours reads a topic of others."""
        return self._connection.settings.unnamed(outside) or outside

    @property
    def _admin(self) -> Any:
        return self._connection.admin


def _word(state: Any) -> str:
    return str(state.name).lower().replace("_", " ")
