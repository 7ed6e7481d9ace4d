"""One epoch into PostgreSQL: staged, merged, and in the ledger, or not at all.

Each task's rows carry the number of its attempt, and only those of attempts that Spark took are merged: what a task
that was lost, or belongs to a process that was killed, has staged is never seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.errors import SinkRefusesMost
from millrace.failpoint import FailPoint
from millrace.kernel.pieces import pieces
from millrace.sinks.contract import DIFF, MOST_REFUSED, Feed, Refuse, RefusedRow, Writer
from millrace.sinks.ledger import Epoch, due
from millrace.sinks.postgres import connect, sentence, told
from millrace.sinks.postgres_copy import ATTEMPT, Staging
from millrace.sinks.postgres_ledger import LedgerTable
from millrace.sinks.postgres_table import Shaping, Target, columns_of
from millrace.sinks.postgres_types import copied, is_array, postgres_type, unfit
from millrace.sinks.tasks import in_tasks

# What a row can be blamed for; everything else is the server's.
_ROWS_OWN = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)
_NUMBER = "__number"
_LINE, _UNFIT, _KEY = "line", "unfit", "key"


class PostgresWriter(Writer):
    def __init__(self, sink: Any, url: str, flow: str, feed: Feed) -> None:
        self._sink, self._url, self._flow, self._feed = sink, url, flow, feed
        self._target = Target.of(sink.table)
        self._staging = self._target.staging(flow, sink.name)
        with told(sink):
            self._connection = connect(url)
            try:
                shaping = Shaping(self._connection, self._target, feed, sink.name, sink.where)
                shaping.beside(self._staging)
                self._ledger = LedgerTable(self._connection, self._target, sink.name)
                shaping.shape(flow, self._ledger.held(flow))
            except BaseException:
                self.close()
                raise

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        with told(self._sink):
            if not self._due(epoch):
                return
            attempts, refused = self._stage(rows)
            with self._connection.transaction():
                if not self._due(epoch, lock=True):
                    return
                refused += self._merge(attempts) if attempts else []
                if refused:
                    refuse(refused)
                FailPoint.SINK_BEFORE_LEDGER.reached(self._sink.name)
                self._ledger.enter(self._flow, epoch)
                self._execute("TRUNCATE {}", self._staging)

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()

    def _due(self, epoch: Epoch, *, lock: bool = False) -> bool:
        if lock:  # for as long as the transaction; there may be no entry yet that could be locked
            names = (self._flow, self._sink.name)
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", names)
        return due(self._sink.name, epoch, self._ledger.held(self._flow), self._sink.where)

    def _stage(self, rows: DataFrame) -> tuple[list[int], list[RefusedRow]]:
        """The attempts whose rows are to be merged, and the rows that no text of PostgreSQL can hold."""
        statement = sql.SQL("COPY {} ({}, {}) FROM STDIN").format(
            self._staging, columns_of(self._feed.columns), sql.Identifier(DIFF)
        )
        staging = Staging(self._sink, self._url, statement)
        found = in_tasks(pieces(self._lines(rows)), self._sink, staging)
        refused = [each for each in found if isinstance(each, RefusedRow)]
        self._refuse_most(refused)
        return [each for each in found if isinstance(each, int)], refused

    def _lines(self, rows: DataFrame) -> DataFrame:
        """Each row as a line of COPY's text format, or as JSON if it can be none."""
        utc = rows.sparkSession.conf.get("spark.sql.session.timeZone") == "UTC"
        fields = [(F.col(f"`{each.name.replace('`', '``')}`"), each.dataType) for each in self._feed.columns.fields]
        line = F.concat_ws("\t", *(copied(column, kind, utc=utc) for column, kind in fields), F.col(DIFF))
        doubts = [doubt for column, kind in fields if (doubt := unfit(column, kind)) is not None]
        bad = F.lit(False)
        for doubt in doubts:
            bad = bad | F.coalesce(doubt, F.lit(False))
        whole, key = F.to_json(F.struct(*(column for column, _ in fields))), self._key_text()
        return rows.select(
            F.when(~bad, line.cast("binary")).alias(_LINE),
            F.when(bad, whole).alias(_UNFIT),
            F.when(bad, key).alias(_KEY),
        )

    def _key_text(self) -> Any:
        keys = [F.col(f"`{name.replace('`', '``')}`") for name in self._feed.key]
        return F.to_json(F.struct(*keys)) if len(keys) > 1 else keys[0].cast("string") if keys else F.lit(None)

    def _merge(self, attempts: Sequence[int]) -> list[RefusedRow]:
        """All at once; if the server refuses rows, they are looked for by halves."""
        taken = sql.SQL("{} = ANY({})").format(sql.Identifier(ATTEMPT), list(attempts))
        try:
            with self._connection.transaction():
                self._apply(self._staging, taken)
        except _ROWS_OWN:
            numbered = sql.Identifier("millrace_numbered")
            made = "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT *, row_number() OVER () AS {} FROM {} WHERE {}"
            self._execute(made, numbered, sql.Identifier(_NUMBER), self._staging, taken)
            counted = self._execute("SELECT count(*) FROM {}", numbered).fetchone()
            refused: list[RefusedRow] = []
            for each in self._by_halves(numbered, 1, counted[0] if counted else 0):
                refused.append(each)
                self._refuse_most(refused)
            return refused
        return []

    def _by_halves(self, numbered: sql.Identifier, first: int, last: int) -> Iterator[RefusedRow]:
        within = sql.SQL("{} BETWEEN {} AND {}").format(sql.Identifier(_NUMBER), first, last)
        try:
            with self._connection.transaction():
                self._apply(numbered, within)
        except _ROWS_OWN as error:
            if first == last:
                yield self._refused(numbered, within, sentence(error))
                return
            middle = (first + last) // 2
            yield from self._by_halves(numbered, first, middle)
            yield from self._by_halves(numbered, middle + 1, last)

    def _refused(self, numbered: sql.Identifier, within: sql.Composed, reason: str) -> RefusedRow:
        key: sql.Composable = sql.SQL("NULL")
        if len(self._feed.key) == 1:
            key = sql.SQL("{}::text").format(sql.Identifier(self._feed.key[0]))
        elif self._feed.key:
            pairs = [sql.SQL("{}, {}").format(name, sql.Identifier(name)) for name in self._feed.key]
            key = sql.SQL("json_build_object({})::text").format(sql.SQL(", ").join(pairs))
        whole = "SELECT {}, (to_jsonb(n) - {}::text[])::text FROM {} n WHERE {}"
        own = [DIFF, ATTEMPT, _NUMBER]
        found = self._execute(whole, key, own, numbered, within).fetchone()
        assert found is not None
        return RefusedRow(found[0], found[1], reason)

    def _apply(self, source: sql.Identifier, which: sql.Composed) -> None:
        """Writes the rows of a table that was staged."""
        names = columns_of(self._feed.columns)
        values = sql.SQL(", ").join(_unstaged(each.name, each.dataType) for each in self._feed.columns.fields)
        diff = sql.Identifier(DIFF)
        if not self._feed.key:
            inserted = "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {}"
            self._execute(inserted, self._target.identifier, names, values, source, which)
            return
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{} = s.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in self._feed.key
        )
        deleted = "DELETE FROM {} t USING (SELECT * FROM {} WHERE {} AND {} < 0) s WHERE {}"
        self._execute(deleted, self._target.identifier, source, which, diff, same)
        others = [name for name in self._feed.columns.names if name not in self._feed.key]
        set_all = sql.SQL(", ").join(
            sql.SQL("{} = EXCLUDED.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in others
        )
        update = sql.SQL("UPDATE SET {}").format(set_all) if others else sql.SQL("NOTHING")
        keys = sql.SQL(", ").join(map(sql.Identifier, self._feed.key))
        upserted = "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} AND {} > 0 ON CONFLICT ({}) DO {}"
        self._execute(upserted, self._target.identifier, names, values, source, which, diff, keys, update)

    def _execute(self, statement: Any, *parts: Any) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.SQL(statement).format(*parts))

    def _refuse_most(self, refused: Sequence[RefusedRow]) -> None:
        if len(refused) > MOST_REFUSED:
            reason, where = refused[0].reason, self._sink.where
            raise SinkRefusesMost(sink=self._sink.name, most=MOST_REFUSED, reason=reason, where=where)


def _unstaged(name: str, kind: Any) -> sql.Composed:
    """A staged value as the target takes it: of an array, its elements one by one."""
    column = sql.Identifier(name)
    if not is_array(kind):
        return sql.Composed([column])
    word = sql.SQL((postgres_type(kind) or "").removesuffix("[]"))
    elements = """CASE WHEN {} IS NOT NULL THEN ARRAY(
                  SELECT e.value::{} FROM jsonb_array_elements_text({}) WITH ORDINALITY e(value, place) ORDER BY place)
                  END"""
    return sql.SQL(elements).format(column, word, column)
