"""What tests of the log need to make."""

from __future__ import annotations

import random

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.log import Log


def random_bytes(chance: random.Random, most: int) -> bytes | None:
    kind = chance.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    if kind == 2:
        return "grüße 🌊\n\0".encode()
    return chance.randbytes(chance.randrange(most))


def forget_before(log: Log, name: str, offset: int) -> None:
    """What retention does, at once."""
    admin = AdminClient({"bootstrap.servers": log.address})
    for future in admin.delete_records([TopicPartition(log.topics.outside(name), 0, offset)]).values():
        future.result()
