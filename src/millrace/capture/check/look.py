"""One look at a database: whatever checks ask of it, they ask through here, inside one read-only transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from millrace.capture.definition import Capture

# Features that come with a version; the numbers are as in `server_version_num`.
COLUMN_LISTS, FAILOVER, GENERATED = 150_000, 170_000, 180_000

_SETTINGS = """
SELECT name, setting, coalesce(unit, '') AS unit FROM pg_catalog.pg_settings WHERE name IN (
    'server_version', 'server_version_num', 'wal_level', 'max_replication_slots', 'max_wal_senders',
    'max_slot_wal_keep_size', 'wal_sender_timeout', 'idle_replication_slot_timeout', 'synchronized_standby_slots',
    'statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout',
    'default_transaction_read_only')
"""
_ROLE = """
SELECT rolname AS name, rolsuper AS superuser, rolreplication AS replication,
       current_database() AS database, has_database_privilege(current_database(), 'CREATE') AS may_create,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_activity, pg_is_in_recovery() AS standby
FROM pg_catalog.pg_roles WHERE rolname = current_user
"""
_LENGTH_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LENGTH_BYTES = {"B": 1, "kB": 1024, "8kB": 8192, "MB": 1024**2, "GB": 1024**3}


@dataclass(frozen=True)
class Settings:
    """The server's settings as this role's sessions have them: name -> (value, unit)."""

    values: Mapping[str, tuple[str, str]]

    def text(self, name: str) -> str | None:
        """None where this version of the server has no such setting."""
        return self.values[name][0] if name in self.values else None

    def number(self, name: str) -> int:
        return int(self.values[name][0])

    def length_ms(self, name: str) -> int:
        """0, which switches most of them off, where this version has no such setting."""
        value, unit = self.values.get(name, ("0", "ms"))
        return int(value) * _LENGTH_MS[unit]

    def size_bytes(self, name: str) -> int | None:
        """None: without limit."""
        value, unit = self.values[name]
        return None if int(value) < 0 else int(value) * _LENGTH_BYTES[unit]

    @property
    def version(self) -> int:
        return self.number("server_version_num")


@dataclass(frozen=True)
class Service:
    """A managed PostgreSQL, known by its administrators' role. There is no ALTER SYSTEM on it: settings are made in
    `place`. `logical` switches logical decoding on; `replication`, if it has one, is the role that may replicate."""

    name: str
    role: str
    place: str
    logical: str
    replication: str | None = None


SERVICES = (
    Service("Amazon RDS", "rds_superuser", "its parameter group", "rds.logical_replication = 1", "rds_replication"),
    Service("Cloud SQL", "cloudsqlsuperuser", "its database flags", "cloudsql.logical_decoding = on"),
    Service("AlloyDB", "alloydbsuperuser", "its database flags", "alloydb.logical_decoding = on"),
    Service(
        "Azure Database for PostgreSQL",
        "azure_pg_admin",
        "its server parameters",
        "wal_level = logical (on the former single server: azure.replication_support = logical)",
    ),
)


class Look:
    def __init__(self, connection: psycopg.Connection[Any], capture: Capture) -> None:
        self.connection, self.capture = connection, capture

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, parameters or None).fetchall()

    def row(self, query: str, *parameters: object) -> dict[str, Any] | None:
        return next(iter(self.rows(query, *parameters)), None)

    def script(self, *statements: sql.Composable) -> str:
        return "\n".join(statement.as_string(self.connection) + ";" for statement in statements)

    @cached_property
    def settings(self) -> Settings:
        return Settings({row["name"]: (row["setting"], row["unit"]) for row in self.rows(_SETTINGS)})

    @cached_property
    def role(self) -> dict[str, Any]:
        (found,) = self.rows(_ROLE)
        return found

    @cached_property
    def service(self) -> Service | None:
        roles = {row["rolname"] for row in self.rows("SELECT rolname FROM pg_catalog.pg_roles")}
        return next((service for service in SERVICES if service.role in roles), None)

    @property
    def to_role(self) -> sql.Identifier:
        return sql.Identifier(self.role["name"])


def columns_of(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
