"""A table of PostgreSQL built again: the rows are written to a table beside it, then one transaction brings the old one
to them and writes the ledger.

The old table is changed and not replaced: what people have put on it (indexes, rights, views, triggers) stays, and who
reads sees the rows from before that transaction or those after it. Only a table that is gone gets the new one's place.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DecimalType, IntegralType, StringType

from millrace.kernel.calling import quoted
from millrace.sinks.comparing import Held, canonical
from millrace.sinks.contract import Writer
from millrace.sinks.ledger import Entry, Epoch
from millrace.sinks.postgres import connect, told
from millrace.sinks.postgres_ledger import LedgerTable
from millrace.sinks.postgres_table import Shaping, Target, columns_of, exists, make_ledger
from millrace.sinks.postgres_writer import PostgresWriter
from millrace.sinks.rebuilding import Rebuilding, Site, Which

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millrace.sinks.postgres import Postgres

FETCH_ROWS = 5_000
# Types of which PostgreSQL and Spark show a value in the same way.
_SHOWN_ALIKE = (IntegralType, StringType, BooleanType, DecimalType)


class PostgresRebuilding(Rebuilding):
    def __init__(self, sink: Postgres, url: str, site: Site) -> None:
        self._sink, self._url, self._site = sink, url, site
        self._target = Target.of(sink.table)
        digest = hashlib.sha256(f"{site.flow_beside}\0{sink.name}".encode()).hexdigest()[:16]
        self._beside = Target(self._target.schema, f"millrace_{site.purpose}_{digest}")
        with told(sink):
            self._connection = connect(url)
            try:
                make_ledger(self._connection, self._target)
            except BaseException:
                self.close()
                raise
        self._ledger = LedgerTable(self._connection, self._target, sink)

    @property
    def keyed(self) -> bool:
        return bool(self._site.feed.key)

    def held(self) -> Entry | None:
        with told(self._sink):
            return self._ledger.held(self._site.flow)

    def begin(self, epoch: Epoch) -> Writer:  # noqa: ARG002 -- the switch writes it
        self.discard()
        with told(self._sink):
            if exists(self._connection, self._target):
                # With its checks and indexes: a row that it would refuse is refused here.
                self._execute("CREATE TABLE {} (LIKE {} INCLUDING ALL)", self._new, self._live)
        sink = replace(self._sink, table=self._beside_name)
        return PostgresWriter(sink, self._url, self._site.flow_beside, self._site.feed)

    def there(self, which: Which) -> Iterator[Held]:
        target = self._target if which == "live" else self._beside
        with told(self._sink), self._connection.transaction():
            if not exists(self._connection, target):
                return
            statement = self._rows_of(target)
            with self._connection.cursor(name="millrace_rows") as cursor:
                cursor.itersize = FETCH_ROWS
                for key, row in cursor.execute(statement):
                    yield (key, canonical(row)) if self.keyed else (canonical(row), None)

    def wanted(self, rows: DataFrame) -> Iterable[Held]:
        """Only the server knows how it shows a value, in a table that has these types."""
        with contextlib.closing(self.begin(Epoch(self._site.flow, 0, ""))) as writer:
            writer.write(Epoch(self._site.flow_beside, 0, ""), rows, lambda _: None)
        return self.there("new")

    def names(self, keys: DataFrame) -> DataFrame | None:
        key = self._site.feed.key
        if not key or not all(isinstance(keys.schema[name].dataType, _SHOWN_ALIKE) for name in key):
            return None
        texts = [F.col(quoted(name)).cast("string") for name in key]
        return keys.select(texts[0] if len(texts) == 1 else F.to_json(F.array(*texts)))

    def switch(self, epoch: Epoch) -> None:
        with told(self._sink), self._connection.transaction():
            if not exists(self._connection, self._beside):
                return
            if exists(self._connection, self._target):
                self._execute("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", self._live)
                shaping = Shaping(self._connection, self._target, self._site.feed, self._sink.name, self._sink.where)
                shaping.shape(self._site.flow, None)
                self._bring()
            else:
                self._execute("ALTER TABLE {} RENAME TO {}", self._new, sql.Identifier(self._target.table))
            self._ledger.enter(self._site.flow, epoch)
            self._drop_beside()

    def discard(self) -> None:
        with told(self._sink), self._connection.transaction():
            self._drop_beside()

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()

    @property
    def _live(self) -> sql.Identifier:
        return self._target.identifier

    @property
    def _new(self) -> sql.Identifier:
        return self._beside.identifier

    @property
    def _beside_name(self) -> str:
        schema, table = self._beside.schema, self._beside.table
        return table if schema is None else f"{schema}.{table}"

    def _bring(self) -> None:
        """The old table to the rows of the new one; of a table with a key, only what differs."""
        feed = self._site.feed
        names = columns_of(feed.columns)
        if not feed.key:
            self._execute("DELETE FROM {}", self._live)
            self._execute("INSERT INTO {} ({}) SELECT {} FROM {}", self._live, names, names, self._new)
            return
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{} = n.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in feed.key
        )
        gone = "DELETE FROM {} t WHERE NOT EXISTS (SELECT FROM {} n WHERE {})"
        self._execute(gone, self._live, self._new, same)
        others = [name for name in feed.columns.names if name not in feed.key]
        set_all = sql.SQL(", ").join(
            sql.SQL("{} = EXCLUDED.{}").format(sql.Identifier(name), sql.Identifier(name)) for name in others
        )
        update = sql.SQL("UPDATE SET {}").format(set_all) if others else sql.SQL("NOTHING")
        keys = sql.SQL(", ").join(map(sql.Identifier, feed.key))
        put = """INSERT INTO {} ({}) SELECT {} FROM {} n
                 WHERE NOT EXISTS (SELECT FROM {} t WHERE {} AND {} = {}) ON CONFLICT ({}) DO {}"""
        one, two = _json("t", feed.columns.names), _json("n", feed.columns.names)
        self._execute(put, self._live, names, names, self._new, self._live, same, one, two, keys, update)

    def _rows_of(self, target: Target) -> sql.Composed:
        """Each row's key as a text, and all of it as JSON. A column that is not there yet is null."""
        found = self._connection.execute(
            "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped",
            (target.identifier.as_string(self._connection),),
        )
        known = {name for (name,) in found}
        feed = self._site.feed
        lacking = [name for name in feed.columns.names if name not in known]
        key: sql.Composable = sql.SQL("NULL")
        if len(feed.key) == 1:
            key = sql.SQL("h.{}::text").format(sql.Identifier(feed.key[0]))
        elif feed.key:
            parts = sql.SQL(", ").join(sql.SQL("h.{}::text").format(sql.Identifier(name)) for name in feed.key)
            key = sql.SQL("array_to_json(ARRAY[{}])::text").format(parts)
        row = _json("h", feed.columns.names, lacking)
        return sql.SQL("SELECT {}, {}::text FROM {} h").format(key, row, target.identifier)

    def _drop_beside(self) -> None:
        staging = self._target.staging(self._site.flow_beside, self._sink.name)
        for table in (self._new, staging):
            self._execute("DROP TABLE IF EXISTS {}", table)
        self._ledger.forget(self._site.flow_beside)

    def _execute(self, statement: Any, *parts: Any) -> psycopg.Cursor[Any]:
        return self._connection.execute(sql.SQL(statement).format(*parts))


def _json(table: str, names: Iterable[str], lacking: Iterable[str] = ()) -> sql.Composed:
    """A row's columns as one JSON object, by which all types can be compared."""
    columns = [
        sql.SQL("NULL AS {}").format(sql.Identifier(name))
        if name in lacking
        else sql.SQL("{}.{}").format(sql.Identifier(table), sql.Identifier(name))
        for name in names
    ]
    return sql.SQL("(SELECT to_jsonb(x) FROM (SELECT {}) x)").format(sql.SQL(", ").join(columns))
