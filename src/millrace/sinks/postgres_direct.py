"""The short way into PostgreSQL: one task copies an epoch of new rows into the table itself, in one transaction with
the ledger.

It is only tried, and nothing is left of a try that the server or a row did not allow: a key that is there already, a
row that went or is refused, a table with row security. Then the epoch goes the long way, staged and merged. A task that
is done again, or still at work when another process has taken over, finds the epoch in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import psycopg
from psycopg import sql

from millrace.failpoint import FailPoint
from millrace.sinks.contract import Sink
from millrace.sinks.ledger import Epoch
from millrace.sinks.postgres import connected
from millrace.sinks.postgres_copy import Made, copy
from millrace.sinks.postgres_ledger import LedgerTable
from millrace.sinks.postgres_table import Target

# What a row can be blamed for; everything else is the server's.
ROWS_OWN = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)


class _NotNew(Exception):
    """A row that went, or that no COPY can hold."""


@dataclass(frozen=True)
class Direct:
    """What the task does; tells whether the epoch is there."""

    sink: Sink
    url: str
    flow: str
    epoch: Epoch
    target: Target
    statement: sql.Composed

    def __call__(self, rows: Iterator[bytes]) -> Iterable[bool]:
        with connected(self.sink, self.url) as connection:
            try:
                with connection.transaction():
                    self._write(connection, rows)
            except (_NotNew, *ROWS_OWN, psycopg.errors.FeatureNotSupported):
                return [False]
        return [True]

    def _write(self, connection: psycopg.Connection[Any], rows: Iterator[bytes]) -> None:
        ledger = LedgerTable(connection, self.target, self.sink)
        ledger.lock(self.flow)
        # By an earlier attempt: also where the ledger is not to be asked, Spark's repetition is not what was wanted.
        if ledger.held(self.flow) == self.epoch.entry or not ledger.due(self.flow, self.epoch):
            return
        made = Made(self.sink, rows)
        pieces = made.pieces(whole=True)
        if (first := next(pieces, None)) is not None:
            copy(connection, self.statement, chain((first,), pieces))
        if made.attempt is None:
            raise _NotNew
        FailPoint.SINK_BEFORE_LEDGER.reached(self.sink.name)
        ledger.enter(self.flow, self.epoch)
