"""Writing dead letters back: each together with the note that it was, in one transaction."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from millrace.errors import MillraceError, ReplayOvertaken
from millrace.log.connection import Connection
from millrace.log.record import Record, timestamp_ms
from millrace.log.topics import DEFAULT_LIMIT_BYTES, LIMIT, Topics

TRANSACTION_RECORDS = 1_000
TRANSACTION_BYTES = 64 * 1024 * 1024
TRANSACTION_S = 60
READABLE_S = 10
_AGAIN_S = 0.02
_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
)


class Replay:
    """One replay into one topic. A later one, of any process, ends it."""

    def __init__(self, connection: Connection, topics: Topics, topic: str, dead: str, note_header: str) -> None:
        self.written = 0
        self._open = self._open_bytes = 0
        self._connection, self._topics, self._topic, self._note_header = connection, topics, topic, note_header
        self._outside, self._dead = topics.outside(topic), topics.outside(dead)
        self._partitions = len(topics.known(topic).partitions)
        limit_bytes = int(topics.config(topic).get(LIMIT) or DEFAULT_LIMIT_BYTES)
        self._producer: Any = connection.producer(
            {
                "transactional.id": f"{self._dead}.replay",
                "transaction.timeout.ms": TRANSACTION_S * 1_000,
                "message.max.bytes": max(limit_bytes, 1_000),
                "partitioner": "murmur2_random",
            }
        )

    def write(self, record: Record, letter: tuple[int, int]) -> None:
        """Writes the record as it was, and the note that the letter with that partition and offset is done with."""
        if not self._open:
            self._do(self._producer.begin_transaction)
        # A record without a timestamp gets the present one: 0 is how librdkafka says "now".
        self._do(
            self._producer.produce,
            self._outside,
            record.value,
            record.key,
            record.partition if 0 <= record.partition < self._partitions else -1,
            timestamp=timestamp_ms(record.time) if record.time else 0,
            headers=list(record.headers),
        )
        note = [(self._note_header, f"{letter[0]}/{letter[1]}".encode())]
        self._do(self._producer.produce, self._dead, partition=letter[0], headers=note)
        self._open += 1
        self._open_bytes += len(record.value or b"") + len(record.key or b"")
        if self._open >= TRANSACTION_RECORDS or self._open_bytes >= TRANSACTION_BYTES:
            self._commit()

    def __enter__(self) -> Replay:
        # Connected first: without a connection librdkafka waits half a second before it tries a second time.
        self._do(self._producer.list_topics, self._outside, TRANSACTION_S)
        self._do(self._producer.init_transactions, TRANSACTION_S)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None and self._open:
                self._commit()
        finally:
            if self._open:
                # Left open it would hold back every reader of the topic until it times out.
                with contextlib.suppress(KafkaException):
                    self._producer.abort_transaction(TRANSACTION_S)
        if self.written:
            self._wait_until_readable()

    def _wait_until_readable(self) -> None:
        """A commit is promised before it is carried out in every partition, and until then readers do not see it.

        The wait is bounded: a transaction of somebody else in the topic would hold readers back all the same.
        """
        deadline = time.monotonic() + READABLE_S
        for outside in (self._outside, self._dead):
            ends = self._topics.ends(outside, OffsetSpec.latest(), committed=False)
            while time.monotonic() < deadline:
                readable = self._topics.ends(outside, OffsetSpec.latest())
                if all(readable[number] >= end for number, end in ends.items()):
                    break
                time.sleep(_AGAIN_S)

    def _commit(self) -> None:
        # It flushes first; a record that was refused makes it fail, and then all of the transaction is void.
        self._do(self._producer.commit_transaction, TRANSACTION_S)
        self.written += self._open
        self._open = self._open_bytes = 0

    def _do(self, step: Any, *args: Any, **options: Any) -> None:
        try:
            step(*args, **options)
        except KafkaException as error:
            raise self._trouble(error.args[0]) from None

    def _trouble(self, error: KafkaError) -> MillraceError:
        if error.code() == KafkaError._FATAL:  # which says nothing; the next step of the transaction says why
            try:
                self._producer.abort_transaction(TRANSACTION_S)
            except KafkaException as cause:
                error = cause.args[0]
        if error.code() in _FENCED:
            return ReplayOvertaken(topic=self._topic)
        return self._connection.trouble(error, f"replay dead letters into topic {self._topic!r}")
