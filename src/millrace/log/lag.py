"""How far a group is behind, in records and in seconds.

Records are counted by offsets, so holes left by compaction and transactions count; only when nothing readable is left
is the lag 0 for certain. Seconds are the age of the first record not yet read: how stale the reader's knowledge is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.errors import KafkaRefused
from millrace.log.connection import ANSWER_S, Connection

_LOOK_S = 0.1


@dataclass(frozen=True)
class Lag:
    """One partition as a group sees it. `committed` is the next offset it will read; None when it has read nothing yet.

    `expired` counts offsets that retention took before the group read them: it will never see these.
    """

    topic: str
    partition: int
    committed: int | None
    end: int
    records: int
    seconds: float
    expired: int


def lag_of(
    connection: Connection,
    topic: str,
    outside: str,
    held: Mapping[int, tuple[int, int]],
    committed: Mapping[int, int],
    now_ms: int | None = None,
) -> list[Lag]:
    """The lag of every partition of one topic; `held` gives its first and end offsets, `committed` the group's."""
    now_ms = round(time.time() * 1_000) if now_ms is None else now_ms
    nexts = {number: max(committed.get(number, first), first) for number, (first, _) in held.items()}
    behind = {number: place for number, place in nexts.items() if place < held[number][1]}
    times_ms = first_times_ms(connection, outside, behind) if behind else {}
    found = []
    for number, (first, end) in sorted(held.items()):
        unread_ms = times_ms.get(number)
        place = committed.get(number)
        found.append(
            Lag(
                topic=topic,
                partition=number,
                committed=place,
                end=end,
                records=0 if unread_ms is None else end - nexts[number],
                seconds=0.0 if unread_ms is None else max(now_ms - unread_ms, 0) / 1_000,
                expired=0 if place is None else max(first - place, 0),
            )
        )
    return found


def first_times_ms(connection: Connection, outside: str, places: Mapping[int, int]) -> dict[int, int]:
    """The timestamp of the first readable record at or after each offset; none where only holes follow."""
    consumer = connection.consumer(
        {
            "group.id": connection.settings.named("millrace-reader"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # retention may move the beginning between asking and reading
            "fetch.message.max.bytes": 16 * 1024,
            "queued.min.messages": 1,
            "fetch.wait.max.ms": 20,
        }
    )
    times_ms: dict[int, int] = {}
    waiting = set(places)
    deadline = time.monotonic() + ANSWER_S
    try:
        consumer.assign([TopicPartition(outside, number, offset) for number, offset in places.items()])
        while waiting:
            if time.monotonic() > deadline:
                raise KafkaRefused(
                    address=connection.address, action="read the oldest unread records", reason="timed out"
                )
            message = consumer.poll(_LOOK_S)
            if message is None or message.partition() not in waiting:
                continue
            _note(connection, message, times_ms)
            waiting.discard(message.partition())
            consumer.incremental_unassign([TopicPartition(outside, message.partition())])
    except KafkaException as error:
        raise connection.trouble(error.args[0], "read the oldest unread records") from None
    finally:
        consumer.close()
    return times_ms


def _note(connection: Connection, message: Any, times_ms: dict[int, int]) -> None:
    error = message.error()
    if error is None:
        times_ms[message.partition()] = message.timestamp()[1]
    elif error.code() != KafkaError._PARTITION_EOF:
        raise connection.trouble(error, "read the oldest unread records")
