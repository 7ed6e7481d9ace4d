"""PostgreSQL: rows are staged by the tasks in parallel, then one transaction merges them and writes the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from millrace.config import Settings
from millrace.errors import (
    MillraceError,
    OptionInvalid,
    SinkColumnUnfit,
    SinkFailed,
    SinkKeyUnknown,
    SinkTableUnfit,
    SinkUnreachable,
    caller,
    nearest,
)
from millrace.sinks.contract import Feed, Guarantee, Sink, Writer, sink_name

if TYPE_CHECKING:
    import psycopg

    from millrace.sinks.rebuilding import Rebuilding, Site

CONNECT_S = 5
DATABASE = "millrace"


def postgres(
    table: str,
    *,
    key: str | Sequence[str] | None = None,
    database: str = DATABASE,
    name: str | None = None,
) -> Postgres:
    """Writes to a table of PostgreSQL (`orders`, or `sales.orders`) in the database that millrace.toml calls
    `database`; without any [databases] there, in one of the project's own server.

    With a `key`, and always for a captured table, it holds the last row of each key: rows are inserted, updated and
    deleted. Without, every row of a stream is inserted. The table is made if it is not there; later, columns that came
    are added and types that grew are widened. What else does not fit is refused before anything is written, and a row
    that the server refuses (a constraint, a text too long) goes to the dead letters.

    Guarantee: exactly once. Tasks stage an epoch's rows by COPY; one transaction then merges them and writes the
    epoch into `millrace_ledger` beside the table.
    """
    where = caller()
    keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if not isinstance(table, str) or not all(table.split(".")) or len(table.split(".")) > len(("schema", "table")):
        remedy = 'name a table, "orders" or "sales.orders"'
        raise OptionInvalid(name="mr.postgres", option="table", given=table, remedy=remedy, where=where)
    if not all(isinstance(each, str) and each for each in keys) or (key is not None and not keys):
        remedy = "name a column, or a list of columns"
        raise OptionInvalid(name="mr.postgres", option="key", given=key, remedy=remedy, where=where)
    return Postgres(sink_name("postgres", table, name), where, keys, table=table, database=database)


@dataclass(frozen=True, eq=False)
class Postgres(Sink):
    kind: ClassVar[str] = "postgres"
    guarantee: ClassVar[Guarantee] = "exactly once"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "either"

    table: str = field(kw_only=True)
    database: str = field(kw_only=True)

    def check(self, feed: Feed) -> None:
        from millrace.sinks.postgres_types import postgres_type

        for column in feed.key:
            if column not in feed.columns.names:
                hint, known = nearest(column, feed.columns.names), ", ".join(feed.columns.names)
                raise SinkKeyUnknown(sink=self.name, key=column, hint=hint, known=known, where=self.where)
        for each in feed.columns.fields:
            if postgres_type(each.dataType) is None:
                reason = f"PostgreSQL has no type for {each.dataType.simpleString()}"
                raise SinkColumnUnfit(
                    sink=self.name, column=each.name, reason=reason, remedy="cast it to another type", where=self.where
                )

    def servers(self, settings: Settings) -> tuple[str, ...]:
        return () if settings.databases else ("postgres",)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:  # noqa: ARG002 -- the contract
        from millrace.sinks.postgres_writer import PostgresWriter

        return PostgresWriter(self, self._url(settings), flow, feed)

    def rebuilding(self, site: Site) -> Rebuilding:
        from millrace.sinks.postgres_rebuild import PostgresRebuilding

        return PostgresRebuilding(self, self._url(site.settings), site)

    def _url(self, settings: Settings) -> str:
        if settings.databases:
            return settings.database(self.database).url.reveal()
        from millrace import local  # not on top: the tasks' workers import this file, and need no servers

        return local.address(settings, "postgres").rpartition("/")[0] + f"/{self.database}"


@contextlib.contextmanager
def connected(sink: Sink, url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection for as long as this lasts, whose errors are ours."""
    with told(sink), connect(url) as connection:
        yield connection


def connect(url: str) -> psycopg.Connection[Any]:
    import psycopg

    # A server that is gone without a word is noticed by the system, not after hours.
    alive: Any = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
    # What Spark's rows are written in, whatever the database keeps.
    alive["client_encoding"] = "utf8"
    return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S, application_name="millrace", **alive)


@contextlib.contextmanager
def told(sink: Sink) -> Iterator[None]:
    import psycopg

    try:
        yield
    except MillraceError:
        raise
    except psycopg.ProgrammingError as error:  # a right, a schema or a table that is missing
        raise SinkTableUnfit(
            sink=sink.name, table=getattr(sink, "table", ""), reason=sentence(error), where=sink.where
        ) from None
    except psycopg.Error as error:
        # What the server says has a state; one that is gone says nothing, or that it is shutting down (57P).
        away = isinstance(error, psycopg.OperationalError) and (error.sqlstate or "57P").startswith(("08", "57P"))
        kind = SinkUnreachable if away else SinkFailed
        raise kind(sink=sink.name, reason=sentence(error), where=sink.where) from None


def sentence(error: psycopg.Error) -> str:
    """The server's own, which never holds the URL; a connection that failed says where, without the password."""
    said = error.diag.message_primary or (str(error).strip().splitlines() or [type(error).__name__])[0]
    return said + (f": {error.diag.message_detail}" if error.diag.message_detail else "")
