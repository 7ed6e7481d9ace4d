"""What two changelogs hold, compared: of each key the last row, in bounded memory.

Of each row its key and some bytes are kept, of at most `KEYS_HELD` keys at a time; more are read several times, each
time another part of the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias
from zlib import crc32

from millrace.log import Log
from millrace.views.changelog import row_text

Kind: TypeAlias = Literal["added", "changed", "gone"]
KINDS: tuple[Kind, ...] = ("added", "changed", "gone")
KEYS_HELD = 1_000_000


@dataclass(frozen=True)
class Difference:
    """Of one key: its row as the new changelog has it, a record's value; None if it is gone."""

    kind: Kind
    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class Content:
    """A changelog up to some offsets."""

    log: Log
    topic: str
    ends: Mapping[int, int]

    def rows(self, keys: set[bytes]) -> dict[bytes, str]:
        """Those of some keys, as JSON."""
        found: dict[bytes, str] = {}
        for message in self._records():
            if message.key() in keys and message.value() is not None:
                found[message.key()] = row_text(message.value())
        return found

    def digests(self, part: int, of: int) -> dict[bytes, bytes] | None:
        """Of each key what its row is, in a few bytes; None if there are too many."""
        found: dict[bytes, bytes] = {}
        for message in self._part(part, of):
            if message.value() is None:
                found.pop(message.key(), None)
            else:
                found[message.key()] = _digest(message.value())
            if len(found) > KEYS_HELD:
                return None
        return found

    def last(self, part: int, of: int) -> Iterator[tuple[bytes, bytes]] | None:
        """Keys and values of the rows that there are; None if there are too many."""
        places: dict[bytes, tuple[int, int]] = {}
        for message in self._part(part, of):
            if message.value() is None:
                places.pop(message.key(), None)
            else:
                places[message.key()] = (message.partition(), message.offset())
            if len(places) > KEYS_HELD:
                return None
        return (
            (message.key(), message.value())
            for message in self._part(part, of)
            if places.get(message.key()) == (message.partition(), message.offset())
        )

    def _part(self, part: int, of: int) -> Iterator[Any]:
        for message in self._records():
            if of == 1 or crc32(message.key()) % of == part:
                yield message

    def _records(self) -> Iterator[Any]:
        with closing(self.log.ranges(self.topic)) as ranges:
            yield from ranges.between({}, self.ends)


def differences(old: Content, new: Content) -> Iterator[Difference]:
    """What would make the old one hold what the new one does."""
    parts = [(0, 1)]
    while parts:
        part, of = parts.pop()
        held = old.digests(part, of)
        rows = None if held is None else new.last(part, of)
        if held is None or rows is None:
            parts += [(part, 2 * of), (part + of, 2 * of)]
            continue
        for key, value in rows:
            digest = held.pop(key, None)
            if digest != _digest(value):
                yield Difference("added" if digest is None else "changed", key, value)
        for key in held:
            yield Difference("gone", key, None)


def _digest(value: bytes) -> bytes:
    return blake2b(row_text(value).encode(), digest_size=8).digest()
