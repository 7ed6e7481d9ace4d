"""Reading as a member of a group: partitions are shared out, and places are committed after the work is done."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.errors import MemberReplaced, MemberSlow, MillraceError
from millrace.log.connection import Connection
from millrace.log.reader import arrived
from millrace.log.record import Record, record_of
from millrace.log.topics import Topics

SLOW_S = 300  # how long the work on one batch may take before the group gives the partitions to others
_BATCH_S = 0.1


class GroupReader:
    """A plain-Python reader in a group: at least once, in order within a partition.

        with log.join("billing", ["payments"]) as reader:
            for record in reader.records():
                bill(record)

    A record's place is committed when the one after it is asked for, with its batch, and when partitions move or the
    `with` block is left without an error. So a crash in the middle brings back at most the last batch.

    `member` is a lasting name of this process (static membership): if it comes back within the session timeout, it gets
    the same partitions again, and nobody else's are moved meanwhile.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        group: str,
        names: Sequence[str],
        *,
        member: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        batch: int = 500,
    ) -> None:
        self.group, self.member = group, member
        self._connection, self._topics, self._batch = connection, topics, batch
        self._inside = {topics.outside(name): name for name in names}
        for name in names:
            topics.known(name)
        self._done: dict[tuple[str, int], int] = {}  # the next offset to read, for places not committed yet
        self._at_work: Record | None = None
        options: dict[str, Any] = {
            "group.id": connection.settings.named(group),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": start,
            "partition.assignment.strategy": "cooperative-sticky",
            "max.poll.interval.ms": SLOW_S * 1_000,
            "fetch.queue.backoff.ms": 5,
        }
        if member is not None:
            options["group.instance.id"] = member
        connection.admin  # noqa: B018  (an unreachable broker is told of now, not never)
        self._consumer = connection.consumer(options)
        self._consumer.subscribe(list(self._inside), on_revoke=self._revoked, on_lost=self._lost)

    def records(
        self, *, limit: int | None = None, stop: threading.Event | None = None
    ) -> Generator[Record, None, None]:
        """Records as they come, until `limit` of them or until `stop` is set; otherwise without end."""
        left = limit
        while not (stop is not None and stop.is_set()) and left != 0:
            self.commit_done()
            for message in self._consume(self._batch if left is None else min(self._batch, left)):
                record = record_of(self._inside[message.topic()], message)
                self._at_work = record
                yield record
                self._finish()
                if left is not None:
                    left -= 1
                if stop is not None and stop.is_set():
                    break
        self.commit_done()

    def assignment(self) -> list[tuple[str, int]]:
        return sorted((self._inside[place.topic], place.partition) for place in self._consumer.assignment())

    def commit(self) -> None:
        """Commits every record handed out so far, the one at hand too."""
        self._finish()
        self.commit_done()

    def commit_done(self) -> None:
        """Commits every record whose work is done: all but the one at hand."""
        if not self._done:
            return
        places = [TopicPartition(topic, number, offset) for (topic, number), offset in self._done.items()]
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise self._trouble(error.args[0]) from None
        for place in done:
            if place.error is not None:
                raise self._trouble(place.error)
        self._done.clear()

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self.commit()
            elif not isinstance(error, MillraceError):
                self.commit_done()
        finally:
            self.close()

    def _consume(self, most: int) -> list[Any]:
        try:
            found = arrived(self._consumer, most, _BATCH_S)
        except KafkaException as error:
            raise self._trouble(error.args[0]) from None
        for message in found:
            if message.error() is not None:
                raise self._trouble(message.error())
        return list(found)

    def _finish(self) -> None:
        if self._at_work is not None:
            place = (self._topics.outside(self._at_work.topic), self._at_work.partition)
            self._done[place] = self._at_work.offset + 1
            self._at_work = None

    def _revoked(self, _consumer: Any, _places: list[TopicPartition]) -> None:
        """Partitions go to another member, who starts where this one says it is."""
        self.commit_done()

    def _lost(self, _consumer: Any, places: list[TopicPartition]) -> None:
        """They have gone already: committing now would move another member's place back."""
        for place in places:
            self._done.pop((place.topic, place.partition), None)

    def _trouble(self, error: KafkaError) -> MillraceError:
        if error.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL, KafkaError._FENCED) and self.member:
            return MemberReplaced(member=self.member, group=self.group)
        if error.code() in (KafkaError._MAX_POLL_EXCEEDED, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION):
            return MemberSlow(group=self.group, limit_s=SLOW_S, batch=self._batch)
        return self._connection.trouble(error, f"read as a member of group {self.group!r}")
