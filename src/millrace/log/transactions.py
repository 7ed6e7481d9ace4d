"""Writing to several topics at once: all of it is seen, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message

from millrace.errors import KafkaUnreachable, MillraceError
from millrace.log.connection import ANSWER_S, Connection
from millrace.log.record import Headers
from millrace.log.topics import Topics

# An open transaction holds back every reader of committed records: of a writer that died, not for longer than this.
TIMEOUT_MS = 15_000
LARGEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Draft:
    """A record that is to be written."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


class Transactions:
    """One writer, known by `name`: another of that name takes its place, and ends what this one left open.

    After an error nothing is certain but what the topics hold: make a new one of the same name, and look.
    """

    def __init__(self, connection: Connection, topics: Topics, name: str) -> None:
        self._connection, self._topics = connection, topics
        self._producer = connection.producer(
            {
                "transactional.id": connection.settings.named(name),
                "transaction.timeout.ms": TIMEOUT_MS,
                "partitioner": "murmur2_random",  # Java's, as everywhere in Millrace
                "linger.ms": 2,
                "message.max.bytes": LARGEST_BYTES,
                # A batch that is larger than its topic allows is refused as a whole.
                "batch.size": 100_000,
            }
        )
        try:
            self._producer.init_transactions(ANSWER_S)
        except KafkaException as error:
            raise self._trouble(error) from None

    def write(self, drafts: Sequence[Draft]) -> list[tuple[int, int]]:
        """Returns when they are committed: partition and offset of each."""
        places: list[tuple[int, int]] = [(-1, -1)] * len(drafts)
        failed: list[KafkaError] = []

        def told(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            else:
                places[number] = (message.partition(), message.offset())

        try:
            self._producer.begin_transaction()
            for number, draft in enumerate(drafts):
                self._producer.produce(
                    self._topics.outside(draft.topic),
                    draft.value,
                    draft.key,
                    headers=list(draft.headers) or None,
                    on_delivery=lambda error, message, number=number: told(number, error, message),
                )
            self._producer.commit_transaction(ANSWER_S)
        except (KafkaException, BufferError) as error:
            raise self._trouble(error) from None
        if failed:  # a commit would have failed too
            raise self._connection.trouble(failed[0], "take records")
        return places

    def _trouble(self, error: Exception) -> MillraceError:
        if error.args and isinstance(error.args[0], KafkaError):
            return self._connection.trouble(error.args[0], "write in a transaction")
        return KafkaUnreachable(address=self._connection.address, reason=error)
