"""`millrace lake` as a person runs it, over a table that is there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyarrow import parquet

from millrace import config
from millrace.cli import main
from millrace.lakehouse import Catalog, Committed, Note
from tests.lakehouse.filled import COLUMNS, epoch, file_of


@pytest.fixture
def orders(folder: Path) -> Path:
    table = Catalog(config.load(folder)).table("orders", "delta")
    table.create(COLUMNS, ())
    first = file_of(table, range(3))
    epoch(table, 0, [first])
    epoch(table, 1, [file_of(table, [0, 7])], [first])
    epoch(table, 2, [file_of(table, [8])])
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["lake", *words]) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_tables_and_their_history(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = json.loads(said(capsys, "list", "--json"))
    assert (row["table"], row["format"], row["rows"], row["files"], row["epoch"]) == ("orders", "delta", 3, 2, 2)
    assert "orders" in said(capsys, "list")
    told = json.loads(said(capsys, "describe", "orders", "--json"))
    assert told["columns"]["amount"] == "decimal(12,2)"
    assert (told["flow"], told["small_files"], told["holds"]) == ("flow", 2, {"shop.orders": {"0": 30, "1": 30}})
    assert (told["compaction_debt_files"], told["history_bytes"] > 0) == (0, True)
    assert "shop.orders up to 0:30 1:30" in said(capsys, "describe", "orders")
    versions = json.loads(said(capsys, "history", "orders", "--json"))
    assert [(each["version"], each["epoch"]) for each in versions] == [(3, 2), (2, 1), (1, 0), (0, None)]
    assert "shop.orders up to 0:20 1:20" in said(capsys, "history", "orders")
    assert "did you mean 'orders'" in said(capsys, "history", "order", code=1)
    assert json.loads(said(capsys, "compact", "orders", "--json"))["files"] == 2
    assert "no files to write together; 0 files" in said(capsys, "compact", "orders", "--keep", "2 hours")
    assert "less than an hour" in said(capsys, "compact", "orders", "--keep", "5 minutes", code=1)


def test_queries_and_how_they_are_answered(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT id, amount, placed, [id] AS ids FROM orders ORDER BY id"
    table = said(capsys, "query", query)
    assert "7.00" in table
    assert "2026-01-01T12:00:00+00:00" in table
    first, *_ = map(json.loads, said(capsys, "query", query, "--format", "json").splitlines())
    assert first == {"id": 0, "amount": "0.00", "placed": "2026-01-01T12:00:00+00:00", "ids": [0]}
    assert said(capsys, "query", query, "--format", "csv").splitlines()[:2] == [
        "id,amount,placed,ids",
        "0,0.00,2026-01-01T12:00:00+00:00,[0]",
    ]
    out = orders / "out.parquet"
    assert not said(capsys, "query", query, "--format", "parquet", "--out", str(out))
    assert parquet.read_table(out).column("id").to_pylist() == [0, 7, 8]
    assert "name it with --out" in said(capsys, "query", query, "--format", "parquet", code=1)
    said(capsys, "query", query, "--format", "csv", "--out", str(orders / "out.csv"))
    assert (orders / "out.csv").read_text().count("\n") == 4

    count = "SELECT list(id ORDER BY id) AS ids FROM orders"
    for words, ids in (
        (("--version", "1"), [0, 1, 2]),
        (("--offset", "0:9"), [0, 1, 2]),
        (("--offset", "10"), [0, 7]),
        (("--offset", "shop.orders:1:10"), [0, 7]),
        (("--time", "2999-01-01"), [0, 7, 8]),
        (("--time", "0 seconds ago"), [0, 7, 8]),
    ):
        assert json.loads(said(capsys, "query", count, "--format", "json", *words)) == {"ids": ids}
    for words, reason in (
        (("--offset", "x:1"), "is no offset"),
        (("--offset", "300"), "offset 300: none holds that much"),
        (("--offset", "shop.items:0:1"), "orders holds records of shop.orders: say of which"),
        (("--time", "12"), "is no time"),
        (("--lsn", "zero"), "is no LSN"),
        (("--version", "9"), "it has 0 to 3"),
    ):
        assert reason in said(capsys, "query", count, *words, code=1)
    assert "reads no table of the lake" in said(capsys, "query", "SELECT 1", "--version", "1", code=1)
    odd = (
        "SELECT 'nan'::double AS a, ['-inf'::double, 0.5] AS b, {'c': 'inf'::double} AS d, "
        "map {'e': 'nan'::double} AS f"
    )
    told = json.loads(said(capsys, "query", odd, "--format", "json"), parse_constant=pytest.fail)
    assert told == {"a": "NaN", "b": ["-Infinity", 0.5], "d": {"c": "Infinity"}, "f": [["e", "NaN"]]}
    assert main(["lake", "query", count, "--version", "1"]) == 0
    assert "orders: version 1 of 20" in capsys.readouterr().err
    assert "it is no query" in said(capsys, "query", "DELETE FROM orders", code=1)


def test_names_are_found_however_they_are_spelt(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT count(*) AS n FROM ORDERS, orders AS o"
    for words, n in (((), 9), (("--version", "3"), 9), (("--version", "0"), 0)):
        assert json.loads(said(capsys, "query", query, "--format", "json", *words)) == {"n": n}
    catalog = Catalog(config.load(orders))
    for name in ("Items", "items"):
        catalog.table(name, "delta").create(COLUMNS, ())
    assert json.loads(said(capsys, "query", "SELECT count(*) AS n FROM Items", "--format", "json")) == {"n": 0}
    assert "ITEMS does not exist" in said(capsys, "query", "SELECT * FROM ITEMS", code=1)


def test_of_several_topics_one_is_named(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Catalog(config.load(orders)).table("joined", "delta")
    table.create(COLUMNS, ())
    for number in range(2):
        first = 10 * number
        ranges = json.dumps([{"left": {"0": [first, first + 10]}}, {"right": {"0": [2 * first, 2 * first + 20]}}])
        table.commit(Committed(Note("flow", number, ranges, f"flow/{number}"), [file_of(table, [number])]))
    query = "SELECT count(*) AS n FROM joined"
    for offset, n in (("left:0:9", 1), ("left:0:12", 2), ("right:0:12", 1), ("right:0:20", 2)):
        assert json.loads(said(capsys, "query", query, "--format", "json", "--offset", offset)) == {"n": n}
    reason = "joined holds records of left and right: say of which with --offset TOPIC:0:12"
    assert reason in said(capsys, "query", query, "--offset", "12", code=1)


def test_what_python_has_no_value_for(
    orders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's infinity and its years, a difference of times, bytes, and times without a zone, wherever we are."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    query = (
        "SELECT DATE 'infinity' AS until, TIMESTAMP '12000-01-01 00:00:01' AS far, "
        "TIMESTAMP '2026-01-01 12:00' AS noon, INTERVAL '90 seconds' AS lasts, "
        "sum(id) AS whole, 'text'::BLOB AS told, '\\xFF'::BLOB AS raw FROM orders"
    )
    try:
        found = json.loads(said(capsys, "query", query, "--format", "json"))
        lines = said(capsys, "query", query, "--format", "csv").splitlines()
        shown = said(capsys, "query", query)
    finally:
        monkeypatch.undo()
        time.tzset()
    times = {"until": "infinity", "far": "+12000-01-01T00:00:01", "noon": "2026-01-01T12:00:00", "lasts": "00:01:30"}
    assert found == {**times, "whole": 15, "told": "dGV4dA==", "raw": "/w=="}
    assert lines == [",".join(found), ",".join(map(str, found.values()))]
    assert shown.split()[-7:] == [*times.values(), "15", "text", "/w=="]


def test_columns_of_the_same_name(orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT a.id, b.id, b.id / 7 AS share FROM orders a, orders b WHERE a.id = 0 AND b.id = 8"
    shown = orders / "out.txt"
    assert not said(capsys, "query", query, "--out", str(shown))
    assert shown.read_text().split()[-3:] == ["0", "8", "1.1428571428571428"], "a table is a format as well"
    assert said(capsys, "query", query, "--format", "csv").splitlines() == ["id,id,share", "0,8,1.1428571428571428"]
    for kind in ("json", "parquet"):
        out = orders / f"out.{kind}"
        reason = f"'id' is the name of two columns, and {kind} needs a name for each"
        assert reason in said(capsys, "query", query, "--format", kind, "--out", str(out), code=1)
        assert not out.exists()
    other = "SELECT 1 AS id, 2 AS ID"
    assert json.loads(said(capsys, "query", other, "--format", "json")) == {"id": 1, "ID": 2}
    assert "'ID' is the name" in said(capsys, "query", other, "--format", "parquet", "--out", "x", code=1)
    assert "no rows" in said(capsys, "query", "SELECT id FROM orders WHERE false")
    assert "[red]" in said(capsys, "query", 'SELECT id AS "[red]" FROM orders')
    for out in (orders, orders / "none" / "out.csv"):
        assert "name a file in a folder that is there" in said(capsys, "query", other, "--out", str(out), code=1)


def test_a_table_that_cannot_be_looked_at_is_listed_with_the_reason(
    orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An Iceberg table whose catalog is away, and a log that nobody can read, beside one that is well."""
    (orders / "millrace.toml").write_text('[lake]\ncatalog = "postgresql://127.0.0.1:1/x"\n')
    (orders / "lake" / "far" / "metadata").mkdir(parents=True)
    (orders / "lake" / "odd" / "_delta_log").mkdir(parents=True)
    (orders / "lake" / "odd" / "_delta_log" / f"{0:020}.json").write_text("no log\n")
    found = {row["table"]: row for row in json.loads(said(capsys, "list", "--json"))}
    assert found["orders"]["rows"] == 3
    assert "error" not in found["orders"]
    assert found["far"]["format"] == "iceberg"
    assert found["far"]["error"].startswith("MR-LAKE-CATALOG-UNREACHABLE")
    assert found["odd"]["error"]
    shown = said(capsys, "list")
    assert "orders" in shown
    assert "does not answer" in shown


def test_an_empty_lake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no tables; a flow with a sink mr.lake" in said(capsys, "list")
