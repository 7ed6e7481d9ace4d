"""Kafka, as Millrace needs it: topics, records, consumer groups, lag, seek and dead letters. No Spark, no flows.

`Log` is the entrance. Names are those of the app, without the prefix of the environment.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from millrace import config
from millrace.config import Settings
from millrace.errors import PartitionUnknown
from millrace.log.connection import Connection
from millrace.log.deadletters import DeadLetter, DeadLetters
from millrace.log.delays import newest
from millrace.log.formats import Format, format_of
from millrace.log.group_reader import GroupReader
from millrace.log.groups import GroupDescription, Groups, GroupSummary, Member, Move
from millrace.log.java import java_options
from millrace.log.lag import Lag
from millrace.log.places import GroupPlace
from millrace.log.ranges import Ranges
from millrace.log.reader import Reader
from millrace.log.record import Headers, Position, Record, Value, position
from millrace.log.registry import Registry
from millrace.log.topics import Extent, Partition, TopicDescription, Topics, TopicSummary
from millrace.log.transactions import Draft, Transactions
from millrace.log.writer import DELIVERY_S, Writer

__all__ = [
    "DataSource",
    "DeadLetter",
    "DeadLetters",
    "Draft",
    "Extent",
    "Format",
    "GroupDescription",
    "GroupPlace",
    "GroupReader",
    "GroupSummary",
    "Groups",
    "Headers",
    "Lag",
    "Log",
    "Member",
    "Move",
    "Partition",
    "Position",
    "Ranges",
    "Reader",
    "Record",
    "TopicDescription",
    "TopicSummary",
    "Topics",
    "Transactions",
    "Writer",
    "java_options",
    "position",
]


@dataclass(frozen=True)
class DataSource:
    """A log as Spark reaches it: the name of a data source with the columns and offsets of Kafka's, and its options.
    `time` is the clock of a test (see `kernel.times`); otherwise it is the time of day."""

    format: str
    options: Mapping[str, str]
    time: str | None = None


class Log:
    """The log that `settings` names, by default those of the project that we are in. Connects when it is first used."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or config.load()
        self._connection = Connection(self.settings)
        self._writers: dict[tuple[str, str], Writer] = {}

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def data_source(self) -> DataSource:
        options = {"bootstrap.servers": self.address, **java_options(self.settings)}
        return DataSource("kafka", {f"kafka.{name}": value for name, value in options.items()})

    @cached_property
    def _registry(self) -> Registry:
        return Registry(self.settings)

    @cached_property
    def topics(self) -> Topics:
        return Topics(self._connection)

    @cached_property
    def groups(self) -> Groups:
        return Groups(self._connection, self.topics)

    @cached_property
    def dead(self) -> DeadLetters:
        return DeadLetters(self._connection, self.topics)

    def format(self, topic: str, name: str, schema: Path | str | None = None) -> Format:
        """How values of a topic are encoded and decoded: "json", "avro" or "protobuf". Writing needs a schema."""
        return format_of(self._registry, topic, self.topics.outside(topic), name, schema)

    def place(self, group: str) -> GroupPlace:
        """For telling where a group stands that nobody reads with."""
        return GroupPlace(self._connection, group)

    def ranges(self, topic: str) -> Ranges:
        """For reading a topic piece by piece, each between offsets that somebody else knows."""
        return Ranges(self._connection, self.topics, topic)

    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        member: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        batch: int = 500,
    ) -> GroupReader:
        """Reads as a member of a consumer group. `start` is for partitions that the group has never read."""
        return GroupReader(self._connection, self.topics, group, topics, member=member, start=start, batch=batch)

    def writer(self, topic: str, *, acks: str | int = "all", delivery_s: float = DELIVERY_S) -> Writer:
        """For many records: `with log.writer("payments") as writer: writer.write({"id": 1}, key="a")`.

        A record that is not acknowledged within `delivery_s` counts as failed.
        """
        return Writer(self._connection, self.topics, topic, acks=acks, delivery_s=delivery_s)

    def transactions(self, name: str) -> Transactions:
        """For writing to several topics at once: all of it is seen, or none."""
        return Transactions(self._connection, self.topics, name)

    def write(
        self,
        topic: str,
        value: Value,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]] | None = None,
        partition: int | None = None,
        time: datetime | None = None,
        acks: str | int = "all",
    ) -> None:
        """Writes one record, and returns when it is acknowledged."""
        place = (topic, str(acks))
        self.topics.known(topic)  # it may have been deleted since the last time
        if place not in self._writers:  # getting to know a broker takes longer than many records
            self._writers[place] = self.writer(topic, acks=acks)
        self._writers[place].write(value, key=key, headers=headers, partition=partition, time=time)
        self._writers[place].flush()

    def read(
        self,
        topic: str,
        start: Position = "earliest",
        *,
        partition: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
        follow: bool = False,
        stop: threading.Event | None = None,
        lasting_s: float | None = None,
    ) -> Generator[Record, None, None]:
        """Records from a place on, to the end as of now, or with `follow` until stopped. See `Reader`."""
        return self.reader(
            topic,
            start,
            partition=partition,
            limit=limit,
            until=until,
            follow=follow,
            stop=stop,
            lasting_s=lasting_s,
        ).records()

    def newest(
        self, topic: str, limit: int, *, partition: int | None = None, stop: threading.Event | None = None
    ) -> Generator[Record, None, None]:
        """About the newest `limit` records, one partition after the other."""
        held = self.topics.offsets(topic)
        if partition is not None:
            if partition not in held:
                raise PartitionUnknown(topic=topic, partition=partition, count=len(held))
            held = {partition: held[partition]}
        for number, (begin, count) in newest(held, limit).items():
            yield from self.read(topic, begin, partition=number, limit=count, stop=stop)

    def reader(
        self,
        topic: str,
        start: Position = "earliest",
        *,
        partition: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
        follow: bool = False,
        stop: threading.Event | None = None,
        lasting_s: float | None = None,
        gather_s: float = 0.0,
    ) -> Reader:
        """The same reading, for whoever wants whole batches, or what is gone by retention."""
        return Reader(
            self._connection,
            self.topics,
            topic,
            start,
            partition=partition,
            limit=limit,
            until=until,
            follow=follow,
            stop=stop,
            lasting_s=lasting_s,
            gather_s=gather_s,
        )
