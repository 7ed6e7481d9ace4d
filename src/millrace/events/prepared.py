"""The one statement that is run all the time, without a cursor: half of what an append costs its process would be that.

For connections in autocommit that nobody else uses meanwhile: it begins no transaction, as psycopg would do for others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any
from weakref import WeakKeyDictionary

from psycopg import DataError, errors, generators
from psycopg.pq import ExecStatus

from millrace.events.connections import Connection

_BINARY = 1
_LONG = Struct("!q").unpack
# PostgreSQL counts microseconds from here.
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# The names of statements that each connection knows, with its encoding: stores may share their connections.
_KNOWN: WeakKeyDictionary[Connection, dict[bytes, str]] = WeakKeyDictionary()


class Prepared:
    """The function `append`; its statement has `$1` where psycopg's has `%s`."""

    def __init__(self, statement: bytes) -> None:
        parts = statement.split(b"%s")
        numbered = (b"$%d" % number + part for number, part in enumerate(parts[1:], 1))
        self._statement = b"".join((parts[0], *numbered))
        self._name = f"millrace_{hashlib.sha256(self._statement).hexdigest()[:16]}".encode()

    def run(self, connection: Connection, values: Sequence[str | None]) -> tuple[Any, ...]:
        """The row that it gives, as psycopg would; a moment is in UTC."""
        with connection.lock:
            if self._name not in _KNOWN.setdefault(connection, {}):
                self._prepare(connection)
            try:
                result = self._run(connection, values)
            except errors.InvalidSqlStatementName:  # after a rollback psycopg has the server forget all of them
                self._prepare(connection)
                result = self._run(connection, values)
        outcome, first, moment, place, stands = (result.get_value(0, column) for column in range(5))
        at = None if moment is None else _EPOCH + timedelta(microseconds=_LONG(moment)[0])
        return (outcome or b"").decode(), _number(first), at, _number(place), _number(stands)

    def _prepare(self, connection: Connection) -> None:
        _checked(connection.pgconn.prepare(self._name, self._statement))
        _KNOWN[connection][self._name] = connection.info.encoding.replace("ascii", "utf-8")  # as psycopg takes it

    def _run(self, connection: Connection, values: Sequence[str | None]) -> Any:
        encoding = _KNOWN[connection][self._name]
        given = [_bytes(value, encoding) for value in values]
        connection.pgconn.send_query_prepared(self._name, given, result_format=_BINARY)
        return _checked(connection.wait(generators.execute(connection.pgconn))[-1])


def _bytes(value: str | None, encoding: str) -> bytes | None:
    if value is None:
        return None
    given = value.encode(encoding)
    if b"\0" in given:  # where libpq would take it for the end
        raise DataError("a text of PostgreSQL holds no zero character")
    return given


def _number(value: bytes | None) -> int | None:
    return None if value is None else int(_LONG(value)[0])


def _checked(result: Any) -> Any:
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise errors.error_from_result(result)
    return result
