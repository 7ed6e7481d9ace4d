"""A capture of MariaDB or MySQL as the configuration of a Debezium connector. Says why wherever it differs from the
defaults; what both kinds of databases have in common is in `connector`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from millrace.capture import connector, mysql, mysql_history
from millrace.capture.connector import pattern
from millrace.capture.database import Address
from millrace.capture.definition import Capture
from millrace.config import Settings

MARIADB = "millrace.capture.MariadbCapture"
MYSQL = "millrace.capture.MysqlCapture"
# How soon a connection that ended without a word is noticed; an idle server sends a sign of life a bit more often.
KEEP_ALIVE_MS = 10_000
# How soon the connector tries again after the server went away.
AGAIN_MS = 1_000

# PostgreSQL's words for it, which Millrace's URLs use for all databases.
_SSL_MARIADB = {"disable": "disable", "require": "trust", "verify-ca": "verify-ca", "verify-full": "verify-full"}
_SSL_MYSQL = {
    "disable": "disabled",
    "prefer": "preferred",
    "require": "required",
    "verify-ca": "verify_ca",
    "verify-full": "verify_identity",
}


def config(
    capture: Capture,
    tables: Sequence[str],
    address: Address,
    password: str | None,
    settings: Settings,
    bootstrap: str,
    *,
    is_mariadb: bool,
) -> dict[str, str]:
    """`tables` are whole names; `password` is a reference that the worker resolves; `bootstrap` is Kafka as the worker
    reaches it."""
    signal = mysql.own_table(capture)
    databases = dict.fromkeys(name.partition(".")[0] for name in (*tables, signal))
    made = {
        **connector.common(capture, settings),
        "connector.class": MARIADB if is_mariadb else MYSQL,
        "database.hostname": address.host,
        "database.port": str(address.port),
        "database.user": address.user,
        "database.server.id": str(server_id(capture, settings)),
        "database.include.list": ",".join(map(pattern, databases)),
        "table.include.list": ",".join(map(pattern, tables)),
        "connect.keep.alive.interval.ms": str(KEEP_ALIVE_MS),
        "retriable.restart.connector.wait.ms": str(AGAIN_MS),
        # A lock for the moment in which the position is read; rows are read afterwards, from a consistent snapshot.
        "snapshot.locking.mode": "minimal",
        "signal.data.collection": signal,
        "signal.enabled.channels": "source",
        "incremental.snapshot.watermarking.strategy": "insert_delete",  # the other leaves its marks in the table
        "skipped.operations": "none",  # the default leaves out truncates
        "include.schema.changes": "false",
        **_history(capture, tables, settings, bootstrap),
        # Exact types: see docs/guide/capture.md.
        "bigint.unsigned.handling.mode": "precise",
        "key.converter.decimal.format": "NUMERIC",
        "value.converter.decimal.format": "NUMERIC",
        "enable.time.adjuster": "false",  # the year 70 is not 1970
        "converters": "exact",
        "exact.type": "millrace.capture.BinlogValues",
        "driver.yearIsDateType": "false",
    }
    if not is_mariadb:
        # With it MySQL's driver fetches in binary, and Debezium gets times and zero dates of that wrong.
        del made["snapshot.fetch.size"]
    mode = address.options.get("sslmode")
    if mode is not None and (known := (_SSL_MARIADB if is_mariadb else _SSL_MYSQL).get(mode)):
        made["database.ssl.mode"] = known
    made["database.password"] = password or ""
    for option, columns in (("column.exclude.list", capture.exclude), ("column.mask.with.8.chars", capture.mask)):
        if columns:
            made[option] = ",".join(pattern(mysql.qualified_column(name, address.database)) for name in columns)
    return made


def server_id(capture: Capture, settings: Settings) -> int:
    """Replicas, and the connector is one, know each other by such a number: the server ends the older of two."""
    return 1_000_000_000 + zlib.crc32(f"{settings.folder} {capture.outside(settings)}".encode()) % 1_000_000_000


def _history(capture: Capture, tables: Sequence[str], settings: Settings, bootstrap: str) -> dict[str, str]:
    names = dict.fromkeys(name.partition(".")[2] for name in (*tables, mysql.own_table(capture)))
    mentioned = "|".join(("DATABASE", "SCHEMA", *map(pattern, names)))
    prefix = "schema.history.internal"
    return {
        f"{prefix}.kafka.topic": settings.named(mysql_history.topic(capture)),
        f"{prefix}.kafka.bootstrap.servers": bootstrap,
        f"{prefix}.store.only.captured.tables.ddl": "true",
        f"{prefix}.store.only.captured.databases.ddl": "true",
        # What does not name a captured table is not even parsed: what the parser does not know would stop the capture.
        f"internal.{prefix}.ddl.filter": f"(?!.*(?:{mentioned})).*",
    }
