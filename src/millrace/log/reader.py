"""Reading records from any place in a topic, to an end or until stopped, without belonging to a group.

Order holds within a partition; partitions come as they arrive.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator
from contextlib import closing
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millrace.errors import KafkaUnreachable, PartitionUnknown, RecordsExpired
from millrace.log.connection import ANSWER_S, Connection
from millrace.log.record import Position, Record, record_of, timestamp_ms
from millrace.log.topics import Topics

BATCH_RECORDS = 10_000
# `consume` waits this long for a full batch, and Ctrl-C waits for `consume`.
_BATCH_S = 0.1
SILENCE_S = 60  # a broker that is away this long ends a bounded reading; a follower waits for it

# Enough fetched ahead that the broker is never waited for, and a bound on memory.
_SPEED = {
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 64 * 1024,
    "fetch.queue.backoff.ms": 5,  # the default of 1 s is a pause each time the queue was full
}


def arrived(consumer: Consumer, most: int, limit_s: float) -> list[Message]:
    """What is there, or else the next record as soon as it comes: asked for many, the client waits for all of them."""
    found: list[Message] = consumer.consume(most, 0) or consumer.consume(1, limit_s)
    return found


class Reader:
    """One reading of one topic: where it starts and ends is settled when it is made.

    - `start`: earliest, latest, an offset (records of every partition from it on), or a time: then exactly the records
      whose timestamp is that or later, also where timestamps are out of order.
    - `follow`: go on for new records. Otherwise the end is the topic's end as of now.
    - `until`: only records with an earlier timestamp; a follower stops when the clock passes it.
    - `limit`: at most so many records. `lasting_s`: for so long at most. `stop`: ends the reading soon after it is set.
    - `gather_s`: how long a follower waits, when records have come, for those that belong to them.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
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
    ) -> None:
        self.topic = topic
        self._connection = connection
        self._outside = topics.outside(topic)
        self._limit, self._follow, self._stop, self._gather_s = limit, follow, stop, gather_s
        self._deadline = math.inf if lasting_s is None else time.monotonic() + lasting_s
        self._from_ms = timestamp_ms(start) if isinstance(start, datetime) else None
        self._until_ms = timestamp_ms(until) if until else None
        held = topics.offsets(topic)
        if partition is not None and partition not in held:
            raise PartitionUnknown(topic=topic, partition=partition, count=len(held))
        self.held = held if partition is None else {partition: held[partition]}
        self._consumer = connection.consumer(
            {
                **_SPEED,
                # How long the broker holds back the news that nothing follows: the end of a bounded reading may be a
                # transaction's mark, which is no record, and then this news is all that tells of it.
                "fetch.wait.max.ms": 500 if follow else 20,
                "group.id": connection.settings.named("millrace-reader"),  # librdkafka wants one; it is never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            },
        )
        self.begins = self._places(start)
        # How many records before the wanted offset retention has taken; for whoever wants to say so.
        self.expired = sum(max(first - start, 0) for first, _ in self.held.values()) if isinstance(start, int) else 0

    def records(self) -> Generator[Record, None, None]:
        with closing(self.batches()) as batches:
            for messages in batches:
                for message in messages:
                    yield record_of(self.topic, message)

    def batches(self) -> Generator[list[Message], None, None]:
        """The same, thousands at a time and not yet taken apart: the fast way."""
        try:
            yield from self._bounded()
        finally:
            self._consumer.close()

    def _bounded(self) -> Generator[list[Message], None, None]:
        left = self._limit
        if left is not None and left <= 0:
            return
        for messages in self._arriving():
            if self._from_ms is not None or self._until_ms is not None:
                messages = [message for message in messages if self._timely(message)]
            if left is not None:
                messages = messages[:left]
                left -= len(messages)
            if messages:
                yield messages
            if left == 0:
                return

    def _arriving(self) -> Generator[list[Message], None, None]:
        """Records up to the end of each partition, or without end."""
        ends = {} if self._follow else {number: last for number, (_, last) in self.held.items()}
        open_ends = {number: last for number, last in ends.items() if self.begins[number] < last}
        if not self._follow and not open_ends:
            return
        wanted = open_ends if not self._follow else self.held
        self._consumer.assign([TopicPartition(self._outside, number, self.begins[number]) for number in wanted])
        heard = time.monotonic()
        while not self._stopped():
            found = self._consume()
            if found:
                heard = time.monotonic()
            elif not self._follow and time.monotonic() - heard > SILENCE_S:
                raise KafkaUnreachable(
                    address=self._connection.address, reason=f"silent for {SILENCE_S} s while reading"
                )
            if self._follow:
                if records := [message for message in found if not self._event(message)]:
                    yield records
                continue
            records = []
            for message in found:
                number = message.partition()
                if number not in open_ends:  # it ran past its end before it was let go
                    continue
                if self._event(message) or message.offset() >= open_ends[number]:
                    self._let_go(number, open_ends)
                    continue
                records.append(message)
                if message.offset() + 1 >= open_ends[number]:
                    self._let_go(number, open_ends)
            if records:
                yield records
            if not open_ends:
                return

    def _consume(self) -> list[Message]:
        try:
            if self._follow:
                came = arrived(self._consumer, BATCH_RECORDS, _BATCH_S)
                if came and self._gather_s:
                    time.sleep(self._gather_s)
                    came += self._consumer.consume(BATCH_RECORDS, 0)
                return came
            found: list[Message] = self._consumer.consume(BATCH_RECORDS, _BATCH_S)
            return found
        except KafkaException as error:
            raise self._connection.trouble(error.args[0], f"read topic {self.topic!r}") from None

    def _let_go(self, number: int, open_ends: dict[int, int]) -> None:
        del open_ends[number]
        self._consumer.incremental_unassign([TopicPartition(self._outside, number)])

    def _event(self, message: Message) -> bool:
        """Whether this is the news that a partition's end is reached, not a record."""
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise RecordsExpired(topic=self.topic, partition=message.partition())
        raise self._connection.trouble(error, f"read topic {self.topic!r}")

    def _stopped(self) -> bool:
        if (self._stop is not None and self._stop.is_set()) or time.monotonic() >= self._deadline:
            return True
        return self._follow and self._until_ms is not None and time.time() * 1_000 >= self._until_ms

    def _timely(self, message: Message) -> bool:
        timestamp = message.timestamp()[1]
        return (self._from_ms is None or timestamp >= self._from_ms) and (
            self._until_ms is None or timestamp < self._until_ms
        )

    def _places(self, start: Position) -> dict[int, int]:
        if start == "earliest":
            return {number: first for number, (first, _) in self.held.items()}
        if start == "latest":
            return {number: last for number, (_, last) in self.held.items()}
        if isinstance(start, int):
            return {number: min(max(start, first), last) for number, (first, last) in self.held.items()}
        return self._places_at(start)

    def _places_at(self, start: datetime) -> dict[int, int]:
        """Before the first record that is not older, no record of the time looked for can be."""
        asked = [TopicPartition(self._outside, number, timestamp_ms(start)) for number in self.held]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=ANSWER_S)
        except KafkaException as error:
            raise self._connection.trouble(error.args[0], f"find a time in topic {self.topic!r}") from None
        return {
            place.partition: place.offset if place.offset >= 0 else self.held[place.partition][1] for place in found
        }
