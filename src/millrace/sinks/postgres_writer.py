"""One epoch into PostgreSQL: staged, merged, and in the ledger, or not at all. New rows take a shorter way where they
can (`postgres_direct`).

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
from millrace.kernel.calling import quoted
from millrace.kernel.pieces import copy_pieces
from millrace.sinks.contract import DIFF, MOST_REFUSED, Feed, Refuse, RefusedRow, Writer
from millrace.sinks.ledger import Epoch
from millrace.sinks.postgres import connect, sentence, told
from millrace.sinks.postgres_copy import ATTEMPT, Staging
from millrace.sinks.postgres_direct import ROWS_OWN, Direct
from millrace.sinks.postgres_ledger import LedgerTable
from millrace.sinks.postgres_table import Shaping, Target, columns_of
from millrace.sinks.postgres_types import postgres_type, ready, unfit
from millrace.sinks.tasks import in_tasks

_WITH_MERGE = 150_000
_NUMBER = "__number"
_UNFIT, _KEY = "__unfit", "__key"


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
                self._ledger = LedgerTable(self._connection, self._target, sink)
                shaping.shape(flow, self._ledger.held(flow))
                self._direct = shaping.takes_new()
                self._appends = self._direct and not feed.key
            except BaseException:
                self.close()
                raise

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        with told(self._sink):
            if not self._ledger.due(self._flow, epoch) or self._written_directly(epoch, rows):
                return
            attempts, refused = self._stage(rows)
            with self._connection.transaction():
                self._ledger.lock(self._flow)
                if not self._ledger.due(self._flow, epoch):
                    return
                refused += self._merge(attempts) if attempts else []
                if refused:
                    refuse(refused)
                FailPoint.SINK_BEFORE_LEDGER.reached(self._sink.name)
                self._ledger.enter(self._flow, epoch)
                self._execute("TRUNCATE {}", self._staging)
            self._direct = self._appends and not refused

    def _written_directly(self, epoch: Epoch, rows: DataFrame) -> bool:
        """With a key, until it fails once: from then on keys come again. Without, again after an epoch of which nothing
        was refused."""
        if not self._direct or self._ledger.held(self._flow) == epoch.entry:
            return False
        names = columns_of(self._feed.columns)
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(self._target.identifier, names)
        direct = Direct(self._sink, self._url, self._flow, epoch, self._target, statement)
        # One task, because one transaction: the server is busier with the rows than Spark.
        pieces = copy_pieces(self._fields(rows).coalesce(1), self._kinds(), signed=False)
        self._direct = in_tasks(pieces, self._sink, direct) == [True]
        return self._direct

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()

    def _stage(self, rows: DataFrame) -> tuple[list[int], list[RefusedRow]]:
        """The attempts whose rows are to be merged, and the rows that no text of PostgreSQL can hold."""
        own = sql.SQL(", ").join((columns_of(self._feed.columns), sql.Identifier(DIFF), sql.Identifier(ATTEMPT)))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(self._staging, own)
        pieces = copy_pieces(self._fields(rows), self._kinds(), signed=True)
        found = in_tasks(pieces, self._sink, Staging(self._sink, self._url, statement))
        refused = [each for each in found if isinstance(each, RefusedRow)]
        self._refuse_most(refused)
        return [each for each in found if isinstance(each, int)], refused

    def _fields(self, rows: DataFrame) -> DataFrame:
        """The row as JSON and its key if no COPY can hold it, then its values, then its sign."""
        fields = [(F.col(quoted(each.name)), each.dataType) for each in self._feed.columns.fields]
        bad = F.lit(False)
        for column, kind in fields:
            if (doubt := unfit(column, kind)) is not None:
                bad = bad | F.coalesce(doubt, F.lit(False))
        whole = F.to_json(F.struct(*(column for column, _ in fields)))
        return rows.select(
            F.when(bad, whole).alias(_UNFIT),
            F.when(bad, self._key_text()).alias(_KEY),
            *(ready(column, kind) for column, kind in fields),
            F.col(DIFF).cast("int"),
        )

    def _kinds(self) -> list[str]:
        return [postgres_type(each.dataType) or "" for each in self._feed.columns.fields]

    def _key_text(self) -> Any:
        keys = [F.col(quoted(name)) for name in self._feed.key]
        return F.to_json(F.struct(*keys)) if len(keys) > 1 else keys[0].cast("string") if keys else F.lit(None)

    def _merge(self, attempts: Sequence[int]) -> list[RefusedRow]:
        """All at once; if the server refuses rows, they are looked for by halves."""
        taken = sql.SQL("{} = ANY({})").format(sql.Identifier(ATTEMPT), list(attempts))
        try:
            with self._connection.transaction():
                if self._feed.key and self._connection.info.server_version >= _WITH_MERGE:
                    self._apply_at_once(taken)
                else:
                    self._apply(self._staging, taken)
        except ROWS_OWN:
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
        except ROWS_OWN as error:
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

    def _apply_at_once(self, which: sql.Composed) -> None:
        """The same by MERGE: new keys are there in half the time. It knows no keys that others write meanwhile; then
        it fails, and what does not is tried."""
        names = [sql.Identifier(name) for name in self._feed.columns.names]
        listed = sql.SQL(", ").join(names)
        others = [name for name in self._feed.columns.names if name not in self._feed.key]
        set_all = sql.SQL(", ").join(
            sql.SQL("{} = s.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in others
        )
        update = sql.SQL("UPDATE SET {}").format(set_all) if others else sql.SQL("DO NOTHING")
        diff = sql.Identifier(DIFF)
        merged = """MERGE INTO {} t USING (SELECT {}, {} FROM {} WHERE {}) s ON {}
                    WHEN MATCHED AND s.{} < 0 THEN DELETE
                    WHEN MATCHED THEN {}
                    WHEN NOT MATCHED AND s.{} > 0 THEN INSERT ({}) VALUES ({})"""
        inserted = sql.SQL(", ").join(sql.SQL("s.{}").format(name) for name in names)
        self._execute(
            merged, self._target.identifier, listed, diff, self._staging, which, self._same(), diff, update, diff,
            listed, inserted,
        )  # fmt: skip

    def _same(self) -> sql.Composed:
        return sql.SQL(" AND ").join(
            sql.SQL("t.{} = s.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in self._feed.key
        )

    def _apply(self, source: sql.Identifier, which: sql.Composed) -> None:
        """Writes the rows of a table that was staged."""
        names = columns_of(self._feed.columns)
        diff = sql.Identifier(DIFF)
        if not self._feed.key:
            inserted = "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {}"
            self._execute(inserted, self._target.identifier, names, names, source, which)
            return
        deleted = "DELETE FROM {} t USING (SELECT * FROM {} WHERE {} AND {} < 0) s WHERE {}"
        self._execute(deleted, self._target.identifier, source, which, diff, self._same())
        others = [name for name in self._feed.columns.names if name not in self._feed.key]
        set_all = sql.SQL(", ").join(
            sql.SQL("{} = EXCLUDED.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in others
        )
        update = sql.SQL("UPDATE SET {}").format(set_all) if others else sql.SQL("NOTHING")
        keys = sql.SQL(", ").join(map(sql.Identifier, self._feed.key))
        upserted = "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} AND {} > 0 ON CONFLICT ({}) DO {}"
        self._execute(upserted, self._target.identifier, names, names, source, which, diff, keys, update)

    def _execute(self, statement: Any, *parts: Any) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.SQL(statement).format(*parts))

    def _refuse_most(self, refused: Sequence[RefusedRow]) -> None:
        if len(refused) > MOST_REFUSED:
            reason, where = refused[0].reason, self._sink.where
            raise SinkRefusesMost(sink=self._sink.name, most=MOST_REFUSED, reason=reason, where=where)
