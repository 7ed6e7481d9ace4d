"""`millrace capture …` and `millrace table …`, from the first look at a database to the end of its capture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.capture import capture
from tests.cli.shell import Shell
from tests.command import until
from tests.shop import Shop

pytestmark = pytest.mark.server

TABLES = """CREATE TABLE customers (id int PRIMARY KEY, email text, born date, phone text);
INSERT INTO customers VALUES (1, 'ada@example.com', '1815-12-10', '1'), (2, NULL, NULL, '2');
CREATE TABLE orders (id int PRIMARY KEY, note text); INSERT INTO orders VALUES (7, 'first')"""


@pytest.fixture
def shell(
    shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Shell:
    monkeypatch.chdir(shop.settings.folder)
    return Shell(folder, monkeypatch, capfdbinary)


def rows(shell: Shell, table: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in shell.fine("table", "read", table).lines]


def test_a_capture_from_the_first_look_to_its_end(shop: Shop, shell: Shell) -> None:
    shop.run(TABLES)
    refused = shell("capture", "check", shop.name, "customers", "--mask", "customers.born")
    assert refused.code == 1
    assert "mask names it, and it is no text" in refused.text
    assert shell("capture", "status", shop.name).code == 1
    assert "MR-CAPTURE-UNKNOWN" in shell("capture", "remove", shop.name).err

    options = ["--mask", "customers.email", "--exclude", "customers.phone", "--partitions", "3", "--history", "1 day"]
    shell.fine("capture", "add", shop.name, "customers", *options)
    until(lambda: len(rows(shell, f"{shop.name}.customers")) == 2, "the snapshot")
    assert rows(shell, f"{shop.name}.customers")[0] == {"id": 1, "email": "********", "born": "1815-12-10"}
    topic = f"{shop.name}.public.customers"
    assert not [record for record in shop.captures.log.read(topic) if b"ada@" in (record.value or b"")]

    # What a later command leaves out stays as it was.
    before = shop.captures.get(shop.name).capture
    shell.fine("capture", "add", shop.name, "customers", "orders")
    assert shop.captures.get(shop.name).capture == replace(before, tables=("customers", "orders"))
    assert shell("capture", "add", shop.name, "orders", "--partitions", "8").code == 1
    until(lambda: len(rows(shell, f"{shop.name}.orders")) == 1, "the table that was added")
    listed = shell.fine("capture", "list", "--json").json
    assert {row["table"] for row in listed if row["capture"] == shop.name} == {"public.customers", "public.orders"}

    until(lambda: shell.fine("capture", "status", shop.name, "--json").json[0]["state"] == "running", "the start")
    assert f'millrace_capture_records{{capture="{shop.name}"' in shell.fine("capture", "status", "--metrics").text
    assert f"{shop.name}: running" in shell.fine("capture", "status", shop.name).err

    # A table that was changed while nobody read it.
    shell.fine("capture", "pause", shop.name)
    shop.run("ALTER TABLE orders ADD COLUMN paid boolean", "INSERT INTO orders VALUES (8, 'second', true)")
    shell.fine("capture", "resume", shop.name)
    until(lambda: {row.get("paid") for row in rows(shell, f"{shop.name}.orders")} == {None, True}, "the new column")
    assert "MR-USAGE-INVALID" in shell("table", "read", f"{shop.name}.orders", "--follow").err
    changes = [json.loads(line) for line in shell.fine("table", "read", f"{shop.name}.orders", "--changes").lines]
    assert [(change["op"], change["after"]["id"]) for change in changes] == [("r", 7), ("c", 8)]

    shell.fine("capture", "remove", shop.name, "--topics")
    assert not shop.captures.log.topics.exists(topic)
    assert shop.run("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


def test_stages_that_share_a_database_do_not_share_a_slot() -> None:
    plain = capture("shop", ["orders"])
    assert plain.slot_name == "millrace_shop"
    assert replace(plain, prefix="team-a").slot_name == "millrace_team_a_shop"
    assert replace(plain, prefix="team-a", slot="made_by_dba").slot_name == "made_by_dba"
