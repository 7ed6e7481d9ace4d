"""Reading a topic piece by piece: each time from offsets to offsets, by one consumer that stays."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from millrace.errors import KafkaUnreachable, RecordsExpired
from millrace.log.connection import Connection
from millrace.log.reader import BATCH_RECORDS, SILENCE_S, arrived
from millrace.log.topics import Topics

_WAIT_S = 0.1


class Ranges:
    def __init__(self, connection: Connection, topics: Topics, topic: str) -> None:
        self.topic = topic
        self._connection, self._outside = connection, topics.outside(topic)
        self._consumer = connection.consumer(
            {
                "group.id": connection.settings.named("millrace-reader"),  # librdkafka wants one; it is never joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,  # the last offset may be a transaction's mark, which is no record
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
            }
        )

    def close(self) -> None:
        self._consumer.close()

    def between(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Message]:
        """The records from each partition's start, 0 if it is not said, to before its end. A topic that was compacted
        may begin later."""
        left = {number: end for number, end in ends.items() if starts.get(number, 0) < end}
        if not left:
            return
        self._consumer.assign([TopicPartition(self._outside, number, starts.get(number, 0)) for number in left])
        heard = time.monotonic()
        while left:
            try:
                found = arrived(self._consumer, BATCH_RECORDS, _WAIT_S)
            except KafkaException as error:
                raise self._connection.trouble(error.args[0], f"read topic {self.topic!r}") from None
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                reason = f"silent for {SILENCE_S} s while reading"
                raise KafkaUnreachable(address=self._connection.address, reason=reason)
            for message in found:
                yield from self._taken(message, left)
        self._consumer.unassign()

    def _taken(self, message: Message, left: dict[int, int]) -> Iterator[Message]:
        number, error = message.partition(), message.error()
        if number not in left:
            return
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise RecordsExpired(topic=self.topic, partition=number)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise self._connection.trouble(error, f"read topic {self.topic!r}")
        if error is None and message.offset() < left[number]:
            yield message
        if message.offset() + (error is None) >= left[number]:
            del left[number]
