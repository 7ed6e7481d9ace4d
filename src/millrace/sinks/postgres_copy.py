"""What a task does for PostgreSQL: copies its rows into the table that they are staged in. Workers import this file,
and so it imports little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

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


class Staging:
    """What a task does: copies its rows, in one transaction, and tells the number of this attempt."""

    def __init__(self, sink: Sink, url: str, statement: sql.Composed) -> None:
        self._sink, self._url, self._statement = sink, url, statement

    def __call__(self, rows: Iterator[Any]) -> Iterable[int | RefusedRow]:
        refused: list[RefusedRow] = []
        fitting = self._fitting(rows, refused)
        first = next(fitting, None)
        if first is None:
            return refused
        piece, attempt = first
        with connected(self._sink, self._url) as connection, connection.transaction():
            copy(connection, self._statement, chain((piece,), (each for each, _ in fitting)))
        return [attempt, *refused]

    @staticmethod
    def _fitting(rows: Iterator[Any], refused: list[RefusedRow]) -> Iterator[tuple[bytes, int]]:
        for piece, unfit_row, key, attempt, _ in rows:
            if piece is not None:
                yield bytes(piece), attempt
            elif unfit_row is not None and len(refused) <= MOST_REFUSED:
                refused.append(RefusedRow(key, unfit_row, _NUL))


def copy(connection: psycopg.Connection[Any], statement: sql.Composed, pieces: Iterable[bytes]) -> None:
    """There is at least one piece: the first brings what the format begins with."""
    with connection.cursor() as cursor, cursor.copy(statement) as copying:
        for piece in pieces:
            copying.write(piece)
        copying.write(_END)
