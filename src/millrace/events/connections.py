"""Connections to the store's database: kept open, lent to one thread at a time, thrown away when they break."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator
from threading import Lock
from typing import Any, TypeAlias

import psycopg

from millrace.capture.database import Address
from millrace.errors import DatabaseUnreachable

CONNECT_S = 10
LEFT_OPEN = 16
# How PostgreSQL's codes begin that say: no connection, no room for one, going down or coming up. Or there is no code.
_AWAY = ("080", "533", "57P", "")

Connection: TypeAlias = psycopg.Connection[Any]


class Connections:
    """As many as threads use at once; of those that are idle, some are kept."""

    def __init__(self, name: str, address: Address) -> None:
        self.name, self.address = name, address
        self._idle: list[Connection] = []
        self._parents: list[Connection] = []
        self._closed = False
        self.begin()

    def begin(self) -> None:
        """For a process, which may be a forked one: its parent's connections are kept, since to close one here would
        end it there, and not used."""
        self._parents += self._idle
        self._idle, self._lock = [], Lock()

    @contextlib.contextmanager
    def lent(self) -> Iterator[Connection]:
        """One in autocommit; what is begun in the block is ended or undone with it."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None and (connection.broken or _ended(connection)):
            connection.close()
        if connection is None or connection.closed:
            connection = self.fresh()
        try:
            yield connection
        except psycopg.OperationalError as error:
            broken = connection.broken or (error.sqlstate or "")[:3] in _AWAY
            connection.close()
            if not broken:
                raise
            raise self._unreachable(error) from error
        except BaseException:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.close()
            raise
        finally:
            self._put_back(connection)

    def fresh(self) -> Connection:
        where = self.address
        try:
            return psycopg.connect(
                autocommit=True,
                connect_timeout=CONNECT_S,
                **where.connecting,
            )
        except psycopg.OperationalError as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _put_back(self, connection: Connection) -> None:
        with self._lock:
            kept = not self._closed and not connection.closed and len(self._idle) < LEFT_OPEN
            if kept:
                self._idle.append(connection)
        if not kept:
            connection.close()

    def _unreachable(self, error: psycopg.Error) -> DatabaseUnreachable:
        return self.lost(str(error).strip().partition("\n")[0])

    def lost(self, reason: str) -> DatabaseUnreachable:
        return DatabaseUnreachable(name=self.name, address=self.address, reason=reason)


def _ended(connection: Connection) -> bool:
    """Whether the server ended it while it was idle: only then is there something to read."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
