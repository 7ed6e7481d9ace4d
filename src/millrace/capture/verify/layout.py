"""Which columns are compared, and how a row becomes digests: the same in SQL and in Python.

A row's key is the MD5 of its key columns. Its other columns are cut into pieces, each with a digest of eight bytes:
columns that can hold a large value are pieces of their own, because an update that leaves one alone may not say it, and
the digest from before has to be kept; all others are one piece.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import md5
from typing import Any
from uuid import UUID

from psycopg import sql

from millrace.capture.connector import UNAVAILABLE
from millrace.capture.verify.canonical import Form, netstring_in_sql

PIECE_BYTES = 8
# A value that was never seen: no digest of a real one but by a chance of one in 2^64.
UNSEEN = bytes(PIECE_BYTES)

_ABSENT = object()
_BYTES = UNAVAILABLE.encode()
# What stands for a large value that was left alone, by type (see the kernel's Unavailable.java).
_LEFT_ALONE = (
    UNAVAILABLE,
    base64.b64encode(_BYTES).decode(),
    f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}',
    {UNAVAILABLE: UNAVAILABLE},
    [UNAVAILABLE],
    [base64.b64encode(_BYTES).decode()],
    [str(UUID(bytes=md5(_BYTES, usedforsecurity=False).digest(), version=3))],
    [byte if byte < 128 else byte - 256 for byte in _BYTES],
)


@dataclass(frozen=True)
class Compared:
    """A column that is compared. `was` are names that it had before; `default` is what rows hold that were written
    before there was such a column."""

    name: str
    form: Form
    large: bool = False
    was: tuple[str, ...] = ()
    default: Any = None

    def netstring(self, row: Mapping[str, Any]) -> str:
        return self.form.netstring(self.value(row))

    def value(self, row: Mapping[str, Any]) -> Any:
        value = row.get(self.name, _ABSENT)
        if value is not _ABSENT:
            return value
        return next((row[name] for name in self.was if name in row), self.default)

    def left_alone(self, row: Mapping[str, Any]) -> bool:
        value = self.value(row) if self.large else None
        return isinstance(value, str | list | dict) and value in _LEFT_ALONE


@dataclass(frozen=True)
class Layout:
    """`left_out` tells of columns that are not compared, and why."""

    key: tuple[Compared, ...]
    others: tuple[Compared, ...]
    pieces: tuple[tuple[Compared, ...], ...]
    left_out: Mapping[str, str]

    @classmethod
    def of(cls, key: tuple[Compared, ...], others: tuple[Compared, ...], left_out: Mapping[str, str]) -> Layout:
        small = tuple(column for column in others if not column.large)
        large = tuple((column,) for column in others if column.large)
        return cls(key, others, (small, *large) if small else large, left_out)

    def column_by_column(self) -> Layout:
        """The same with each column a piece of its own: tells which of them differ."""
        return replace(self, pieces=tuple((column,) for column in self.others))

    def key_digest(self, key: Mapping[str, Any]) -> bytes:
        text = "".join([column.netstring(key) for column in self.key])
        return md5(text.encode(), usedforsecurity=False).digest()

    def row_digests(self, row: Mapping[str, Any], before: bytes | None) -> bytes:
        """Of all pieces; `before` is what the row's earlier version gave."""
        digests = []
        for number, piece in enumerate(self.pieces):
            if len(piece) == 1 and piece[0].left_alone(row):
                start = number * PIECE_BYTES
                digests.append(UNSEEN if before is None else before[start : start + PIECE_BYTES])
            else:
                text = "".join([column.netstring(row) for column in piece])
                digests.append(md5(text.encode(), usedforsecurity=False).digest()[:PIECE_BYTES])
        return b"".join(digests)

    def differing(self, one: bytes, other: bytes) -> tuple[str, ...]:
        """The columns of the pieces that differ."""
        return tuple(
            column.name
            for number, piece in enumerate(self.pieces)
            for column in piece
            if one[number * PIECE_BYTES :][:PIECE_BYTES] != other[number * PIECE_BYTES :][:PIECE_BYTES]
        )

    def key_in_sql(self) -> sql.Composed:
        """MD5 in hex. All texts are hashed as UTF-8, whatever the database's own encoding."""
        return _md5(self.key)

    def row_in_sql(self) -> sql.Composed:
        """The digests of all pieces in hex, one after the other."""
        if not self.pieces:
            return sql.SQL("{}").format(sql.Literal(""))
        pieces = [sql.SQL("left({}, {})").format(_md5(piece), sql.Literal(2 * PIECE_BYTES)) for piece in self.pieces]
        return sql.SQL(" || ").join(pieces)


def _md5(columns: tuple[Compared, ...]) -> sql.Composed:
    texts = [netstring_in_sql(column.form, sql.Identifier("held", column.name)) for column in columns]
    return sql.SQL("md5(convert_to({}, 'UTF8'))").format(sql.SQL(" || ").join(texts))


def checksum(key: bytes, digests: bytes) -> int:
    """Of a whole row; those of many rows are combined by exclusive or, so their order does not matter."""
    found = md5((key.hex() + digests.hex()).encode(), usedforsecurity=False).digest()
    return int.from_bytes(found[:8], "big", signed=True)


CHECKSUM = "('x' || left(md5({key} || {row}), 16))::bit(64)::bigint"
