"""What captures of MariaDB and MySQL say and ask for, as far as that goes without a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from millrace.capture import capture, failures, mysql_connector, mysql_position
from millrace.capture.database import parsed
from millrace.capture.mysql import spark_type
from millrace.capture.mysql_position import Binlog
from millrace.config import Settings

URL = "mysql://me:secret@example.org:3307/shop"


def config(options: str = "", *, is_mariadb: bool = True, **choices: Any) -> Mapping[str, str]:
    made = capture("shop", ["orders", "stock.a-b,c"], **choices)
    names = ["shop.orders", "stock.a-b,c"]
    address, settings = parsed("shop", URL + options), Settings(Path("/here"), prefix="dev")
    return mysql_connector.config(made, names, address, "${dir:x:y}", settings, "kafka:9092", is_mariadb=is_mariadb)


def test_only_statements_that_name_a_captured_table_are_parsed() -> None:
    skipped = re.compile(config()["internal.schema.history.internal.ddl.filter"], re.IGNORECASE | re.DOTALL)
    for statement in (
        "ALTER TABLE `Orders` ADD x int",
        "RENAME TABLE x TO\norders",
        "alter database shop character set latin1",
        "DROP TABLE stock.`a-b,c`",
        "CREATE TABLE millrace_capture.signal (id int)",
    ):
        assert not skipped.fullmatch(statement), statement
    for statement in ("CREATE TABLE other (at inet6)", "CREATE USER x", "CREATE VIEW a AS\nSELECT 1"):
        assert skipped.fullmatch(statement), statement


def test_the_connector_is_told_no_password_and_is_a_replica_of_its_own() -> None:
    maria, my = (
        config(),
        config("?sslmode=verify-full", is_mariadb=False, exclude=["orders.note"], mask=["stock.x.name"]),
    )
    assert "secret" not in str(maria)
    assert maria["database.password"] == "${dir:x:y}"
    assert maria["schema.history.internal.kafka.topic"] == "dev._millrace.schemas.shop"
    assert (maria["connector.class"], my["connector.class"]) == (mysql_connector.MARIADB, mysql_connector.MYSQL)
    assert (maria.get("database.ssl.mode"), my["database.ssl.mode"]) == (None, "verify_identity")
    assert maria["table.include.list"] == r"shop\.orders,stock\.a-b\x2Cc"
    assert my["column.exclude.list"] == r"shop\.orders\.note"
    numbers = {mysql_connector.server_id(capture(name, ["t"]), Settings(Path("/here"))) for name in ("a", "b", "c")}
    assert len(numbers) == 3
    assert all(0 < number < 2**32 for number in numbers)


@pytest.mark.parametrize(
    ("kind", "spark"),
    [
        ("tinyint(1)", "tinyint"),
        ("tinyint(3) unsigned", "smallint"),
        ("int(8) unsigned zerofill", "bigint"),
        ("bigint(20) unsigned", "decimal(20,0)"),
        ("decimal(38,10)", "decimal(38,10)"),
        ("decimal(39,0)", "string"),
        ("bit(1)", "boolean"),
        ("bit(2)", "string"),
        ("timestamp(6)", "timestamp"),
        ("datetime", "timestamp_ntz"),
        ("time", "string"),
        ("year(4)", "int"),
        ("varbinary(3)", "binary"),
        ("geometry", "string"),
        ("enum('int','date')", "string"),
    ],
)
def test_a_columns_spark_type(kind: str, spark: str) -> None:
    base = re.split(r"[( ]", kind)[0]
    digits = [int(number) for number in re.findall(r"\d+", kind)] if base == "decimal" else [None, None]
    assert spark_type({"base": base, "type": kind, "precision": digits[0], "scale": digits[1]}) == spark


def test_how_far_behind_a_position_is() -> None:
    binlog = Binlog({"b.8": 100, "b.9": 1_000, "b.10": 70}, "b.10", 60)
    assert binlog.behind_bytes("b.10", 20) == 40
    assert binlog.behind_bytes("b.8", 90) == 10 + 1_000 + 60
    assert binlog.behind_bytes("b.7", 4) is None


@pytest.mark.parametrize(
    ("begins", "ends", "captured", "lost"),
    [
        ("0-1-5,7-1-2", "0-1-9,7-1-2", "0-1-5,7-2-2", None),
        ("", "0-1-9", "0-1-9", None),
        ("0-1-6", "0-1-9", "0-1-5", "purged"),
        ("", "0-1-9", "0-1-10", "set back"),
    ],
)
def test_when_a_position_is_lost(begins: str, ends: str, captured: str, lost: str | None) -> None:
    found = mysql_position.gap_of_numbers(begins, ends, captured)
    assert found is None if lost is None else lost in (found or "")


def test_when_a_position_in_a_file_is_lost() -> None:
    binlog = Binlog({"b.1": 50}, "b.1", 50)
    assert mysql_position.gap_of_files(binlog, "b.1", 50) is None
    assert "purged b.0" in (mysql_position.gap_of_files(binlog, "b.0", 50) or "")
    assert "set back" in (mysql_position.gap_of_files(binlog, "b.1", 51) or "")


def test_a_purged_binlog_is_known_by_what_the_server_says() -> None:
    said = "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old"
    trace = f"Caused by: com.github.shyiko.mysql.binlog.network.ServerException: {said}"
    assert failures.slot_lost(trace)
    assert not failures.slot_lost("java.sql.SQLException: Access denied for user 'me'@'here'")
