"""Dead letters: records that could not be processed, kept whole until somebody has looked at them and replays them.

Every topic has at most one dead-letter topic, `<topic>.dead`, with one partition and no retention limit. In it a
letter is a record whose key and value are the original bytes, untouched. Its headers are the original ones, in order,
followed by

    millrace.dead.topic       the outside name of the topic it stood in (with the prefix)
    millrace.dead.partition   its partition, as a decimal text
    millrace.dead.offset      its offset, as a decimal text
    millrace.dead.time        its timestamp in milliseconds since 1970, as a decimal text (absent if it had none)
    millrace.dead.reason      why it could not be processed, in UTF-8, at most REASON_BYTES long

Whoever else writes letters (a flow, from Spark: a row with key, value, headers and topic) writes just that.

A replay writes letters back to their topic, original bytes and original headers alone, and for each a note into the
dead-letter topic: a record without key and value whose header `millrace.dead.replayed` is "PARTITION/OFFSET" of the
letter. Both are one Kafka transaction, so for readers of committed records (all of Millrace's are) a letter is replayed
once, whatever crashes and however often the replay is repeated; of two replays at a time the later one fences the
earlier. A note stands behind its letter in the same partition: retention, if somebody sets one, takes the letter first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from millrace.errors import DeadLetterUnknown
from millrace.log.connection import Connection
from millrace.log.delays import newest
from millrace.log.reader import Reader
from millrace.log.record import Headers, Record, moment, timestamp_ms
from millrace.log.replay import Replay
from millrace.log.topics import DEFAULT_LIMIT_BYTES, FOREVER, LIMIT, Topics
from millrace.log.writer import Writer

SUFFIX = ".dead"
HEADERS = "millrace.dead."
TOPIC = HEADERS + "topic"
PARTITION = HEADERS + "partition"
OFFSET = HEADERS + "offset"
TIME = HEADERS + "time"
REASON = HEADERS + "reason"
REPLAYED = HEADERS + "replayed"

REASON_BYTES = 4_000
_ROOM_BYTES = 16 * 1024  # what the added headers may make a letter larger than its record


@dataclass(frozen=True)
class DeadLetter:
    """A letter: its place in the dead-letter topic, the record as it was in its own, why it died and when."""

    place: tuple[int, int]  # partition and offset
    record: Record
    reason: str
    died: datetime | None
    replayed: bool

    @property
    def id(self) -> str:
        """How a person names it: its offset, since there is one partition unless somebody added more."""
        partition, offset = self.place
        return f"{partition}/{offset}" if partition else str(offset)


@dataclass(frozen=True)
class DeadSummary:
    topic: str
    letters: int
    replayed: int
    last: datetime | None


def headers_of(record: Record, outside: str, reason: str) -> Headers:
    """The headers of the letter for a record of the topic with that outside name."""
    added: list[tuple[str, bytes | None]] = [
        (TOPIC, outside.encode()),
        (PARTITION, str(record.partition).encode()),
        (OFFSET, str(record.offset).encode()),
    ]
    if record.time is not None:
        added.append((TIME, str(timestamp_ms(record.time)).encode()))
    # Cut between characters, not within one.
    added.append((REASON, reason.encode()[:REASON_BYTES].decode(errors="ignore").encode()))
    return (*original_headers(record.headers), *added)


def original_headers(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if not name.startswith(HEADERS))


class DeadLetters:
    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics
        self._writers: dict[str, Writer] = {}

    def topic(self, name: str) -> str:
        """The dead-letter topic of a topic, made if it is not there yet."""
        dead = name + SUFFIX
        if not self._topics.exists(dead):
            limit_bytes = int(self._topics.config(name).get(LIMIT) or DEFAULT_LIMIT_BYTES) + _ROOM_BYTES
            self._topics.ensure(dead, partitions=1, retention=FOREVER, config={LIMIT: str(limit_bytes)})
        return dead

    def put(self, record: Record, reason: str) -> None:
        """Keeps a record that cannot be processed, and returns when that is acknowledged."""
        if record.topic not in self._writers:
            self._writers[record.topic] = Writer(self._connection, self._topics, self.topic(record.topic))
        writer = self._writers[record.topic]
        headers = headers_of(record, self._topics.outside(record.topic), reason)
        writer.write(record.value, key=record.key, headers=headers)
        writer.flush()

    def topics(self) -> tuple[DeadSummary, ...]:
        """Every topic that has a dead-letter topic, and how many letters are in it."""
        found = []
        for dead in (topic.name for topic in self._topics.list() if topic.name.endswith(SUFFIX)):
            letters = replayed = 0
            last: datetime | None = None
            for letter in self.list(dead.removesuffix(SUFFIX)):
                letters += 1
                replayed += letter.replayed
                last = letter.died
            found.append(DeadSummary(dead.removesuffix(SUFFIX), letters, replayed, last))
        return tuple(found)

    def list(self, topic: str) -> Iterator[DeadLetter]:
        """The letters of a topic, oldest first; none if nothing of it has died. Read twice, held never."""
        if not self._topics.exists(topic + SUFFIX):
            self._topics.known(topic)
            return
        replayed = {note for record in self._read(topic) if (note := _note(record))}
        for record in self._read(topic):
            if _note(record) is None:
                yield self._letter(topic, record, replayed)

    def newest(self, topic: str, limit: int) -> Iterator[DeadLetter]:
        """The letters among about the newest `limit` records of its dead-letter topic, oldest first. A note stands
        behind its letter, so of each it is known whether it was replayed."""
        if not self._topics.exists(topic + SUFFIX):
            self._topics.known(topic)
            return
        places = newest(self._topics.offsets(topic + SUFFIX), limit)
        replayed = {note for record in self._read_from(topic, places) if (note := _note(record))}
        for record in self._read_from(topic, places):
            if _note(record) is None:
                yield self._letter(topic, record, replayed)

    def show(self, topic: str, letter: str) -> DeadLetter:
        for found in self.list(topic):
            if found.id == letter:
                return found
        raise DeadLetterUnknown(topic=topic, letter=letter)

    def replay(self, topic: str, letters: Collection[str] | None = None) -> int:
        """Writes letters (all of them unless named) back to where they came from, those already replayed excepted.

        Key, value, headers, timestamp and, while it exists, partition are the original ones. Returns how many were
        written.
        """
        if letters is not None and (unknown := set(letters) - {letter.id for letter in self.list(topic)}):
            raise DeadLetterUnknown(topic=topic, letter=min(unknown))
        if not self._topics.exists(topic + SUFFIX):
            self._topics.known(topic)
            return 0
        with Replay(self._connection, self._topics, topic, topic + SUFFIX, REPLAYED) as replay:
            # Listed only now, when no earlier replay can write any more.
            for letter in self.list(topic):
                if not letter.replayed and (letters is None or letter.id in letters):
                    replay.write(letter.record, letter.place)
        return replay.written

    def _read(self, topic: str) -> Iterator[Record]:
        return Reader(self._connection, self._topics, topic + SUFFIX).records()

    def _read_from(self, topic: str, places: Mapping[int, tuple[int, int]]) -> Iterator[Record]:
        for number, (begin, count) in places.items():
            dead = topic + SUFFIX
            yield from Reader(self._connection, self._topics, dead, begin, partition=number, limit=count).records()

    def _letter(self, topic: str, record: Record, replayed: Collection[str]) -> DeadLetter:
        """What somebody wrote into the topic by hand has no place and no reason, and shows so."""
        facts = {name: value.decode(errors="replace") for name, value in record.headers if value is not None}
        original = Record(
            topic,
            int(facts.get(PARTITION, "-1")),
            int(facts.get(OFFSET, "-1")),
            moment(int(facts[TIME])) if TIME in facts else None,
            record.key,
            record.value,
            original_headers(record.headers),
        )
        return DeadLetter(
            place=(record.partition, record.offset),
            record=original,
            reason=facts.get(REASON, "no reason was given"),
            died=record.time,
            replayed=f"{record.partition}/{record.offset}" in replayed,
        )


def _note(record: Record) -> str | None:
    for name, value in record.headers:
        if name == REPLAYED and value is not None:
            return value.decode(errors="replace")
    return None
