"""Appends of threads that write at the same moment go into one transaction, and share its commit.

The lock that makes the order holds until the commit is on the disk, so commits come one after the other. Whoever comes
while one is under way waits together with all others who do, and one of them then writes for all. A thread that is
alone does not notice.
"""

from __future__ import annotations

from threading import Event, Lock
from typing import Any

import psycopg

from millrace.events.connections import Connection, Connections
from millrace.events.prepared import Prepared

MOST = 100
# What no server would take, whoever asks: a value that does not fit, a text that cannot be encoded.
_IMPOSSIBLE = (psycopg.DataError, UnicodeError)


class _Asked:
    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.turn: Event | None = None  # of those who wait; whoever is alone is spared it
        self.row: tuple[Any, ...] | None = None
        self.error: BaseException | None = None

    @property
    def answered(self) -> bool:
        return self.row is not None or self.error is not None


class Joint:
    def __init__(self, connections: Connections, statement: bytes) -> None:
        self.connections, self.statement, self.alone = connections, statement, Prepared(statement)
        self._lock = Lock()
        self._waiting: list[_Asked] = []
        self._busy = False

    def append(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The row that the function `append` gives for these arguments, when it is committed."""
        asked = _Asked(values)
        with self._lock:
            self._waiting.append(asked)
            leads, self._busy = not self._busy, True
            asked.turn = None if leads else Event()
        if asked.turn is not None:
            self._wait(asked, asked.turn)
        if not asked.answered:
            self._lead()
        if asked.error is not None:
            raise asked.error
        assert asked.row is not None
        return asked.row

    def _wait(self, asked: _Asked, turn: Event) -> None:
        try:
            turn.wait()
        except BaseException:  # interrupted: it asks for nothing any more, and does not lead
            with self._lock:
                if asked in self._waiting:
                    self._waiting.remove(asked)
                    if turn.is_set():
                        self._hand_over()
            raise

    def _hand_over(self) -> None:
        self._busy = bool(self._waiting)
        if self._waiting:
            _call(self._waiting[0])

    def _lead(self) -> None:
        """Writes for all who wait, oneself among them, then hands over: nobody writes for others for ever."""
        with self._lock:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            with self.connections.lent() as connection:
                self._write(connection, batch)
        except Exception as error:
            _fail(batch, error)
        except BaseException:  # interrupted, and nobody else is: whether theirs is written they do not know
            _fail(batch, self.connections.lost("the thread that wrote for this one was interrupted"))
            raise
        finally:
            with self._lock:
                self._hand_over()
            for each in batch:
                _call(each)

    def _write(self, connection: Connection, batch: list[_Asked]) -> None:
        if len(batch) > 1:
            try:
                for each, row in zip(batch, self._together(connection, batch), strict=True):
                    each.row = row
                return
            except _IMPOSSIBLE:
                pass  # what one of them asks is impossible: each by itself, so that it fails alone
        for each in batch:
            try:
                each.row = self.alone.run(connection, each.values)
            except _IMPOSSIBLE as error:
                each.error = error

    def _together(self, connection: Connection, batch: list[_Asked]) -> list[Any]:
        with connection.transaction(), connection.pipeline():
            cursors = [connection.execute(self.statement, each.values, prepare=True) for each in batch]
            return [cursor.fetchone() for cursor in cursors]


def _fail(batch: list[_Asked], error: Exception) -> None:
    for each in batch:
        if not each.answered:
            each.error = error


def _call(asked: _Asked) -> None:
    if asked.turn is not None:
        asked.turn.set()
