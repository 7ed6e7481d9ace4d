"""Writing records: acknowledged by all replicas and written once unless asked otherwise, and never lost silently."""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from millrace.errors import AcksInvalid, MillraceError, PartitionUnknown, RecordsUndelivered, RecordTooLarge
from millrace.log.connection import Connection, reason
from millrace.log.record import Value, header_pairs, timestamp_ms, value_bytes
from millrace.log.topics import DEFAULT_LIMIT_BYTES, LIMIT, Topics

QUEUE_RECORDS = 200_000
QUEUE_BYTES = 64 * 1024 * 1024
DELIVERY_S = 120  # how long a record is tried before it counts as not delivered, as in Kafka's Java client
_WAIT_S = 0.05
_BATCH_RECORDS = 10_000
_SMALLEST_LIMIT, _LARGEST_LIMIT = 1_000, 1_000_000_000  # what librdkafka takes for message.max.bytes

_ACKS: Mapping[str, Mapping[str, Any]] = {
    "all": {"acks": "all", "enable.idempotence": True},
    "1": {"acks": "1"},
    "0": {"acks": "0"},
}


class Writer:
    """Writes to one topic. Leaving the `with` block waits until every record is acknowledged, or raises.

    Records are sent in the background; the queue is bounded, and a full one makes `write` wait. With acks="all" every
    acknowledged record is on all in-sync replicas, once and in order. With "1" it is on the leader alone and is lost
    with it; with "0" nobody knows.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Topics,
        topic: str,
        *,
        acks: str | int = "all",
        delivery_s: float = DELIVERY_S,
    ) -> None:
        if str(acks) not in _ACKS:
            raise AcksInvalid(acks=acks)
        self.topic = topic
        self._delivery_s = delivery_s
        self.written = 0
        self.failed = 0
        self.partitions = len(topics.known(topic).partitions)
        self.limit_bytes = int(topics.config(topic).get(LIMIT) or DEFAULT_LIMIT_BYTES)
        self._connection = connection
        self._outside = topics.outside(topic)
        self._first: MillraceError | str | None = None
        self._sent: deque[tuple[int, int]] = deque()  # (records, bytes) of each batch that may still be on its way
        self._sent_records = self._sent_bytes = 0
        self._unawaited = 0
        self._producer = connection.producer(
            {
                **_ACKS[str(acks)],
                # Java's way of finding a key's partition: Spark, Debezium and this writer must agree on it.
                "partitioner": "murmur2_random",
                "message.timeout.ms": round(delivery_s * 1_000),
                # The topic's own limit, also for batches: librdkafka does not split one that the broker refuses.
                "message.max.bytes": min(max(self.limit_bytes, _SMALLEST_LIMIT), _LARGEST_LIMIT),
                "batch.size": min(max(self.limit_bytes, _SMALLEST_LIMIT), 1_000_000),
                "linger.ms": 10,
                "queue.buffering.max.messages": QUEUE_RECORDS,
                "queue.buffering.max.kbytes": 4 * QUEUE_BYTES // 1024,
                "delivery.report.only.error": True,
                "on_delivery": _weakly(self._undelivered),
            },
        )

    def write(
        self,
        value: Value,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]] | None = None,
        partition: int | None = None,
        time: datetime | None = None,
    ) -> None:
        """Takes one record: bytes, a text, or anything that JSON can say; None is a tombstone."""
        if partition is not None and not 0 <= partition < self.partitions:
            raise PartitionUnknown(topic=self.topic, partition=partition, count=self.partitions)
        content = value_bytes(self.topic, value)
        pairs = list(header_pairs(headers))
        while True:
            try:
                self._producer.produce(
                    self._outside,
                    content,
                    key.encode() if isinstance(key, str) else key,
                    -1 if partition is None else partition,
                    timestamp=timestamp_ms(time) if time else 0,
                    headers=pairs,
                )
                break
            except BufferError:
                self._producer.poll(_WAIT_S)
            except KafkaException as error:
                raise self._unwritten(error.args[0], len(content or b"") + len(key or b"")) from None
        self.written += 1
        self._unawaited += 1
        self._producer.poll(0)

    def write_batch(self, values: Sequence[bytes], keys: Sequence[bytes | None] | None = None) -> None:
        """Takes many values at once, several times faster than `write`."""
        for start in range(0, len(values), _BATCH_RECORDS):
            part = values[start : start + _BATCH_RECORDS]
            if keys is None:
                messages: list[dict[str, Any]] = [{"value": value} for value in part]
            else:
                pairs = zip(part, keys[start : start + _BATCH_RECORDS], strict=True)
                messages = [{"value": value, "key": key} for value, key in pairs]
            self._batch(messages, sum(map(len, part)))

    def flush(self) -> None:
        """Waits until every record is acknowledged; raises if one was not, with the first reason."""
        while self._producer.flush(_WAIT_S):  # in short steps, so that Ctrl-C is heard
            pass
        self._sent.clear()
        self._sent_records = self._sent_bytes = self._unawaited = 0
        if self.failed:
            failed, first = self.failed, self._first
            written, self.written = self.written, self.written - failed
            self.failed, self._first = 0, None
            if isinstance(first, MillraceError) and failed == 1:
                raise first
            told = first.what if isinstance(first, MillraceError) else first
            raise RecordsUndelivered(topic=self.topic, failed=failed, written=written, reason=told)

    def complete(self, column: str, until: datetime) -> None:
        """Says that all before that time has been written: by a marker in every partition (`mr.marked(column)`), and
        not before everything that was is acknowledged."""
        self.flush()
        for partition in range(self.partitions):
            self.write({column: until.astimezone(UTC).isoformat()}, partition=partition)
        self.flush()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.flush()
        else:
            # What was taken is still sent; the error at hand is the one to tell about.
            self._producer.flush(self._delivery_s)
            self._unawaited = 0

    def __del__(self) -> None:
        # Not the producer's own count: it includes what librdkafka wants to log.
        if waiting := getattr(self, "_unawaited", 0):
            warnings.warn(f"{waiting} records were not flushed: write in a `with` block", ResourceWarning, stacklevel=2)

    def _batch(self, messages: list[dict[str, Any]], size_bytes: int) -> None:
        """Hands over a batch that surely fits the queue: in a full one later records could overtake earlier ones."""
        self._make_room(len(messages), size_bytes)
        if self.failed:  # going on would only lose more
            self.flush()
        taken = self._producer.produce_batch(self._outside, messages)
        self._sent.append((taken, size_bytes))
        self._sent_records += taken
        self._sent_bytes += size_bytes
        self.written += taken
        self._unawaited += taken
        self._producer.poll(0)
        if taken < len(messages):
            refused = next(message for message in messages if "_error" in message)
            size = len(refused["value"]) + len(refused.get("key") or b"")
            raise self._unwritten(refused["_error"], size)

    def _make_room(self, records: int, size_bytes: int) -> None:
        while waiting := len(self._producer):
            while self._sent and self._sent_records - self._sent[0][0] >= waiting:
                gone_records, gone_bytes = self._sent.popleft()
                self._sent_records -= gone_records
                self._sent_bytes -= gone_bytes
            if waiting + records <= QUEUE_RECORDS and self._sent_bytes + size_bytes <= QUEUE_BYTES:
                return
            self._producer.poll(_WAIT_S)
            if self.failed:
                return
        self._sent.clear()
        self._sent_records = self._sent_bytes = 0

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        self.failed += 1
        if self._first is None:
            size = len(message.value() or b"") + len(message.key() or b"")
            large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            self._first = self._unwritten(error, size) if large else reason(error)

    def _unwritten(self, error: KafkaError, size_bytes: int) -> MillraceError:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return RecordTooLarge(topic=self.topic, size_bytes=size_bytes, limit_bytes=self.limit_bytes)
        return self._connection.trouble(error, f"take a record for topic {self.topic!r}")


def _weakly(method: Callable[[KafkaError | None, Message], None]) -> Callable[[KafkaError | None, Message], None]:
    """The method without its object: a producer that held its writer would keep it alive until garbage is collected."""
    held = weakref.WeakMethod(method)

    def call(error: KafkaError | None, message: Message) -> None:
        if (found := held()) is not None:
            found(error, message)

    return call
