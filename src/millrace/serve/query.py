"""SQL over the view store, for reading alone.

What stands between a query and everything else, each by itself enough against what it is for:
- a PostgreSQL role of its own that may read the schema of the app's views and nothing else;
- a transaction that only reads, and has read before, so that it can not be made one that writes;
- one statement (the extended protocol takes no second), which must be a SELECT over the app's views;
- limits of time, rows and bytes; and a connection that begins anew after each query.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlglot
from psycopg import sql
from sqlglot import exp

from millrace.config import Settings
from millrace.errors import QueryRefused, QueryTooLarge, QueryTooSlow, QueryUnsafe, ViewUnfilled
from millrace.serve import waiting
from millrace.serve.reading import Pool, Reading, told
from millrace.sinks.postgres import sentence
from millrace.views.store import POSITIONS, READER, TENTATIVE, url_of

STATEMENT_MS = 5_000
CONNECTIONS = 4
MOST_ROWS = 10_000
MOST_BYTES = 16 * 1024 * 1024
MOST_LETTERS = 20_000
# Functions that look at the server, at other sessions or at SQL in texts. The role keeps them from what matters; they
# are refused so that queries do not disturb each other.
_REFUSED = ("pg_", "lo_", "dblink", "set_config", "current_setting", "txid_", "has_", "inet_")
_REFUSED_ENDS = ("_to_xml", "_to_xmlschema", "_to_xml_and_xmlschema")
# A function's name, or a table's, as PostgreSQL reads it and the look at the SQL does not.
_CODES = re.compile(r"""[uU]&["']""")
_RIGHTS = """
SELECT r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls,
       EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid),
       EXISTS (SELECT FROM pg_tables t WHERE t.schemaname = %s AND (
           has_table_privilege(r.oid, format('%%I.%%I', t.schemaname, t.tablename), 'INSERT')
        OR has_table_privilege(r.oid, format('%%I.%%I', t.schemaname, t.tablename), 'UPDATE')
        OR has_table_privilege(r.oid, format('%%I.%%I', t.schemaname, t.tablename), 'DELETE'))),
       EXISTS (SELECT FROM pg_tables t WHERE t.schemaname NOT IN ('pg_catalog', 'information_schema', %s)
           AND has_table_privilege(r.oid, format('%%I.%%I', t.schemaname, t.tablename), 'SELECT')
           AND has_schema_privilege(r.oid, t.schemaname, 'USAGE'))
FROM pg_roles r WHERE r.rolname = current_user
"""


@dataclass(frozen=True)
class Answer:
    rows: tuple[str, ...]
    more: bool
    positions: dict[str, Any]


class Queries:
    """Of one app."""

    def __init__(self, settings: Settings, reading: Reading) -> None:
        self._settings, self._reading = settings, reading
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def answer(
        self, text: str, most_rows: int, wait_for: str | None = None, wait_s: float = waiting.WAIT_S
    ) -> Answer:
        """If asked, when all views that it reads have what was committed up to an LSN."""
        views = checked(text, self._reading.views)
        if wait_for is not None:
            await waiting.wait(self._reading, views, wait_for, wait_s)
        pool = await self._opened()
        with told(""):
            async with pool.connection() as connection:
                try:
                    return await self._answered(connection, text, most_rows)
                except psycopg.errors.QueryCanceled:
                    raise QueryTooSlow(seconds=STATEMENT_MS / 1_000) from None
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    await connection.close()
                    raise
                except (psycopg.Error, UnicodeEncodeError) as error:
                    reason = sentence(error) if isinstance(error, psycopg.Error) else "it is not Unicode"
                    raise QueryRefused(reason=reason) from None
                finally:
                    await _anew(connection)

    async def _answered(self, connection: psycopg.AsyncConnection[Any], text: str, most_rows: int) -> Answer:
        await connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        schema = self._reading.schema
        positions = sql.SQL("SELECT view, lsn::text, epoch, at, {} FROM {} p").format(
            sql.SQL(TENTATIVE), sql.Identifier(schema, POSITIONS)
        )
        reached = await (await connection.execute(positions)).fetchall()
        # The query is the client's own, whatever it is: nothing but the role and the transaction has to hold it.
        query = f"SELECT row_to_json(q.*)::text FROM (\n{text}\n) q LIMIT {int(most_rows) + 1}"  # noqa: S608
        rows: list[str] = []
        size_bytes = 0
        # Streaming uses the extended protocol, which takes one statement.
        stream: Any = connection.cursor().stream(query.encode())
        async with contextlib.aclosing(stream):
            async for row in stream:
                size_bytes += len(row[0] or "")
                if size_bytes > MOST_BYTES:
                    raise QueryTooLarge(limit_bytes=MOST_BYTES)
                rows.append(row[0])
                if len(rows) > most_rows:
                    break
        told = {
            view: {"lsn": lsn, "epoch": epoch, "at": at.isoformat(), **({"tentative": tentative} if tentative else {})}
            for view, lsn, epoch, at, tentative in reached
        }
        return Answer(tuple(rows[:most_rows]), len(rows) > most_rows, told)

    async def _opened(self) -> Pool:
        async with self._opening:
            if self._pool is None:
                url = await self.url()
                await self._check(url)
                self._pool = Pool(url, CONNECTIONS, STATEMENT_MS, f"-c search_path={_option(self._reading.schema)}")
            return self._pool

    async def url(self) -> str:
        """Of a role that may read; on a server of the project's own it is made."""
        if self._settings.views_read.url is not None:
            return self._settings.views_read.url.reveal()
        if self._settings.views.url is not None:
            raise QueryUnsafe(reason="the view store is yours, and its only URL may write", schema=self._reading.schema)
        role = f"{self._reading.schema}{READER}"
        owner = url_of(self._settings)
        with told(""):
            async with await psycopg.AsyncConnection.connect(owner, autocommit=True) as connection:
                try:
                    await self._make(connection, role)
                except psycopg.errors.InvalidSchemaName:
                    raise ViewUnfilled(view=", ".join(self._reading.views)) from None
        from psycopg.conninfo import make_conninfo

        return make_conninfo(owner, user=role)

    async def _make(self, connection: psycopg.AsyncConnection[Any], role: str) -> None:
        names = {"role": sql.Identifier(role), "schema": sql.Identifier(self._reading.schema)}
        with contextlib.suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            await connection.execute(sql.SQL("CREATE ROLE {role} LOGIN CONNECTION LIMIT 64").format(**names))
        for statement in (
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}",
        ):
            await connection.execute(sql.SQL(statement).format(**names))

    async def _check(self, url: str) -> None:
        """Whoever named the role may have named a mighty one."""
        schema = self._reading.schema
        with told(""):
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                row = await (await connection.execute(_RIGHTS, (schema, schema))).fetchone()
        assert row is not None
        reasons = ("is a mighty one", "is a member of others", "may write views", "may read other tables too")
        for has, reason in zip(row, reasons, strict=True):
            if has:
                raise QueryUnsafe(reason=f"the role of [views] read_url {reason}", schema=schema)


async def _anew(connection: psycopg.AsyncConnection[Any]) -> None:
    """Nothing of a query stays: no setting, no lock, no transaction."""
    with contextlib.suppress(psycopg.Error):
        if not connection.closed:
            await connection.rollback()
            await connection.execute("DISCARD ALL")
            return
    await connection.close()


def checked(text: str, views: tuple[str, ...]) -> tuple[str, ...]:
    """One SELECT, over views: which ones. Says more clearly what PostgreSQL would refuse anyway."""
    if len(text) > MOST_LETTERS:
        raise QueryRefused(reason=f"it has more than {MOST_LETTERS} letters")
    if _CODES.search(text):
        raise QueryRefused(reason="it has names or texts by the codes of their letters (U&)")
    try:
        statements = [each for each in sqlglot.parse(text, read="postgres") if each is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryRefused(reason=f"it cannot be read ({str(error).splitlines()[0][:200]})") from None
    if len(statements) != 1:
        raise QueryRefused(reason=f"it has {len(statements)} statements")
    statement = statements[0]
    if not isinstance(statement, exp.Query):
        raise QueryRefused(reason="it is not a SELECT")
    if text.rstrip().endswith(";"):
        raise QueryRefused(reason="it ends with a semicolon")
    own = {each.alias_or_name for each in statement.find_all(exp.CTE)}
    # What WITH names inside of parentheses is a table of PostgreSQL's outside of them.
    if named := next((name for name in own if name.lower().startswith("pg_")), None):
        raise QueryRefused(reason=f"{named} is a name of PostgreSQL's own tables")
    read = dict.fromkeys(table.name for table in statement.find_all(exp.Table) if table.name in views)
    for table in statement.find_all(exp.Table):
        plain = isinstance(table.this, exp.Identifier)
        if plain and (table.db or table.name not in (*views, *own)):
            raise QueryRefused(reason=f"{table.sql('postgres')} is none of the views {', '.join(views)}")
    for function in statement.find_all(exp.Func):
        name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
        if name.startswith(_REFUSED) or name.endswith(_REFUSED_ENDS):
            raise QueryRefused(reason=f"the function {name} is not for queries")
    return tuple(read)


def _option(name: str) -> str:
    """A schema's name inside PostgreSQL's `options`, where spaces and backslashes are escaped."""
    quoted = '"' + name.replace('"', '""') + '"'
    return quoted.replace("\\", "\\\\").replace(" ", "\\ ")
