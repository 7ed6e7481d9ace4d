"""Captures on real servers: from a database to topics, through everything that a user does with them."""

from __future__ import annotations

import json
import threading
import urllib.request
import uuid
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from millrace.capture import Captures, capture, memory, tables, truncates
from millrace.capture.database import parsed
from millrace.capture.postgres_source import PostgresSource
from millrace.capture.status import status
from millrace.config import Database, Secret, Settings
from millrace.errors import CaptureChanged, CaptureInvalid, CaptureRefused, CaptureUnknown, PartitionsFixed, SlotLost
from tests.command import until
from tests.shop import Shop

pytestmark = pytest.mark.server

CUSTOMERS = "CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL)"
ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount numeric(12, 2))"


def changes(shop: Shop, table: str) -> list[tuple[Any, str | None, Any]]:
    """Key, op and row of what the topic holds; op None is a tombstone."""
    found = []
    for record in shop.captures.log.read(f"{shop.name}.public.{table}"):
        envelope = json.loads(record.value) if record.value is not None else {}
        found.append((json.loads(record.key or b"null"), envelope.get("op"), envelope.get("after")))
    return found


def now(shop: Shop, table: str) -> dict[Any, Any]:
    log = shop.captures.log
    _, known = tables.find(log, f"{shop.name}.{table}")
    return {tuple(row[name] for name in known.key): row for row in tables.rows(log, known)}


def test_a_database_that_has_moved_is_followed(shop: Shop) -> None:
    """As a local server does whose port was taken while it was down."""
    shop.run(CUSTOMERS, "INSERT INTO customers VALUES (1, 'Ada')")
    captures, wanted = shop.captures, capture(shop.name, ["customers"])
    outside, here = captures.outside(wanted), captures.source(wanted).address.host
    captures.add(wanted)
    until(lambda: len(changes(shop, "customers")) == 1, "the snapshot")
    config = captures.connect.config(outside)
    assert config is not None
    captures.connect.put(outside, {**config, "database.hostname": {"127.0.0.1": "localhost"}[here]})
    captures.ensure(wanted)
    assert captures.connect.config(outside) == config
    shop.run("INSERT INTO customers VALUES (2, 'Bob')")
    until(lambda: len(changes(shop, "customers")) == 2, "what was written afterwards")


def test_a_table_becomes_a_topic_and_stays_one(shop: Shop) -> None:
    shop.run(
        CUSTOMERS,
        ORDERS,
        "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Bob')",
        "INSERT INTO orders VALUES (7, 1, 9.5)",
    )
    captures = shop.captures
    captures.add(capture(shop.name, ["customers"], history="2 days"))
    until(lambda: len(changes(shop, "customers")) == 2, "the snapshot")

    with psycopg.connect(shop.url) as connection:  # one transaction
        connection.execute("INSERT INTO customers VALUES (3, 'Cid')")
        connection.execute("UPDATE customers SET name = 'Ada L.' WHERE id = 1")
        connection.execute("UPDATE customers SET id = 20 WHERE id = 2")
        connection.execute("DELETE FROM customers WHERE id = 3")
    until(lambda: len(changes(shop, "customers")) == 9, "the changes")
    by_key = {
        key: [(op, row) for found, op, row in changes(shop, "customers") if found["id"] == key] for key in (1, 2, 3, 20)
    }
    assert by_key == {
        1: [("r", {"id": 1, "name": "Ada"}), ("u", {"id": 1, "name": "Ada L."})],
        2: [("r", {"id": 2, "name": "Bob"}), ("d", None), (None, None)],
        3: [("c", {"id": 3, "name": "Cid"}), ("d", None), (None, None)],
        20: [("c", {"id": 20, "name": "Bob"})],
    }
    day_ms = 86_400_000
    config = captures.log.topics.config(f"{shop.name}.public.customers")
    assert config["cleanup.policy"] == "compact"
    assert int(config["min.compaction.lag.ms"]) == 2 * day_ms
    assert int(config["delete.retention.ms"]) == 32 * day_ms

    # A table that is added later is read while the first goes on.
    captures.add(capture(shop.name, ["customers", "orders"], history="2 days"))
    shop.run("INSERT INTO customers VALUES (4, 'Dee')", "INSERT INTO orders VALUES (8, 4, 0.10)")
    until(
        lambda: set(now(shop, "orders")) == {(7,), (8,)} and (4,) in now(shop, "customers"), "the table that was added"
    )
    assert len(changes(shop, "customers")) == 10  # nothing of it was read again
    assert str(now(shop, "orders")[(7,)]["amount"]) == "9.50"

    until(lambda: all(table.phase == "streaming" for table in status(captures, shop.name, 0).tables), "streaming")
    told = status(captures, shop.name, 0)
    assert (told.state, told.error) == ("running", None)
    assert None not in (told.position, told.behind_bytes, told.kept_bytes)

    captures.pause(shop.name)
    until(lambda: status(captures, shop.name, 0).state == "paused", "the pause")
    shop.run("INSERT INTO orders VALUES (9, 4, 1)")
    captures.resume(shop.name)
    until(lambda: (9,) in now(shop, "orders"), "going on")

    captures.remove(shop.name)
    assert shop.name not in captures.all()
    assert not shop.run(f"SELECT 1 FROM pg_replication_slots WHERE database = '{shop.name}'")
    assert not shop.run("SELECT 1 FROM pg_publication")
    assert captures.log.topics.exists(f"{shop.name}.public.orders")
    for table in ("customers", "orders"):
        captures.log.topics.delete(f"{shop.name}.public.{table}")


def test_a_slot_that_was_lost_is_said_loudly_and_repaired(shop: Shop) -> None:
    from millrace.capture.repair import repair_gap

    shop.run(CUSTOMERS, "INSERT INTO customers SELECT n, 'n' || n FROM generate_series(1, 20) n")
    captures = shop.captures
    captures.add(capture(shop.name, ["customers"]))
    until(lambda: len(now(shop, "customers")) == 20, "the snapshot")
    captures.connect.stop(shop.name)
    until(lambda: captures.connect.state(shop.name)[0] == "STOPPED", "the end of the task")
    slot = f"millrace_{shop.name}"
    until(
        lambda: not shop.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"),
        "a free slot",
    )
    # Somebody drops the slot, the table changes, and somebody makes the slot anew: nothing of that is in the log.
    shop.run(f"SELECT pg_drop_replication_slot('{slot}')")
    shop.run("DELETE FROM customers WHERE id = 5", "UPDATE customers SET name = 'changed' WHERE id = 6")
    assert "is gone" in (status(captures, shop.name, 0).error or "")
    shop.run(
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')", "INSERT INTO customers VALUES (21, 'late')"
    )
    told = status(captures, shop.name, 0)
    assert told.state == "lost"
    assert "made anew" in (told.error or "")
    with pytest.raises(SlotLost):
        captures.resume(shop.name)
    assert (21,) not in now(shop, "customers")

    list(repair_gap(captures, shop.name))
    until(lambda: (21,) in now(shop, "customers"), "the repair")
    found = now(shop, "customers")
    assert (5,) not in found
    assert (found[(6,)]["name"], len(found)) == ("changed", 20)


def test_what_was_interrupted_is_ended_and_what_was_not_sent_is_told(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millrace.capture.postgres_source import PostgresSource
    from millrace.capture.repair import repair_gap

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    shop.run(CUSTOMERS, ORDERS, "INSERT INTO customers VALUES (1, 'one')", "INSERT INTO orders VALUES (1, 1, 1)")
    captures = shop.captures
    captures.add(capture(shop.name, ["customers"]))
    until(lambda: len(now(shop, "customers")) == 1, "the snapshot")

    # Ended just before the connector would have been told to read the new table.
    with monkeypatch.context() as patched:
        patched.setattr(PostgresSource, "snapshot", die)
        with pytest.raises(KeyboardInterrupt):
            captures.add(capture(shop.name, ["customers", "orders"]))
    assert "not ended" in (status(captures, shop.name, 0).error or "")
    captures.resume(shop.name)
    until(lambda: len(now(shop, "orders")) == 1, "the table that was added")
    assert status(captures, shop.name, 0).error is None

    # What a publication lacks is not sent, and the connector does not notice.
    shop.run(f"ALTER PUBLICATION millrace_{shop.name} DROP TABLE customers", "DELETE FROM customers")
    assert "lacks public.customers" in (status(captures, shop.name, 0).error or "")
    with pytest.raises(SlotLost, match=r"lacks public\.customers"):
        captures.resume(shop.name)
    begun = repair_gap(captures, shop.name)
    next(begun)  # and is ended there
    begun.close()
    assert "begun and not ended" in (status(captures, shop.name, 0).error or "")
    list(repair_gap(captures, shop.name))
    assert (now(shop, "customers"), status(captures, shop.name, 0).error) == ({}, None)

    # A topic that is left holds rows that may be deleted since.
    captures.remove(shop.name)
    with pytest.raises(CaptureRefused, match="left of an earlier one"):
        captures.add(capture(shop.name, ["orders"]))
    for table in ("customers", "orders"):
        captures.log.topics.delete(f"{shop.name}.public.{table}")


def test_an_idle_table_does_not_hold_back_the_databases_log(shop: Shop) -> None:
    shop.run(CUSTOMERS, "CREATE TABLE busy (n int, text text)")
    captures = shop.captures
    captures.add(capture(shop.name, ["customers"]))
    until(lambda: captures.connect.offsets(shop.name) is not None, "a stored position")
    shop.run("INSERT INTO busy SELECT n, repeat(md5(n::text), 20) FROM generate_series(1, 50000) n")
    assert (status(captures, shop.name, 0).behind_bytes or 0) > 10_000_000
    until(lambda: (status(captures, shop.name, 0).behind_bytes or 0) < 1_000_000, "giving back WAL")


def test_what_cannot_be_captured_is_refused_with_the_reason(shop: Shop) -> None:
    shop.run(CUSTOMERS, "CREATE TABLE keyless (n int)")
    captures = shop.captures
    with pytest.raises(CaptureRefused, match="did you mean 'public"):
        captures.add(capture(shop.name, ["custmers"]))
    with pytest.raises(CaptureRefused, match="key"):
        captures.add(capture(shop.name, ["keyless"]))
    with pytest.raises(CaptureUnknown):
        captures.get("nothing")
    for wrong in ({"tables": []}, {"tables": "orders"}, {"name": "My Shop"}, {"history": "soon"}, {"partitions": 0}):
        with pytest.raises(CaptureInvalid):
            capture(**{"name": "shop", "tables": ["orders"], **wrong})  # type: ignore[arg-type]
    captures.add(capture(shop.name, ["customers"]))
    with pytest.raises(CaptureChanged, match="partitions"):
        captures.add(capture(shop.name, ["customers"], partitions=5))


def test_an_open_transaction_that_holds_up_the_slot_is_named(settings: Settings, postgres: str) -> None:
    source = PostgresSource(settings, "postgres", parsed("postgres", postgres))
    wanted = capture("held", ["any"], slot="held_up")
    with psycopg.connect(postgres) as other, psycopg.connect(postgres, autocommit=True) as maker:
        other.execute("CREATE TABLE unfinished (n int)")
        make = "SELECT pg_create_logical_replication_slot('held_up', 'pgoutput', true)"
        making = threading.Thread(target=lambda: maker.execute(make))
        making.start()
        until(lambda: source.hindrance(wanted) is not None, "the slot waits", 30)
        assert f"process {other.info.backend_pid}, since 20" in str(source.hindrance(wanted))
        other.rollback()
        making.join()
        assert source.hindrance(wanted) is None


def test_a_password_stays_a_reference(shop: Shop) -> None:
    canary = f"canary-{uuid.uuid4()}"
    url = shop.url.replace("millrace@", f"millrace:{canary}@")  # the server trusts loopback, and lets any password in
    database = Database(shop.name, Secret("url", url))
    settings = replace(shop.settings, databases={shop.name: database})
    shop.run(CUSTOMERS, "INSERT INTO customers VALUES (1, 'Ada')")
    captures = Captures(settings)
    captures.add(capture(shop.name, ["customers"]))
    until(lambda: len(changes(shop, "customers")) == 1, "the snapshot")
    told = [status(captures, shop.name, 0), captures.all(), captures.connect.config(shop.name)]
    address = captures.connect.address
    for path in (f"connectors/{shop.name}/tasks", "connectors?expand=info&expand=status"):
        with urllib.request.urlopen(f"{address}/{path}", timeout=30) as answer:
            told.append(answer.read().decode())
    kept = {topic.name for topic in captures.log.topics.list(everything=True)} - {"__consumer_offsets"}
    for topic in kept & {"_connect-config", "_connect-status", "_connect-offset", "_millrace.captures"}:
        told += [(record.key, record.value) for record in captures.log.read(topic)]
    logs = (settings.state_folder / "logs").glob("*.log")
    told += [path.read_text(errors="replace") for path in logs]
    assert "${dir:" in str(told)
    assert canary not in str(told)
    assert (settings.state_folder / "secrets").stat().st_mode & 0o077 == 0


def test_a_truncated_table_ends_empty_and_more_partitions_are_refused(shop: Shop) -> None:
    shop.run(CUSTOMERS, "INSERT INTO customers SELECT n, 'n' || n FROM generate_series(1, 50) n")
    captures = shop.captures
    captures.add(capture(shop.name, ["customers"]))
    until(lambda: len(now(shop, "customers")) == 50, "the snapshot")
    shop.run("TRUNCATE customers", "INSERT INTO customers VALUES (7, 'again')")
    until(lambda: truncates.waiting(captures, shop.name) == ("public.customers",), "the truncate")
    assert "was truncated" in (status(captures, shop.name, 0).error or "")
    assert truncates.mend(captures, shop.name)
    assert {key: row["name"] for key, row in now(shop, "customers").items()} == {(7,): "again"}
    assert truncates.waiting(captures, shop.name) == ()
    with pytest.raises(PartitionsFixed):
        memory.refuse_partitions(captures.log, f"{shop.name}.public.customers")


def test_a_snapshot_that_was_only_announced_is_made(shop: Shop) -> None:
    """Killed between announcing a snapshot and its first row, Debezium has stored an offset that names no place."""
    shop.run(CUSTOMERS, "INSERT INTO customers VALUES (1, 'Ada')")
    captures = shop.captures
    captures.add(capture(shop.name, ["customers"]))
    until(lambda: len(changes(shop, "customers")) == 1, "the snapshot")
    captures.connect.stop(shop.name)
    until(lambda: captures.connect.state(shop.name)[0] == "STOPPED", "the end of the task")
    offset = {"offsets": [{"partition": {"server": shop.name}, "offset": {"ts_usec": 0}}]}
    request = urllib.request.Request(
        f"{captures.connect.address}/connectors/{shop.name}/offsets",
        method="PATCH",
        data=json.dumps(offset).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30):
        pass
    captures.resume(shop.name)
    until(lambda: [op for _, op, _ in changes(shop, "customers")] == ["r", "r"], "the snapshot")
