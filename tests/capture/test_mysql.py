"""Captures of a real MariaDB: the same promises as for PostgreSQL, kept on a binlog."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pymysql
import pytest

from millrace import local
from millrace.capture import Captures, capture, tables
from millrace.capture.check import Finding
from millrace.capture.reading import decoded
from millrace.capture.status import status
from millrace.config import Database, Secret, Settings
from millrace.errors import CaptureRefused, DatabaseUnreachable, SlotLost
from millrace.log import Record
from tests import debian
from tests.command import until

pytestmark = pytest.mark.server

USER, CANARY = "capturer", "canary/4711@x"


@dataclass(frozen=True)
class Maria:
    """A database `name` on the server; `run` executes statements in it as its administrator, each by itself."""

    name: str
    settings: Settings
    seen: dict[str, dict[int, list[Record]]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def captures(self) -> Captures:
        return Captures(self.settings)

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        at = urlsplit(local.address(self.settings, "mariadb"))
        where = {"host": at.hostname, "port": at.port, "user": at.username, "charset": "utf8mb4"}
        return pymysql.connect(**where, database=self.name, autocommit=True, **options)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def check(self, *names: str) -> tuple[Finding, ...]:
        return self.captures.check(capture(self.name, names, database="maria"))

    def add(self, *names: str) -> None:
        self.captures.add(capture(self.name, names, database="maria"))

    def changes(self, table: str) -> list[tuple[Any, str | None, Any]]:
        """Key, op and row of what the topic holds, by key in order; op None is a tombstone."""
        topic, log = f"{self.name}.{self.name}.{table}", self.captures.log
        partitions = self.seen.setdefault(topic, {})
        for number, (first, end) in log.topics.offsets(topic).items():
            known = partitions.setdefault(number, [])
            begin = known[-1].offset + 1 if known else first
            known += log.read(topic, begin, partition=number) if begin < end else ()
        found = []
        for record in (record for records in partitions.values() for record in records):
            envelope = json.loads(record.value) if record.value is not None else {}
            found.append((json.loads(record.key or b"null"), envelope.get("op"), envelope.get("after")))
        return found

    def now(self, table: str) -> dict[Any, Any]:
        log = self.captures.log
        _, known = tables.find(log, f"{self.name}.{table}")
        return {tuple(row[name] for name in known.key): row for row in tables.rows(log, known)}

    def kill(self, server: str) -> None:
        (pid,) = (each.pid for each in local.status(self.settings) if each.server == server)
        victim = psutil.Process(pid)
        victim.kill()
        victim.wait(30)


@pytest.fixture(scope="module")
def maria(settings: Settings, connect: str) -> Iterator[Maria]:
    debian.require(Path("/usr/sbin/mariadbd"), "mariadb-server-core", "mariadb-client-core")
    at = urlsplit(local.up(settings, ("mariadb",))["mariadb"])
    # As a person would write it, escaped.
    password = "".join(f"%{byte:02X}" for byte in CANARY.encode())
    url = f"mariadb://{USER}:{password}@{at.hostname}:{at.port}/river"
    yield Maria("river", replace(settings, databases={"maria": Database("maria", Secret("databases.maria.url", url))}))
    local.down(settings, ("mariadb",))


@pytest.fixture
def river(maria: Maria) -> Iterator[Maria]:
    """An empty database, and a user who may do what a capture needs."""
    root = replace(maria, name="millrace")
    everything = "SELECT, RELOAD, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT"
    root.run(
        "CREATE DATABASE river CHARACTER SET utf8mb4",
        f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{CANARY}'",
        f"GRANT {everything} ON *.* TO {USER}@'127.0.0.1'",
        f"GRANT CREATE, INSERT, DELETE ON millrace_capture.* TO {USER}@'127.0.0.1'",
    )
    found = replace(maria, seen={})
    yield found
    if found.name in found.captures.all():
        found.captures.remove(found.name, topics=True)
    root.run("DROP DATABASE river", f"DROP USER {USER}@'127.0.0.1'", "DROP DATABASE IF EXISTS millrace_capture")


def those(findings: tuple[Finding, ...], level: str) -> list[Finding]:
    return [finding for finding in findings if finding.level == level]


def test_check_says_what_is_wrong_and_the_sql_that_mends_it(river: Maria) -> None:
    river.run(
        "CREATE TABLE good (id int PRIMARY KEY)",
        "CREATE TABLE keyless (n int)",
        "CREATE TABLE old (id int PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE address (id int PRIMARY KEY, at inet6)",
        "CREATE VIEW seen AS SELECT * FROM good",
    )
    names = "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_expire_logs_seconds", "gtid_strict_mode"
    wrong = dict(zip(names, ("'MIXED'", "'MINIMAL'", "'MINIMAL'", "3600", "OFF"), strict=True))
    (before,) = river.run(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in (*names, 'sql_mode'))}")
    try:
        river.run(
            f"REVOKE ALL PRIVILEGES, GRANT OPTION FROM {USER}@'127.0.0.1'", f"GRANT USAGE ON *.* TO {USER}@'127.0.0.1'"
        )
        river.run(*(f"SET GLOBAL {name} = {value}" for name, value in wrong.items()))
        with pytest.raises(DatabaseUnreachable, match="denied"):
            river.check("good")
        river.run(f"GRANT SHOW VIEW ON river.* TO {USER}@'127.0.0.1'")
        findings = river.check("good", "keyless", "old", "address")
        user = f"'{USER}'@'127.0.0.1'"
        assert {finding.subject for finding in those(findings, "error")} >= {"binlog_format", "binlog_row_image", user}
        assert {finding.subject for finding in those(findings, "warning")} >= {names[2], names[3], names[4], "sql_mode"}
        for _ in range(3):  # what may be read is only seen once it may be
            for finding in (each for each in findings if each.sql and each.level != "ok"):
                river.run(*(line for line in (finding.sql or "").split(";\n") if line.strip("; \n")))
            findings = river.check("good", "keyless", "old", "address")
        assert [(finding.subject, finding.what) for finding in findings if finding.level != "ok"] == [
            ("column river.address.at", "it is inet6")
        ]
        told = {finding.subject: finding.what for finding in river.check("seen", "goood")}
        assert told["table river.seen"] == "it is a view"
        assert "did you mean 'river.good'" in told["table river.goood"]
        with pytest.raises(CaptureRefused, match="inet6"):
            river.add("good", "address")
    finally:
        sets = (f"SET GLOBAL {name} = {value!r}" for name, value in zip((*names, "sql_mode"), before, strict=True))
        river.run(*(each.replace("'1'", "1").replace("'0'", "0") for each in sets))


# Type, two values, and the server's own words for what a topic has to hold (None: it as text).
KINDS: tuple[tuple[str, str, str, str | None], ...] = (
    ("tinyint", "-128", "127", None),
    ("tinyint unsigned", "0", "255", None),
    ("boolean", "true", "false", None),
    ("smallint unsigned", "65535", "1", None),
    ("mediumint", "-8388608", "8388607", None),
    ("mediumint unsigned zerofill", "16777215", "7", "{0} + 0"),
    ("int unsigned", "4294967295", "2147483648", None),
    ("bigint", "-9223372036854775808", "9223372036854775807", None),
    ("bigint unsigned", "18446744073709551615", "9223372036854775808", None),
    ("decimal(12,2)", "-1234567890.10", "0", None),
    ("decimal(65,30)", f"{'9' * 35}.{'9' * 30}", "0.000000000000000000000000000001", None),
    ("float", "1.1", "-3.4e38", None),
    ("double", "1.7976931348623157e308", "5e-324", None),
    ("bit(1)", "b'1'", "b'0'", "IF({0}, 'true', 'false')"),
    ("bit(10)", "b'1000000011'", "b'1'", "LPAD(BIN({0}), 10, '0')"),
    ("bit(64)", "b'10'", "~0", "LPAD(BIN({0}), 64, '0')"),
    ("date", "'1582-10-10'", "'9999-12-31'", None),
    ("date NOT NULL", "'0001-01-01'", "'0000-00-00'", "IF({0} = 0, 'null', {0})"),
    ("datetime", "'1582-10-10 01:02:03'", "'2024-03-31 02:30:00'", "REPLACE({0}, ' ', 'T')"),
    ("datetime(6)", "'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "REPLACE({0}, ' ', 'T')"),
    (
        "datetime(3) NOT NULL",
        "'2024-02-29 12:34:56.789'",
        "'0000-00-00'",
        "IF({0} = 0, 'null', REPLACE({0}, ' ', 'T'))",
    ),
    ("timestamp NULL", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "CONCAT(REPLACE({0}, ' ', 'T'), 'Z')"),
    (
        "timestamp(6) NULL",
        "'2024-10-27 01:30:00.123456'",
        "'0000-00-00'",
        "IF({0} = 0, 'null', CONCAT(REPLACE({0}, ' ', 'T'), 'Z'))",
    ),
    ("time", "'-838:59:59'", "'12:00:00'", None),
    ("time(6)", "'838:59:59.999999'", "'-00:00:00.000001'", None),
    ("year", "2155", "0", "{0} + 0"),
    ("char(5)", "'ab'", "''", None),
    ("varchar(50)", "'é😀𝒳\\0'", "' kept '", None),
    ("varchar(20) CHARACTER SET latin1", "'ä€'", "'ß'", "CONVERT({0} USING utf8mb4)"),
    ("longtext", "REPEAT('ü', 70000)", "'\\n\\t\\\\\"'", None),
    ("binary(4)", "x'00ff10'", "x'00000000'", "REPLACE(TO_BASE64({0}), '\\n', '')"),
    ("blob", "REPEAT(x'deadbeef', 100)", "''", "REPLACE(TO_BASE64({0}), '\\n', '')"),
    ("enum('a','b,c','d''e','ü')", "'b,c'", "'ü'", None),
    ("set('x','y','z')", "'x,z'", "''", None),
    ("json", '\'{"a": 1.10, "b": [null]}\'', "'7'", None),
    ("uuid", "'12345678-1234-1234-1234-123456789abc'", "'00000000-0000-0000-0000-000000000001'", None),
    ("geometry", "ST_GeomFromText('LINESTRING(1 2,3 4)', 4326)", "POINT(1, 2)", "TO_BASE64(ST_AsWKB({0}))"),
    ("int DEFAULT 5", "NULL", "6", "COALESCE({0}, 'null')"),
)


def written(kind: str, value: Any) -> str:
    """What a topic holds, in the words of the server."""
    if isinstance(value, dict):
        return str(value["wkb"])
    if isinstance(value, str):
        return value
    if kind in ("float", "double"):
        return str(float(value))
    return json.dumps(value)


def the_servers(kind: str, text: str) -> str:
    if kind in ("float", "double"):
        return str(float(text))
    if kind.startswith(("datetime", "timestamp")) and "." in text:  # as many digits as there are
        return text.removesuffix("Z").rstrip("0") + ("Z" if text.endswith("Z") else "")
    return text


def test_every_type_is_in_the_topic_as_the_server_has_it(river: Maria) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(KINDS))
    generated = "twice int GENERATED ALWAYS AS (id * 2) STORED, half int GENERATED ALWAYS AS (id DIV 2) VIRTUAL"
    names = ", ".join(f"c{number}" for number in range(len(KINDS)))
    river.run("SET sql_mode = ''", f"CREATE TABLE kinds (id int PRIMARY KEY, {columns}, {generated})")

    def insert(first: int) -> None:
        rows = [", ".join((str(first + which), *(kind[1 + which] for kind in KINDS))) for which in (0, 1)]
        made = [f"INSERT INTO kinds (id, {names}) VALUES ({row})" for row in rows]
        river.run("SET sql_mode = ''", "SET time_zone = '+00:00'", *made)

    river.run("SET GLOBAL time_zone = '+05:30'")
    try:
        insert(1)
        river.add("kinds")
        until(lambda: len(river.changes("kinds")) == 2, "the snapshot")
        insert(3)
        until(lambda: len(river.changes("kinds")) == 4, "the stream")
    finally:
        river.run("SET GLOBAL time_zone = 'SYSTEM'")
    found = {key["id"]: (op, row) for key, op, row in river.changes("kinds")}
    assert [found[number][0] for number in (1, 2, 3, 4)] == ["r", "r", "c", "c"]
    asked = [(how or "CAST({0} AS CHAR)").format(f"c{number}") for number, (_, _, _, how) in enumerate(KINDS)]
    for number in (1, 2, 3, 4):
        (said,) = river.run("SET time_zone = '+00:00'", f"SELECT {', '.join(asked)} FROM kinds WHERE id = {number}")
        row = found[number][1]
        for place, (kind, *_) in enumerate(KINDS):
            held = written(kind, row[f"c{place}"])
            assert held == the_servers(kind, str(said[place])), f"{kind} of row {number}: {held[:100]}"
        assert (row["twice"], row["half"]) == (number * 2, number // 2)
    known = river.captures.get("river").tables["river.kinds"]
    python = decoded(known, json.dumps(found[3][1]))
    by_kind = {kind: python[f"c{place}"] for place, (kind, *_) in enumerate(KINDS)}
    assert by_kind["bigint unsigned"] == 2**64 - 1
    assert by_kind["binary(4)"] == b"\x00\xff\x10\x00"
    assert by_kind["date"].isoformat() == "1582-10-10"
    assert by_kind["datetime(6)"] == datetime(1000, 1, 1, 0, 0, 0, 1)


def test_changes_arrive_once_and_in_order_whatever_is_killed(river: Maria) -> None:
    river.run(
        "CREATE TABLE boats (id int PRIMARY KEY, name varchar(20))", "INSERT INTO boats VALUES (1, 'Ada'), (2, 'Bob')"
    )
    river.run("CREATE TABLE ports (id int PRIMARY KEY, n bigint)", "INSERT INTO ports VALUES (7, 7)")
    river.add("boats")
    until(lambda: len(river.changes("boats")) == 2, "the snapshot")
    with river.connect() as connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute("INSERT INTO boats VALUES (3, 'Cid')")
        cursor.execute("UPDATE boats SET name = 'Ada L.' WHERE id = 1")
        cursor.execute("UPDATE boats SET id = 20 WHERE id = 2")
        cursor.execute("DELETE FROM boats WHERE id = 3")
        connection.commit()
        connection.begin()
        cursor.execute("INSERT INTO boats VALUES (4, 'never')")
        connection.rollback()
    until(lambda: len(river.changes("boats")) == 9, "the changes")
    by_key: dict[int, list[Any]] = {number: [] for number in (1, 2, 3, 20)}
    for key, op, row in river.changes("boats"):
        by_key[key["id"]].append((op, row and row["name"]))
    assert by_key == {
        1: [("r", "Ada"), ("u", "Ada L.")],
        2: [("r", "Bob"), ("d", None), (None, None)],
        3: [("c", "Cid"), ("d", None), (None, None)],
        20: [("c", "Bob")],
    }
    log = river.captures.log
    assert log.topics.config("river.river.boats")["cleanup.policy"] == "compact"
    assert log.topics.config("_millrace.schemas.river")["retention.ms"] == "-1"

    # A column, a table that is added later, and one of a type that Debezium does not understand and nobody captures.
    river.run(
        "CREATE TABLE strange (id int PRIMARY KEY, at inet6)", "ALTER TABLE boats ADD COLUMN crew INTEGER UNSIGNED"
    )
    river.run("INSERT INTO boats VALUES (5, 'Eve', 4294967295)", "INSERT INTO strange VALUES (1, '::1')")
    until(lambda: any(key == {"id": 5} for key, *_ in river.changes("boats")), "a row of the new shape")
    (change,) = river.captures.refresh("river").values()
    assert [("crew" in word, "added" in word) for word in change.words] == [(True, True)]
    assert [river.now("boats")[(number,)]["crew"] for number in (1, 5)] == [None, 4294967295]
    river.add("boats", "ports")
    river.run("INSERT INTO ports VALUES (8, 8)")
    until(lambda: set(river.now("ports")) == {(7,), (8,)}, "the table that was added")

    # Changes, each with a number of its own, while the server and then the worker die.
    numbers = iter(range(100, 1_000_000))
    committed: list[int] = []

    def work(transactions: int) -> None:
        with river.connect() as connection, connection.cursor() as cursor:
            for transaction in range(transactions):
                connection.begin()
                made = [next(numbers) for _ in range(1 + 7 * transaction)]
                for number in made:
                    how = "DELETE FROM ports WHERE id = %s" if number % 5 == 0 else "REPLACE INTO ports VALUES (%s, %s)"
                    cursor.execute(how, (number % 50,) if number % 5 == 0 else (number % 50, number))
                connection.commit()
                committed.extend(number for number in made if number % 5)

    for victim in ("mariadb", "connect"):
        work(12)
        river.kill(victim)
        local.up(river.settings, ("kafka", "connect", "mariadb"))
        work(4)

    def captured() -> Counter[int]:
        return Counter(row["n"] for _, op, row in river.changes("ports") if op in ("c", "u"))

    until(lambda: committed[-1] in captured(), "the last change", limit_s=120)
    final = {(number,): row for number, row in river.run("SELECT id, n FROM ports")}
    until(lambda: {key: row["n"] for key, row in river.now("ports").items()} == final, "the table as it is now")
    times = captured()
    assert [number for number in committed if times[number] != 1] == []
    operations = Counter(op for _, op, _ in river.changes("ports"))
    assert operations["d"] == operations[None]

    told = status(river.captures, "river", 0)
    assert (told.state, told.error) == ("running", None)
    river.run("TRUNCATE TABLE ports")
    until(lambda: "truncated" in (status(river.captures, "river", 0).error or ""), "a word about the truncated table")
    assert "4711" not in json.dumps(river.captures.connect.config("river"))
    assert not [record for record in log.read("_connect-config") if b"4711" in (record.value or b"")]


def test_a_purged_binlog_is_said_loudly_and_the_capture_begins_anew(river: Maria) -> None:
    river.run("CREATE TABLE boats (id int PRIMARY KEY, name text)", "INSERT INTO boats VALUES (1, 'Ada')")
    river.add("boats")
    until(lambda: len(river.changes("boats")) == 1, "the snapshot")
    captures = river.captures
    captures.connect.stop("river")
    until(lambda: captures.connect.state("river")[0] == "STOPPED", "the end of the task")
    river.run("INSERT INTO boats VALUES (2, 'missed')", "FLUSH BINARY LOGS")
    assert status(captures, "river", 0).state == "stopped"
    newest = river.run("SHOW MASTER STATUS")[0][0]

    def purged() -> bool:  # MariaDB leaves a log that a connection may still read, as the connector's did
        river.run(f"PURGE BINARY LOGS TO '{newest}'")
        return bool(river.run("SHOW BINARY LOGS")[0][0] == newest)

    until(purged, "the purge")
    river.run("INSERT INTO boats VALUES (3, 'later')")
    told = status(captures, "river", 0)
    assert (told.state, "purged" in (told.error or "")) == ("lost", True)
    with pytest.raises(SlotLost, match="purged"):
        captures.resume("river")
    assert len(river.changes("boats")) == 1  # nothing was skipped
    captures.start_over("river")
    until(lambda: set(river.now("boats")) == {(1,), (2,), (3,)}, "reading anew")
    river.run("ALTER TABLE boats ADD COLUMN crew int", "INSERT INTO boats VALUES (4, 'after', 1)")
    until(lambda: any(key == {"id": 4} for key, *_ in river.changes("boats")), "going on")
