"""`capture check` for MariaDB and MySQL: everything that could keep a capture from being true, each with the SQL that
mends it. Changes nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from millrace.capture import mysql
from millrace.capture.check.finding import Finding, Findings, error, listed, ok, size, warning
from millrace.capture.database import Address
from millrace.capture.definition import Capture
from millrace.capture.mysql import Database, Table, quoted
from millrace.config import Settings
from millrace.errors import DatabaseRefused, nearest

OLDEST_MARIADB, OLDEST_MYSQL = (10, 5), (8, 0)
DAY_S = 86_400
# Types whose definition Debezium's parser does not understand, so that it could not read any row of the table.
UNKNOWN = ("inet4", "inet6", "vector", "xmltype")
_GRANT = re.compile(r"GRANT (?P<what>.+?) ON (?P<where>\S+) TO ")


@dataclass(frozen=True)
class Look:
    """What the checks ask of a server, asked once."""

    database: Database
    address: Address
    capture: Capture
    settings: Settings

    @cached_property
    def variables(self) -> Mapping[str, str]:
        return self.database.variables()

    @cached_property
    def grants(self) -> dict[str, set[str]]:
        """The rights of the user and of its active roles: for `*.*`, `db`.*, `db`.`table`."""
        found: dict[str, set[str]] = {}
        for row in self.database.rows("SHOW GRANTS"):
            if match := _GRANT.match(next(iter(row.values()))):
                rights = {right.strip().upper() for right in re.sub(r"\([^)]*\)", "", match["what"]).split(",")}
                found.setdefault(match["where"], set()).update(rights)
        return found

    def may(self, *rights: str, on: str = "*.*") -> bool:
        """Whether one of the rights is granted, on all or on a database."""
        granted = self.grants.get("*.*", set()) | (self.grants.get(on, set()) if on != "*.*" else set())
        return bool(granted & {"ALL PRIVILEGES", "ALL", "SUPER", *rights})

    @cached_property
    def user(self) -> str:
        row = self.database.row("SELECT CURRENT_USER() AS user") or {}
        name, _, host = str(row["user"]).rpartition("@")
        return f"{self.database.text(name)}@{self.database.text(host)}"

    def grant(self, rights: str, on: str) -> str:
        return f"GRANT {rights} ON {on} TO {self.user};"


def check(database: Database, address: Address, capture: Capture, settings: Settings) -> tuple[Finding, ...]:
    look = Look(database, address, capture, settings)
    found = mysql.tables(database)
    names = [mysql.qualified(name, address.database) for name in capture.tables]
    findings = [*_definition(look, names), *_server(look), *_rights(look, found)]
    for name in dict.fromkeys(names):
        findings += _table(look, found[name]) if name in found else [_unknown(name, found)]
    return tuple(findings)


def _definition(look: Look, names: list[str]) -> Findings:
    capture = look.capture
    for option in ("publication", "slot", "failover"):
        if getattr(capture, option):
            yield error(f"capture {capture.name}", f"it names a {option}", "only PostgreSQL has that: leave it out")
    if look.settings.kafka.options:
        why = "the connector keeps the history of tables in Kafka by itself, and can be given no secrets for it yet"
        yield error("Kafka", "it needs a login or a certificate", why)
    for name, count in Counter(names).items():
        if count > 1:
            yield error(f"table {name}", "it is named twice", "once with its database and once without: name it once")
    topics: dict[str, str] = {}
    for name in dict.fromkeys(names):
        other = topics.setdefault(capture.topic(name), name)
        if other != name:
            why = "what a topic's name cannot hold becomes _, and both names become the same: rename one of the tables"
            yield error(f"table {name}", f"its topic would be that of {other}", why)
    for option, columns in (("exclude", capture.exclude), ("mask", capture.mask)):
        for column in columns:
            table = mysql.qualified(column.rpartition(".")[0], look.address.database)
            if table not in names:
                why = f"{option} names columns of tables that are captured: {listed(names)}"
                yield error(f"column {column}", f"{table} is not captured{nearest(table, names)}", why)


def _server(look: Look) -> Findings:
    kind, oldest = ("MariaDB", OLDEST_MARIADB) if look.database.is_mariadb else ("MySQL", OLDEST_MYSQL)
    version = ".".join(map(str, look.database.version))
    if look.database.version < oldest:
        yield error("server", f"it is {kind} {version}", f"the oldest that is read is {'.'.join(map(str, oldest))}")
    else:
        yield ok("server", f"{kind} {version}")
    yield from _binlog(look)
    yield from _gtid(look)
    yield from _kept(look)
    modes = look.variables.get("sql_mode", "")
    if "NO_ZERO_DATE" not in modes or "NO_ZERO_IN_DATE" not in modes:
        why = "it has no counterpart and is captured as null: whether it was one or NULL cannot be told afterwards"
        script = "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',NO_ZERO_DATE,NO_ZERO_IN_DATE');"
        yield warning("sql_mode", "dates like 0000-00-00 are allowed", why, script)


def _binlog(look: Look) -> Findings:
    settings = look.variables
    restart = "in the server's configuration, then restart it"
    if settings.get("log_bin") != "ON":
        yield error("log_bin", "the server writes no binlog", f"changes are read from it: write log_bin {restart}")
        return
    if settings.get("server_id") == "0":
        why = "a server without a number has no replicas, which the connector is"
        yield error("server_id", "it is 0", why, "SET GLOBAL server_id = 1;")
    if settings.get("log_slave_updates", settings.get("log_replica_updates")) == "OFF" and _is_replica(look):
        why = f"what it gets from its primary is not in its own binlog: write log_slave_updates=ON {restart}"
        yield error("log_slave_updates", "it is OFF, and the server is a replica", why)
    wanted = (
        ("binlog_format", "ROW", "error", "statements do not say which rows they changed"),
        ("binlog_row_image", "FULL", "error", "rows would come with only some of their columns"),
        (
            "binlog_row_metadata",
            "FULL",
            "warning",
            "with it, columns added while a capture was away are known for sure",
        ),
    )
    for name, value, level, why in wanted:
        if name in settings and settings[name].upper() != value:
            later = "; sessions that are connected keep the former value until they connect again"
            script = f"SET GLOBAL {name} = {value};"
            yield (error if level == "error" else warning)(name, f"it is {settings[name]}", why + later, script)
    yield ok("log_bin", "the server writes a binlog", "changes are read from it")


def _is_replica(look: Look) -> bool:
    try:
        renamed = not look.database.is_mariadb
        return bool(look.database.rows("SHOW REPLICA STATUS" if renamed else "SHOW SLAVE STATUS"))
    except DatabaseRefused:
        return False


def _gtid(look: Look) -> Findings:
    if look.database.is_mariadb:
        if look.variables.get("gtid_strict_mode") != "ON":
            why = "numbers of transactions may repeat, and a capture could not go on after a failover to a replica"
            yield warning("gtid_strict_mode", "it is OFF", why, "SET GLOBAL gtid_strict_mode = ON;")
    elif look.variables.get("gtid_mode") != "ON":
        why = "without it a capture cannot go on after a failover to a replica, whose binlog has other positions"
        steps = ("WARN", "ON"), ("OFF_PERMISSIVE",), ("ON_PERMISSIVE",), ("ON",)
        script = [f"SET GLOBAL enforce_gtid_consistency = {word};" for word in steps[0]]
        script += [f"SET GLOBAL gtid_mode = {word};" for (word,) in steps[1:]]
        yield warning("gtid_mode", f"it is {look.variables.get('gtid_mode')}", why, "\n".join(script))


def _kept(look: Look) -> Findings:
    """For how long the server keeps what a capture that stands still has not read yet."""
    name = "binlog_expire_logs_seconds"
    kept_s = float(look.variables.get(name) or 0)
    if not kept_s:
        kept_s = float(look.variables.get("expire_logs_days") or 0) * DAY_S
    if kept_s == 0:
        yield ok(name, "binlogs are kept until somebody deletes them", "mind the disk")
    elif kept_s < DAY_S:
        why = "a capture that is away for longer than that has lost changes, and has to read its tables again"
        yield warning(name, f"binlogs are kept for {kept_s / 3600:.1f} hours", why, f"SET GLOBAL {name} = {7 * DAY_S};")
    else:
        yield ok(name, f"binlogs are kept for {kept_s / DAY_S:.1f} days", "a capture may be away for that long")


def _rights(look: Look, found: Mapping[str, Table]) -> Findings:
    if not look.may("REPLICATION SLAVE"):
        why = "that is how changes are read"
        yield error(look.user, "it may not read the binlog", why, look.grant("REPLICATION SLAVE", "*.*"))
    if not look.may("REPLICATION CLIENT", "BINLOG MONITOR", "REPLICATION MASTER ADMIN"):
        why = "that is how a capture knows where it stands"
        yield error(look.user, "it may not ask for positions", why, look.grant("REPLICATION CLIENT", "*.*"))
    databases = {mysql.qualified(name, look.address.database).partition(".")[0] for name in look.capture.tables}
    if not look.may("RELOAD", "FLUSH_TABLES") and not all(
        look.may("LOCK TABLES", on=f"{quoted(name)}.*") for name in databases
    ):
        why = "a snapshot locks tables for the moment in which it reads its position"
        yield error(look.user, "it may neither flush nor lock tables", why, look.grant("RELOAD, LOCK TABLES", "*.*"))
    own, signal = look.capture.own_schema, mysql.own_table(look.capture)
    scope = f"{quoted(own)}.*"
    if signal not in found and not look.may("CREATE", on=scope):
        made = ";\n".join(mysql.statements(look.capture, found))
        rights = look.grant("SELECT, INSERT, DELETE", scope)
        why = "tables are read again, and added, by rows that are written into it"
        yield error(f"table {signal}", "it is not there, and may not be made", why, f"{made};\n{rights}")
    elif not (look.may("INSERT", on=scope) and look.may("DELETE", on=scope)) and not look.grants.get(quoted(signal)):
        yield error(
            f"table {signal}",
            "it may not be written",
            "tables are read again, and added, by rows in it",
            look.grant("SELECT, INSERT, DELETE", scope),
        )


def _table(look: Look, table: Table) -> Findings:
    subject = f"table {table.name}"
    if table.kind != "BASE TABLE":
        kind = "a view" if "VIEW" in table.kind else f"a {table.kind.lower()}"
        yield error(subject, f"it is {kind}", "only tables have changes of their own: capture the tables behind it")
        return
    try:
        look.database.rows(f"SELECT 1 FROM {quoted(table.name)} LIMIT 0")  # noqa: S608 - quoted
    except DatabaseRefused:
        yield error(
            subject, f"{look.user} may not read it", "a snapshot does", look.grant("SELECT", quoted(table.name))
        )
        return
    columns = mysql.columns(look.database, table.name)
    key = mysql.key(look.database, table.name)
    if not key:
        taken = {column["name"].lower() for column in columns}
        fresh = next(name for name in ("id", "row_id", "millrace_id") if name not in taken)
        script = f"ALTER TABLE {quoted(table.name)} ADD COLUMN {quoted(fresh)} bigint AUTO_INCREMENT PRIMARY KEY;"
        why = "a topic is keyed: rows that cannot be told apart cannot be updated or deleted in it"
        yield error(subject, "it has no primary key", why, script)
    if (table.engine or "").upper() not in ("INNODB", "ROCKSDB"):
        why = "a snapshot of it is not of one moment, and a change of it that fails half-way is half captured"
        script = f"ALTER TABLE {quoted(table.name)} ENGINE = InnoDB;"
        yield warning(subject, f"its engine {table.engine} knows no transactions", why, script)
    yield from _columns(look, table.name, columns, key)
    yield ok(subject, f"about {table.rows:,} rows, {size(table.size)} for the snapshot to read")


def _columns(look: Look, table: str, columns: list[dict[str, Any]], key: tuple[str, ...]) -> Findings:
    known = [column["name"] for column in columns]
    for option, chosen in (("exclude", look.capture.exclude), ("mask", look.capture.mask)):
        for name in sorted(mysql.named(chosen, table, look.address.database)):
            subject = f"column {table}.{name}"
            if name not in known:
                yield error(subject, f"there is no such column{nearest(name, known)}", f"{option} names it")
            elif name in key:
                why = f"the topic is keyed by ({', '.join(key)}): take it out of {option}"
                yield error(subject, f"{option} names it, and it is part of the key", why)
            elif option == "mask" and not any(c["name"] == name and _is_text(c["base"]) for c in columns):
                yield error(subject, "mask names it, and it is no text", "only texts can be masked: exclude it instead")
    for column in columns:
        if column["base"].lower() in UNKNOWN:
            why = "the connector does not understand that type, and so no row of the table: leave the table out"
            yield error(f"column {table}.{column['name']}", f"it is {column['type']}", why)


def _is_text(base: str) -> bool:
    return base.lower().endswith(("char", "text"))


def _unknown(name: str, found: Mapping[str, Table]) -> Finding:
    why = "names are as in the server, capitals included; a table of another database is written database.table"
    return error(f"table {name}", f"there is no such table{nearest(name, found)}", why)
