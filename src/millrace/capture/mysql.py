"""MariaDB and MySQL as captures see them: tables and their columns, the binlog, and the table of our own in them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

from millrace.capture.database import Address, CapturedTable, Column
from millrace.capture.definition import Capture
from millrace.errors import DatabaseRefused, DatabaseUnreachable, TableUnknown, nearest

CONNECT_S = 10
ANSWER_S = 60
SIGNAL = "signal"
# Databases of the server itself: what happens in them is not anybody's data.
SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")

_TABLES = """
SELECT CONCAT(t.table_schema, '.', t.table_name) AS name, t.table_type AS kind, t.engine AS engine,
       COALESCE(t.table_rows, 0) AS `rows`, COALESCE(t.data_length, 0) AS size
FROM information_schema.tables t WHERE t.table_schema NOT IN %s ORDER BY 1
"""
_COLUMNS = """
SELECT c.column_name AS name, c.column_type AS type, c.data_type AS base, c.is_nullable = 'YES' AS nullable,
       c.column_default AS preset, c.numeric_precision AS `precision`, c.numeric_scale AS scale, c.extra AS extra,
       c.character_set_name AS charset
FROM information_schema.columns c WHERE c.table_schema = %s AND c.table_name = %s ORDER BY c.ordinal_position
"""
_KEY = """
SELECT s.column_name AS name FROM information_schema.statistics s
WHERE s.table_schema = %s AND s.table_name = %s AND s.index_name = 'PRIMARY' ORDER BY s.seq_in_index
"""

_INTEGERS = {"tinyint": "tinyint", "smallint": "smallint", "mediumint": "int", "int": "int", "bigint": "bigint"}
_UNSIGNED = {
    "tinyint": "smallint",
    "smallint": "int",
    "mediumint": "int",
    "int": "bigint",
    "bigint": "decimal(20,0)",
}
_OTHERS = {
    "float": "float",
    "double": "double",
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "year": "int",
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"),
}
MOST_DIGITS = 38


@dataclass(frozen=True)
class Table:
    name: str
    kind: str
    engine: str | None
    rows: int
    size: int


class Database:
    """A connection, each statement its own transaction."""

    def __init__(self, name: str, connection: pymysql.Connection) -> None:
        self.name, self._connection = name, connection

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        with self._connection.cursor(DictCursor) as cursor:
            try:
                cursor.execute(statement, values or None)
            except pymysql.Error as error:
                first = " ".join(statement.split())[:200]
                raise DatabaseRefused(name=self.name, statement=first, reason=said(error)) from None
            return list(cursor.fetchall())

    def row(self, statement: str, *values: object) -> dict[str, Any] | None:
        return next(iter(self.rows(statement, *values)), None)

    def variables(self) -> Mapping[str, str]:
        """The server's global settings, by their names in small letters."""
        found = self.rows("SHOW GLOBAL VARIABLES")
        return {row["Variable_name"].lower(): row["Value"] for row in found}

    def text(self, value: str) -> str:
        """As a literal, for statements that are shown to a person."""
        return str(self._connection.escape(value))

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self._connection.get_server_info().lower()

    @property
    def version(self) -> tuple[int, ...]:
        # MariaDB up to 10 calls itself 5.5.5-10.11.6-MariaDB, so that old replicas do not stumble.
        found = re.search(r"(?:^5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", self._connection.get_server_info())
        return tuple(map(int, found.groups())) if found else ()


@contextlib.contextmanager
def connect(name: str, address: Address) -> Iterator[Database]:
    try:
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password or "",
            database=address.database,
            charset="utf8mb4",
            connect_timeout=CONNECT_S,
            read_timeout=ANSWER_S,
            write_timeout=ANSWER_S,
            program_name="millrace",
            autocommit=True,
            **_secured(address),
        )
    except (
        pymysql.Error,
        OSError,
        RuntimeError,
    ) as error:  # RuntimeError: a way to log in that needs a further package
        raise DatabaseUnreachable(name=name, address=address, reason=said(error)) from None
    try:
        yield Database(name, connection)
    finally:
        with contextlib.suppress(pymysql.Error):
            connection.close()


def _secured(address: Address) -> dict[str, Any]:
    """The words of PostgreSQL's URLs for the same: sslmode and sslrootcert."""
    mode = address.options.get("sslmode", "prefer")
    if mode == "disable":
        return {"ssl_disabled": True}
    if mode in ("verify-ca", "verify-full"):
        identity = mode == "verify-full"
        return {"ssl_ca": address.options.get("sslrootcert"), "ssl_verify_cert": True, "ssl_verify_identity": identity}
    return {"ssl_verify_cert": False} if mode == "require" else {}


def said(error: BaseException) -> str:
    """What the server said, without PyMySQL's number before it."""
    text = str(error.args[1] if len(error.args) > 1 else error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)[:300]


def quoted(name: str) -> str:
    """`database.table` for use in a statement."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split(".", 1))


def tables(database: Database) -> dict[str, Table]:
    rows = database.rows(_TABLES, SYSTEM)
    return {row["name"]: Table(**{**row, "rows": int(row["rows"]), "size": int(row["size"])}) for row in rows}


def chosen(database: Database, capture: Capture, default: str) -> list[Table]:
    """The tables that a capture names; `default` is the database of those that are named without one."""
    found = tables(database)
    names = [qualified(name, default) for name in capture.tables]
    for name in names:
        if name not in found:
            raise TableUnknown(table=name, database=capture.database, hint=nearest(name, found))
    return [found[name] for name in names]


def qualified(table: str, default: str) -> str:
    return table if "." in table else f"{default}.{table}"


def qualified_column(column: str, default: str) -> str:
    table, _, name = column.rpartition(".")
    return f"{qualified(table, default)}.{name}"


def columns(database: Database, table: str) -> list[dict[str, Any]]:
    return database.rows(_COLUMNS, *table.split(".", 1))


def key(database: Database, table: str) -> tuple[str, ...]:
    return tuple(row["name"] for row in database.rows(_KEY, *table.split(".", 1)))


def named(capture_columns: tuple[str, ...], table: str, default: str) -> set[str]:
    """Those of `table.column` that are columns of this table."""
    split = (column.rpartition(".") for column in capture_columns)
    return {column for of, _, column in split if qualified(of, default) == table}


def described(database: Database, capture: Capture, table: str, default: str) -> CapturedTable:
    """The table as readers will know it."""
    absent, masked = (named(names, table, default) for names in (capture.exclude, capture.mask))
    keyed = key(database, table)
    found = []
    for row in columns(database, table):
        if row["name"] in absent:
            continue
        spark = "string" if row["name"] in masked else spark_type(row)
        dated = (
            spark in ("date", "timestamp", "timestamp_ntz") and row["name"] not in keyed
        )  # a zero date comes as null
        # There is no lasting number of a column here, nor a way to know what older rows got for a default.
        found.append(
            Column(
                row["name"],
                row["type"],
                spark,
                nullable=bool(row["nullable"]) or dated,
                has_default=row["preset"] not in (None, "NULL") or not row["nullable"] or "GENERATED" in row["extra"],
            )
        )
    shape = tuple(column.name for column in found)
    return CapturedTable(table, capture.topic(table), keyed, tuple(found), (shape,))


def spark_type(row: Mapping[str, Any]) -> str:
    """The Spark type of a column (a row of `_COLUMNS`); what Spark has no type for is shown as text."""
    base, whole = row["base"].lower(), row["type"].lower()
    if base in _INTEGERS:
        return (_UNSIGNED if "unsigned" in whole or "zerofill" in whole else _INTEGERS)[base]
    if base == "decimal":
        fits = row["precision"] <= MOST_DIGITS
        return f"decimal({row['precision']},{row['scale']})" if fits else "string"
    if base == "bit":
        return "boolean" if whole == "bit(1)" else "string"
    return _OTHERS.get(base, "string")


def definition(database: Database, table: str) -> str:
    """The statement that makes the table."""
    found = database.row(f"SHOW CREATE TABLE {quoted(table)}") or {}
    return str(found["Create Table"])


def own_table(capture: Capture) -> str:
    return f"{capture.own_schema}.{SIGNAL}"


def statements(capture: Capture, existing: Mapping[str, Table]) -> list[str]:
    """What has to be made before the connector starts. There is no heartbeat table as in PostgreSQL: all that happens
    on the server is in the one binlog, so a table where nothing happens does not hold the capture back."""
    if own_table(capture) in existing:
        return []
    columns = "id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data mediumtext"
    return [
        f"CREATE DATABASE IF NOT EXISTS {quoted(capture.own_schema)}",
        f"CREATE TABLE IF NOT EXISTS {quoted(own_table(capture))} ({columns})",
    ]
