"""The ledger of sinks that write to PostgreSQL: a table beside theirs, written in one transaction with the rows."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from millrace.sinks.contract import Sink
from millrace.sinks.ledger import Entry, Epoch, due
from millrace.sinks.postgres_table import LEDGER, Target


class LedgerTable:
    """What is known of one sink; the connection's transaction is the caller's."""

    def __init__(self, connection: psycopg.Connection[Any], target: Target, sink: Sink) -> None:
        self._connection, self._table = connection, target.beside(LEDGER)
        self._sink, self._where = sink.name, sink.where

    def lock(self, flow: str) -> None:
        """For as long as the transaction; there may be no entry yet that could be locked."""
        names = (flow, self._sink)
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", names)

    def due(self, flow: str, epoch: Epoch) -> bool:
        return due(self._sink, epoch, self.held(flow), self._where)

    def held(self, flow: str) -> Entry | None:
        asked = sql.SQL("SELECT epoch, ranges FROM {} WHERE flow = %s AND sink = %s").format(self._table)
        found = self._connection.execute(asked, (flow, self._sink)).fetchone()
        return None if found is None else Entry(*found)

    def enter(self, flow: str, epoch: Epoch) -> None:
        written = """INSERT INTO {} AS l (flow, sink, epoch, ranges) VALUES (%s, %s, %s, %s)
                     ON CONFLICT (flow, sink) DO UPDATE
                     SET epoch = EXCLUDED.epoch, ranges = EXCLUDED.ranges, written = now()"""
        values = (flow, self._sink, epoch.number, epoch.ranges)
        self._connection.execute(sql.SQL(written).format(self._table), values)

    def forget(self, flow: str) -> None:
        gone = sql.SQL("DELETE FROM {} WHERE flow = %s AND sink = %s").format(self._table)
        self._connection.execute(gone, (flow, self._sink))
