"""The topic's side of a comparison: its records, folded to the rows that it held at one moment, as digests.

Memory is bounded: of each row that the topic holds some 250 bytes are kept, of at most `KEYS_HELD` rows at a time. A
larger topic is read several times, each time for another range of key digests.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any
from zlib import crc32

from confluent_kafka import Message

from millrace.capture.verify.database import Bucket
from millrace.capture.verify.layout import UNSEEN, Layout, checksum
from millrace.capture.verify.moment import Moment
from millrace.log import Log

KEYS_HELD = 2_000_000
FIRST_BYTES = 256
_FORM_BYTES = 4


@dataclass(frozen=True)
class Place:
    """Where the last record of a key is, whichever moment it is of."""

    key: bytes
    partition: int
    offset: int


@dataclass
class TopicAtMoment:
    """What a topic held at a moment.

    `later`: keys of which records came after the moment; those are not applied. Once a key's record is of a later
    transaction, all that follow are, because they waited for its lock on the row. `ends`: how far partitions were read.
    `twofold`: keys that are written in two ways ({"id":1} and {"id": 1}), which for Kafka are two.
    """

    log: Log
    topic: str
    layout: Layout
    moment: Moment
    later: set[bytes] = field(default_factory=set)
    places: dict[bytes, Place] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    twofold: set[bytes] = field(default_factory=set)
    # Of each key digest: which form of the key's JSON it was, then the row's digests.
    _rows: dict[bytes, bytes] = field(default_factory=dict)

    def read_range(self, first: int, last: int) -> int:
        """Holds the rows whose key digest begins with a byte from `first` up to, not including, the one it gives back:
        `last`, or less if that would be too many."""
        for messages in self._batches():
            for message in messages:
                digest = self._digest(message)
                if first <= digest[0] < last:
                    self._apply(digest, message)
            while len(self._rows) > KEYS_HELD and last - first > 1:
                last = first + (last - first) // 2
                self._rows = {digest: row for digest, row in self._rows.items() if digest[0] < last}
                self.later = {digest for digest in self.later if digest[0] < last}
        return last

    def read_keys(self, keys: Collection[bytes]) -> None:
        """Holds the rows of just these keys, and where their last records are."""
        for messages in self._batches():
            for message in messages:
                digest = self._digest(message)
                if digest in keys:
                    self.places[digest] = Place(message.key(), message.partition(), message.offset())
                    self._apply(digest, message)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, key: bytes) -> bytes | None:
        found = self._rows.get(key)
        return None if found is None else found[_FORM_BYTES:]

    def buckets(self, digits: int, within: Collection[str] | None = None) -> dict[str, Bucket]:
        length = len(next(iter(within))) if within else 0
        counts: Counter[str] = Counter()
        sums: dict[str, int] = {}
        for key, row in self._rows.items():
            name = key.hex()
            if within is None or name[:length] in within:
                bucket = name[:digits]
                counts[bucket] += 1
                sums[bucket] = sums.get(bucket, 0) ^ checksum(key, row[_FORM_BYTES:])
        return {bucket: Bucket(rows, sums[bucket]) for bucket, rows in counts.items()}

    def checksums(self, within: Collection[str]) -> dict[bytes, int]:
        length = len(next(iter(within)))
        return {
            key: checksum(key, row[_FORM_BYTES:]) for key, row in self._rows.items() if key.hex()[:length] in within
        }

    def _batches(self) -> Iterator[list[Message]]:
        reader = self.log.reader(self.topic)
        self.ends = {number: end for number, (_, end) in reader.held.items()}
        yield from reader.batches()

    def _digest(self, message: Message) -> bytes:
        try:
            return self.layout.key_digest(_object(message.key()))
        except ValueError:  # no key that the connector writes: a row that no table has
            return md5(message.key() or b"", usedforsecurity=False).digest()

    def _apply(self, digest: bytes, message: Message) -> None:
        if digest in self.later:
            return
        form = crc32(message.key() or b"").to_bytes(_FORM_BYTES, "big")
        held = self._rows.get(digest)
        if held is not None and held[:_FORM_BYTES] != form:
            self.twofold.add(digest)
            return
        value = message.value()
        if value is None:
            self._rows.pop(digest, None)
            return
        try:
            envelope = _object(value)
            op, source = envelope["op"], envelope.get("source") or {}
            belongs = self.moment.holds(op, source)
            row = b"" if op == "d" else self.layout.row_digests(envelope["after"], held and held[_FORM_BYTES:])
        except (ValueError, KeyError, TypeError, AttributeError):
            op, belongs, row = "", True, UNSEEN * len(self.layout.pieces)  # what cannot be read is different
        if not belongs:
            self.later.add(digest)
        elif op == "d":
            self._rows.pop(digest, None)
        else:
            self._rows[digest] = form + row


def _object(raw: bytes | None) -> dict[str, Any]:
    found = json.loads((raw or b"").decode())
    if not isinstance(found, dict):
        raise ValueError
    return found
