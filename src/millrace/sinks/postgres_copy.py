"""What a task does for PostgreSQL: copies its rows into the table that they are staged in. Workers import this file,
and so it imports little."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from millrace.sinks.contract import MOST_REFUSED, RefusedRow, Sink
from millrace.sinks.postgres import connected

if TYPE_CHECKING:
    from psycopg import sql

# A column, and the setting of a session that it takes its value from.
ATTEMPT, SETTING = "__attempt", "millrace.attempt"
_NUL = "it holds the character 0, which PostgreSQL's texts cannot"


class Staging:
    """What a task does: copies its rows, in one transaction, and tells the number of this attempt."""

    def __init__(self, sink: Sink, url: str, statement: sql.Composed) -> None:
        self._sink, self._url, self._statement = sink, url, statement

    def __call__(self, rows: Iterator[Any]) -> Iterable[int | RefusedRow]:
        refused: list[RefusedRow] = []
        lines = self._fitting(rows, refused)
        first = next(lines, None)
        if first is None:
            return refused
        # No other has it, also none of a process that was killed and whose tasks still run.
        number = secrets.randbits(63)
        with connected(self._sink, self._url) as connection, connection.transaction():
            connection.execute("SELECT set_config(%s, %s, false)", (SETTING, str(number)))
            with connection.cursor() as cursor, cursor.copy(self._statement) as copy:
                for piece in chain((first,), lines):
                    copy.write(piece)
        return [number, *refused]

    @staticmethod
    def _fitting(rows: Iterator[Any], refused: list[RefusedRow]) -> Iterator[bytes]:
        for lines, unfit_row, key in rows:
            if lines is not None:
                yield bytes(lines)
            elif len(refused) <= MOST_REFUSED:
                refused.append(RefusedRow(key, unfit_row, _NUL))
