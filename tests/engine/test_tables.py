"""Captured tables in flows: signed rows, raw changes and the rows of now, all of one name and all true."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import DataFrame, SparkSession

from millrace import local
from millrace.capture import capture
from millrace.engine import Run, now
from millrace.engine.plan import flows_of
from millrace.errors import RowUnreadable, TableReaderKeepsState, TableStale
from millrace.flow import App
from tests.command import until
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

ITEMS = "CREATE TABLE items (id bigint PRIMARY KEY, name text, price numeric(10, 2))"


def app_of(shop: Shop, *readers: str, partitions: int = 2) -> App:
    app = App(f"app-{shop.name}")
    db = app.capture(shop.name, ["items"], partitions=partitions)
    for reader in readers:

        @app.stream(db.items, key="id", name=f"{shop.name}-{reader}")
        def signed(rows: DataFrame) -> DataFrame:
            return rows

    return app


def once(spark: SparkSession, shop: Shop, app: App, **options: Any) -> None:
    with Run(app, shop.settings, once=True, spark=spark, traffic=False, **options) as run:
        while not run.done:
            run.poll()
        run.stop()


def summed(shop: Shop, topic: str) -> dict[Any, list[dict[str, Any]]]:
    """What a reader of signed rows has: rows whose signs do not cancel out. More than one of a key would be wrong."""
    signs: Counter[str] = Counter()
    for record in shop.captures.log.read(f"{shop.name}-{topic}"):
        row = record.json()
        diff = row.pop("__diff")
        signs[json.dumps(row, sort_keys=True)] += diff
    assert set(signs.values()) <= {0, 1}, signs
    found: dict[Any, list[dict[str, Any]]] = {}
    for text, sign in signs.items():
        if sign:
            row = json.loads(text)
            found.setdefault(row["id"], []).append(row)
    return found


def last(shop: Shop, topic: str) -> dict[Any, dict[str, Any]]:
    """What a reader who keeps the last row of each key has: signs of a row whose columns changed do not cancel out."""
    found: dict[Any, dict[str, Any]] = {}
    for record in shop.captures.log.read(f"{shop.name}-{topic}"):
        row = record.json()
        if row.pop("__diff") > 0:
            found[row["id"]] = row
        else:
            found.pop(row["id"], None)
    return found


def source(shop: Shop, columns: str = "id, name, price::text") -> dict[Any, list[Any]]:
    return {row[0]: [row] for row in shop.run(f"SELECT {columns} FROM items")}


def captured(shop: Shop, keys: set[int]) -> None:
    log = shop.captures.log

    def there() -> bool:
        return keys <= {json.loads(record.key or b"{}")["id"] for record in log.read(f"{shop.name}.public.items")}

    until(there, "the capture")


def compact(shop: Shop) -> None:
    """Makes Kafka compact the topic now: all but its last segment, which never is, and so needs something more."""
    topic, log = f"{shop.name}.public.items", shop.captures.log
    written = len(list(log.read(topic)))
    log.topics.alter(
        topic, config={"min.compaction.lag.ms": "0", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    )

    def compacted() -> bool:
        shop.run("UPDATE items SET name = 'beat ' || clock_timestamp() WHERE id = 102")
        return len(list(log.read(topic))) < written - 10

    cleaner_pause_ms(shop, 100)
    until(compacted, "the compaction")
    cleaner_pause_ms(shop, 15_000)
    shop.run("INSERT INTO items VALUES (103, 'end', 3)")
    captured(shop, {103})


def cleaner_pause_ms(shop: Shop, pause_ms: int) -> None:
    admin = AdminClient({"bootstrap.servers": local.address(shop.settings, "kafka")})
    entry = ConfigEntry("log.cleaner.backoff.ms", str(pause_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_readers_share_one_state_and_a_late_one_misses_nothing(shop: Shop, spark: SparkSession) -> None:
    shop.run(ITEMS, "INSERT INTO items SELECT n, 'n' || n, n * 1.5 FROM generate_series(1, 50) n")
    app = app_of(shop, "a", "b")
    assert [flow.name for flow in flows_of(app.graph())] == [f"{shop.name}.items"]
    shop.captures.add(capture(shop.name, ["items"]))
    captured(shop, {50})
    once(spark, shop, app)
    shop.run(
        "UPDATE items SET price = price + 1 WHERE id <= 10",
        "DELETE FROM items WHERE id BETWEEN 11 AND 15",
        "UPDATE items SET id = 100 WHERE id = 20",
        "INSERT INTO items VALUES (11, 'again', 0.01), (101, 'last', 1)",
    )
    captured(shop, {100, 101})
    once(spark, shop, app)
    assert summed(shop, "a") == summed(shop, "b")
    assert {
        key: [(r["id"], r["name"], f"{r['price']:.2f}") for r in rows] for key, rows in summed(shop, "a").items()
    } == source(shop)

    # A reader that joins later is given the table where the others stand, then goes on with them; what they read has
    # been compacted away meanwhile.
    shop.run("DELETE FROM items WHERE id = 1", "INSERT INTO items VALUES (102, 'tail', 2)")
    captured(shop, {102})
    compact(shop)
    once(spark, shop, app_of(shop, "a", "b", "c"))
    assert summed(shop, "c") == summed(shop, "a")
    assert len(summed(shop, "c")) == len(source(shop))

    # The same table as a batch of now.
    db = app_of(shop, "a")
    table = db.graph().streams[0].reads[0]
    rows = {
        row["id"]: (row["id"], row["name"], str(row["price"])) for row in now(table, spark, shop.settings).collect()
    }
    assert {key: [row] for key, row in rows.items()} == source(shop)


def test_every_change_of_a_table(shop: Shop, spark: SparkSession) -> None:
    shop.run(ITEMS, "ALTER TABLE items REPLICA IDENTITY FULL", "INSERT INTO items VALUES (1, 'one', 1), (2, 'two', 2)")
    app = App(f"app-{shop.name}")
    db = app.capture(shop.name, ["items"])

    @app.stream(db.items.changes, key="key", name=f"{shop.name}-moves")
    def moves(changes: DataFrame) -> DataFrame:
        names = changes.selectExpr("key", "op", "before.name as was", "after.name as name", "after.price as price")
        return names.where("op <> 'u' or was <> name")

    shop.captures.add(capture(shop.name, ["items"]))
    captured(shop, {1, 2})
    shop.run(
        "UPDATE items SET name = 'uno' WHERE id = 1", "UPDATE items SET price = 3 WHERE id = 2",
        "DELETE FROM items WHERE id = 2", "INSERT INTO items VALUES (3, 'three', 3)",
    )  # fmt: skip
    captured(shop, {3})
    once(spark, shop, app)
    told = [record.json() for record in shop.captures.log.read(f"{shop.name}-moves")]
    by_key = {
        key: [(t["op"], t.get("was"), t.get("name")) for t in told if t["key"] == f'{{"id":{key}}}']
        for key in (1, 2, 3)
    }
    assert by_key == {
        1: [("r", None, "one"), ("u", "one", "uno")],
        2: [("r", None, "two"), ("d", "two", None)],
        3: [("c", None, "three")],
    }

    # What is no change of a row stops the flow: it would be rows of nulls.
    shop.captures.log.write(f"{shop.name}.public.items", {"no": "envelope"}, key='{"id":9}')
    with pytest.raises(RowUnreadable, match="it is no change of a row"):
        once(spark, shop, app)


def test_what_a_reader_of_a_table_may_not_do(shop: Shop, spark: SparkSession) -> None:
    shop.run(ITEMS, "INSERT INTO items VALUES (1, 'one', 1)")
    app = App(f"app-{shop.name}")
    db = app.capture(shop.name, ["items"])

    @app.stream(db.items, name=f"{shop.name}-distinct")
    def distinct(rows: DataFrame) -> DataFrame:
        return rows.select("name").dropDuplicates()

    with pytest.raises(TableReaderKeepsState, match="Deduplicate"):
        once(spark, shop, app)


def test_a_table_that_changes_does_not_stop_its_readers(shop: Shop, spark: SparkSession) -> None:
    shop.run(ITEMS, "INSERT INTO items VALUES (1, 'one', 1), (2, 'two', 2)")
    app = app_of(shop, "a")
    with Run(app, shop.settings, spark=spark) as run:

        def come(expected: dict[int, dict[str, Any]]) -> None:
            found: dict[Any, dict[str, Any]] = {}

            def there() -> bool:
                run.poll()
                found.clear()
                if shop.captures.log.topics.exists(f"{shop.name}-a"):
                    found.update(last(shop, "a"))
                return found == expected

            try:
                until(there, "the rows", 120)
            except AssertionError:
                assert found == expected
                raise

        come({1: {"id": 1, "name": "one", "price": 1.0}, 2: {"id": 2, "name": "two", "price": 2.0}})
        shop.run(
            "ALTER TABLE items ADD COLUMN stock int DEFAULT 7",
            "ALTER TABLE items RENAME COLUMN name TO title",
            "INSERT INTO items VALUES (3, 'three', 3, 8)",
            "UPDATE items SET price = 1.25 WHERE id = 1",
        )
        one = {"id": 1, "title": "one", "price": 1.25, "stock": 7}
        three = {"id": 3, "title": "three", "price": 3.0, "stock": 8}
        come({1: one, 2: {"id": 2, "name": "two", "price": 2.0}, 3: three})
        shop.run(
            "ALTER TABLE items DROP COLUMN stock",
            "DELETE FROM items WHERE id = 2",
            "INSERT INTO items VALUES (4, 'four', 4)",
        )
        come({1: one, 3: three, 4: {"id": 4, "title": "four", "price": 4.0}})


def test_somebody_elses_debezium_can_be_read(shop: Shop, spark: SparkSession) -> None:
    """Records as Debezium writes them with its defaults: with schemas, with the placeholder, told again."""
    log, name = shop.captures.log, f"{shop.name}-foreign"
    log.topics.create(name, partitions=1)

    def put(key: int, op: str, after: dict[str, Any] | None) -> None:
        payload = {"before": None, "after": after, "op": op, "source": {"ts_ms": 1, "lsn": 5}}
        value = json.dumps({"schema": {"type": "struct"}, "payload": payload})
        log.write(name, value, key=json.dumps({"schema": {"type": "struct"}, "payload": {"id": key}}))

    put(1, "c", {"id": 1, "name": "one", "note": "large"})
    put(1, "u", {"id": 1, "name": "uno", "note": "__debezium_unavailable_value"})
    put(2, "c", {"id": 2, "name": "two", "note": None})
    put(2, "c", {"id": 2, "name": "two", "note": None})
    put(3, "c", {"id": 3, "name": "three", "note": ""})
    put(3, "d", None)
    app = App(f"app-{shop.name}")
    table = app.table(name, "id long, name string, note string", key="id")

    @app.stream(table, key="id", name=f"{shop.name}-read")
    def read(rows: DataFrame) -> DataFrame:
        return rows

    once(spark, shop, app)
    assert summed(shop, "read") == {
        1: [{"id": 1, "name": "uno", "note": "large"}],
        2: [{"id": 2, "name": "two", "note": None}],
    }


def test_a_reader_that_was_away_too_long_is_told_to_rebuild(shop: Shop, spark: SparkSession) -> None:
    shop.run(ITEMS, "INSERT INTO items VALUES (1, 'one', 1)")
    app = app_of(shop, "a")
    shop.captures.add(capture(shop.name, ["items"]))
    captured(shop, {1})
    once(spark, shop, app)
    folder = shop.settings.checkpoints / app.name / f"{shop.name}.items"
    long_ago = time.time() - 40 * 86_400
    for mark in (folder / "seen", *(folder / "checkpoint" / "commits").iterdir()):
        if mark.exists():
            os.utime(mark, (long_ago, long_ago))
    with pytest.raises(TableStale, match="40 days"):
        once(spark, shop, app)
    once(spark, shop, app, fresh=[f"{shop.name}-a"])
