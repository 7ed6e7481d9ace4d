"""Telling where a group stands that nobody reads with: for whoever keeps its own offsets and wants its lag to be seen.

By a consumer that reads nothing. The admin client can do the same, and ends the whole process by a failed assertion
when the connection to the group's coordinator breaks meanwhile (librdkafka #4605, open as of 2.16).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.errors import KafkaUnreachable
from millrace.log.connection import Connection

# How long a coordinator is waited for: the client defers commits for the session's time.
WAIT_MS = 3_000


class GroupPlace:
    """One group. Belongs to one thread."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection, self._group = connection, group
        self._client: Any = None

    def tell(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """For each topic, by its outside name, the next offset of each partition."""
        action = f"note where group {self._group!r} stands"
        if self._client is None:
            options = {"enable.auto.commit": False, "session.timeout.ms": WAIT_MS, "socket.timeout.ms": WAIT_MS}
            own = {"group.id": self._connection.settings.named(self._group), **options}
            self._client = self._connection.consumer(own)
        places = [
            TopicPartition(outside, number, offset)
            for outside, found in offsets.items()
            for number, offset in found.items()
        ]
        try:
            done = self._client.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._WAIT_COORD:
                reason = f"no coordinator in {WAIT_MS // 1_000} s"
                raise KafkaUnreachable(address=self._connection.address, reason=reason) from None
            raise self._connection.trouble(error.args[0], action) from None
        for place in done:
            if place.error is not None:
                raise self._connection.trouble(place.error, action)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
