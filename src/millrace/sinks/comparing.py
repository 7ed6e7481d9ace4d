"""What two of a sink's targets hold, or one and what it should hold, compared row by row.

Memory is bounded: of each row its key and eight bytes are kept, of at most `KEYS_HELD` rows at a time. More are read
several times, each time another part of the keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Literal, TypeAlias
from zlib import crc32

# A row as its target holds it: its key, and the rest as one text. Without keys it is the whole row, and None.
Held: TypeAlias = tuple[str, str | None]
Reading: TypeAlias = Callable[[], Iterable[Held]]
Kind: TypeAlias = Literal["missing", "surplus", "different"]

KEYS_HELD = 1_000_000
# Differing keys that are remembered by name; all are counted.
MOST_KEYS = 200_000
_SEEN = b""


@dataclass
class Differences:
    """How what is held differs from what is wanted: rows that are missing in it, that it has too many, that are
    different. `keys` are the first of them, by kind."""

    wanted: int = 0
    missing: int = 0
    surplus: int = 0
    different: int = 0
    keys: dict[str, Kind] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.missing + self.surplus + self.different

    def add(self, kind: Kind, key: str, rows: int = 1) -> None:
        setattr(self, kind, getattr(self, kind) + rows)
        if len(self.keys) < MOST_KEYS:
            self.keys[key] = kind

    def text(self) -> str:
        return f"{self.missing:,} missing, {self.surplus:,} surplus, {self.different:,} different"

    def without(self, left_out: Iterable[str]) -> Differences:
        """The same without these keys, as far as they are known by name."""
        found = Differences(self.wanted, self.missing, self.surplus, self.different, dict(self.keys))
        for key in left_out:
            if (kind := found.keys.pop(key, None)) is not None:
                setattr(found, kind, getattr(found, kind) - 1)
        return found


def compare(held: Reading, wanted: Reading, *, keyed: bool) -> Differences:
    """All of `held` that is looked at is read before `wanted` is, each time: who compares while both change can tell
    what had changed since."""
    found, parts = Differences(), [(0, 1)]
    while parts:
        part, of = parts.pop()
        rows = _part(held, part, of, keyed=keyed)
        if rows is None:
            parts += [(part, 2 * of), (part + of, 2 * of)]
            continue
        wanted_rows = ((key, row) for key, row in wanted() if of == 1 or _number_of(key) % of == part)
        (_compare_keys if keyed else _compare_counts)(rows, wanted_rows, found)
    return found


def _part(rows: Reading, part: int, of: int, *, keyed: bool) -> Counter[str] | dict[str, bytes] | None:
    """One part of the rows; None if it is too many."""
    counts: Counter[str] = Counter()
    digests: dict[str, bytes] = {}
    for key, row in rows():
        if of > 1 and _number_of(key) % of != part:
            continue
        if keyed:
            digests[key] = _digest(row or "")
        else:
            counts[key] += 1
        if len(digests) + len(counts) > KEYS_HELD:
            return None
    return digests if keyed else counts


def _compare_keys(held: Any, wanted: Iterable[Held], found: Differences) -> None:
    for key, row in wanted:
        found.wanted += 1
        digest = held.get(key)
        if digest is None:
            found.add("missing", key)
        elif digest not in (_SEEN, _digest(row or "")):
            found.add("different", key)
        if digest is not None:
            held[key] = _SEEN
    for key, digest in held.items():
        if digest != _SEEN:
            found.add("surplus", key)


def _compare_counts(held: Any, wanted: Iterable[Held], found: Differences) -> None:
    counts = Counter(key for key, _ in wanted)
    found.wanted += counts.total()
    for key in counts.keys() | held.keys():
        more = counts[key] - held[key]
        if more:
            found.add("missing" if more > 0 else "surplus", key, abs(more))


def _number_of(key: str) -> int:
    return crc32(key.encode(errors="surrogatepass"))


def _digest(row: str) -> bytes:
    return blake2b(row.encode(), digest_size=8).digest()


def canonical(text: str) -> str:
    """A JSON text in one spelling."""
    return plain(parsed(text))


def parsed(text: str | bytes) -> Any:
    """JSON with numbers by their value, however they are written and whatever number of digits they have."""
    return json.loads(text, parse_float=_number, parse_int=_number)


def plain(value: Any) -> str:
    """Fields in the order of their names."""
    return json.dumps(value, sort_keys=True)


def _number(text: str) -> str:
    return f"\0{Decimal(text).normalize():f}"
