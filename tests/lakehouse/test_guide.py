"""docs/guide/lakehouse.md as it stands there: from PostgreSQL to a time-travel query; and every version against the
topic, folded up to where that version had read."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.cli import main
from millrace.lakehouse import Catalog, moments
from millrace.lakehouse.asking import connected
from millrace.lakehouse.table import Note
from millrace.views.changelog import lsn_number
from tests.command import until
from tests.engine.items import once
from tests.shop import Shop
from tests.test_guide import GUIDE, blocks

pytestmark = [pytest.mark.spark, pytest.mark.server]

TABLE = "CREATE TABLE orders (id bigint PRIMARY KEY, status text, amount numeric(12, 2))"


def queries() -> list[str]:
    text = (GUIDE / "lakehouse.md").read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    return [line for line in lines if line.startswith("millrace lake")]


@pytest.mark.turn(0, 2)
def test_from_postgres_to_a_time_travel_query(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("millrace.config.load", lambda: shop.settings)
    table = f"orders_{shop.name}"

    def said(words: str, **changed: str) -> str:
        for old, new in {"FROM orders": f"FROM {table}", "history orders": f"history {table}", **changed}.items():
            words = words.replace(old, new)
        assert main(shlex.split(words)[1:]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    names: dict[str, Any] = {}
    block, *_ = blocks("lakehouse.md")
    exec(block.replace('"shop"', f'"{shop.name}"').replace('mr.lake("orders")', f'mr.lake("{table}")'), names)
    summed, history, now, version, lsn = queries()

    shop.run(TABLE, "INSERT INTO orders SELECT n, 'new', n FROM generate_series(1, 5) n")
    from millrace.capture import capture

    shop.captures.add(capture(shop.name, ["orders"]))
    states = []
    for number, change in enumerate(
        ("", "UPDATE orders SET status = 'paid' WHERE id <= 2", "DELETE FROM orders WHERE id = 2")
    ):
        if change:
            shop.run(change)
        (place,) = shop.run("SELECT pg_current_wal_lsn()::text")[0]
        shop.run(f"INSERT INTO orders VALUES ({100 + number}, 'end', 0)")
        until(lambda key=100 + number: key in _keys(shop), "the capture")
        states.append((place, _rows(shop)))
        once(spark, shop.settings, names["app"])

    assert re.search(r"new +3 +12\.00", said(summed))
    assert re.search(r"\d+ +20\S+ +\S+ +(write|append|overwrite) +\d+ +\S*orders up to 0:\d+ 1:\d+", said(history))
    assert "no rows" in said(now)
    (first, *_) = _versions(shop, table)
    assert re.search(r"2 +new +2\.00", said(version, **{"--version 1": f"--version {first}"}))
    for place, status in ((states[0][0], "new"), (states[1][0], "paid")):
        for told in (place, str(lsn_number(place))):
            assert re.search(rf"2 +{status}", said(lsn, **{"$lsn": told}))
    beyond = lsn.replace("FROM orders", f"FROM {table}").replace("$lsn", "FFFFFF/0")
    assert main(shlex.split(beyond)[1:]) == 1
    assert "so far it reaches up to LSN" in capsys.readouterr().err
    with Catalog(shop.settings).opened(table) as opened, connected() as connection:
        known = [each for each in opened.versions() if each.note is not None]
        assert len(known) >= 3
        for each in known:
            rows = connection.sql(f"SELECT id, status, amount FROM {opened.scan(each)}").fetchall()
            assert each.note is not None
            assert {row[0]: row[1:] for row in rows} == _folded(shop, each.note), each
        assert {row[0]: row[1:] for row in rows} == states[-1][1]


def _keys(shop: Shop) -> set[int]:
    return {json.loads(record.key or b"{}")["id"] for record in shop.captures.log.read(f"{shop.name}.public.orders")}


def _rows(shop: Shop) -> dict[int, Any]:
    return {row[0]: row[1:] for row in shop.run("SELECT id, status, amount FROM orders")}


def _versions(shop: Shop, table: str) -> list[int]:
    with Catalog(shop.settings).opened(table) as opened:
        return [each.number for each in opened.versions() if each.note is not None]


def _folded(shop: Shop, note: Note) -> dict[int, Any]:
    """The table by its topic, up to the offsets of an epoch."""
    from decimal import Decimal

    found: dict[int, Any] = {}
    ends = moments.read_by(note)
    for record in shop.captures.log.read(f"{shop.name}.public.orders"):
        if record.offset >= ends[record.partition]:
            continue
        key, value = json.loads(record.key or b"{}")["id"], record.json()
        after = None if value is None else value["after"]
        if after is None:
            found.pop(key, None)
        else:
            found[key] = (after["status"], Decimal(str(after["amount"])))
    return found
