"""What a task does for PostgreSQL: copies its rows into the table that they are staged in. Workers import this file,
and so it imports little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from millrace.errors import SinkFailed
from millrace.sinks.contract import MOST_REFUSED, RefusedRow, Sink
from millrace.sinks.postgres import connected

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

# The column of the number by which the rows of an attempt are known.
ATTEMPT = "__attempt"
_NUL = "it holds the character 0, which PostgreSQL's texts cannot"
# The binary format ends with it, in the place of a count of fields.
_END = b"\xff\xff"
_LENGTH_BYTES = 4


class Made:
    """What `CopyRows.java` made of a task's rows. When the pieces are all read, `attempt` is known, and `aside` holds
    the rows that are in none."""

    def __init__(self, sink: Sink, told: Iterator[bytes]) -> None:
        self._sink, self._told = sink, told
        self.attempt: int | None = None
        self.aside: list[RefusedRow] = []

    def pieces(self, *, whole: bool) -> Iterator[bytes]:
        """`whole`: ends at the first row that is in no piece, and `attempt` is not known then."""
        for each in self._told:
            kind, rest = each[:1], each[1:]
            if kind == b"P":
                yield rest
            elif kind == b"E":
                self.attempt = int.from_bytes(rest, "big")
            elif whole:
                return
            elif len(self.aside) <= MOST_REFUSED:
                self.aside.append(_refused(rest))
        if self.attempt is None:
            # An error in what computes the rows, or the end of Spark's process: here it looks like the end of the rows.
            raise SinkFailed(sink=self._sink.name, reason="its rows are cut off", where=self._sink.where)


def _refused(told: bytes) -> RefusedRow:
    length, rest = int.from_bytes(told[:_LENGTH_BYTES], "big", signed=True), told[_LENGTH_BYTES:]
    return RefusedRow(rest[:length].decode() if length >= 0 else None, rest[max(length, 0) :].decode(), _NUL)


class Staging:
    """What a task does: copies its rows, in one transaction, and tells the number of this attempt."""

    def __init__(self, sink: Sink, url: str, statement: sql.Composed) -> None:
        self._sink, self._url, self._statement = sink, url, statement

    def __call__(self, rows: Iterator[bytes]) -> Iterable[int | RefusedRow]:
        made = Made(self._sink, rows)
        pieces = made.pieces(whole=False)
        first = next(pieces, None)
        if first is None:
            return made.aside
        with connected(self._sink, self._url) as connection, connection.transaction():
            copy(connection, self._statement, chain((first,), pieces))
        assert made.attempt is not None
        return [made.attempt, *made.aside]


def copy(connection: psycopg.Connection[Any], statement: sql.Composed, pieces: Iterable[bytes]) -> None:
    """There is at least one piece: the first brings what the format begins with."""
    with connection.cursor() as cursor, cursor.copy(statement) as copying:
        for piece in pieces:
            copying.write(piece)
        copying.write(_END)
