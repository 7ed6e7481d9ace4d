"""From the store to a topic by capture, and from there a projection as a flow, which is the fold of the events."""

from __future__ import annotations

import contextlib
import json
import threading
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine import Run
from millrace.engine.replay import Replay
from millrace.events import Store, typed
from millrace.flow import App
from tests.command import until
from tests.events.bank import Account, Deposited, Withdrawn
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

IDS = ("a", "b", "c", "d", "e")
PARTITIONS = 3


class Captured(NamedTuple):
    partition: int
    position: int
    id: str
    version: int


class Broken(Exception):
    pass


def app_of(shop: Shop, *, faulty: bool = False) -> App:
    app = App(f"app-{shop.name}")
    log = app.capture(shop.name, ["events.event"], partitions=PARTITIONS)

    @app.stream(log["events.event"].changes, key="id", name=f"{shop.name}-steps")
    def steps(changes: DataFrame) -> DataFrame:
        return changes.select("after.id", "after.version", "after.type")

    @app.stream(log["events.event"], key="id", emit="updates", name=f"{shop.name}-balances")
    def balances(events: DataFrame) -> DataFrame:
        moved = typed(events, Deposited, Withdrawn, decimals="decimal(18,2)")
        sign = F.when(F.col("type") == "Withdrawn", 1 if faulty else -1).otherwise(1)
        return moved.groupBy("id").agg(F.sum(F.col("event.amount") * sign * F.col("__diff")).alias("balance"))

    return app


def write(store: Store, threads: int, count: int) -> None:
    accounts = store.repository(Account)

    def work() -> None:
        for number in range(count):
            id = IDS[number % len(IDS)]
            accounts.change(id, Account.deposit, Decimal("2.25"))
            accounts.change(id, Account.withdraw, Decimal("0.75"))

    running = [threading.Thread(target=work) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()


def captured(shop: Shop) -> list[Captured]:
    """What is in the topic, each partition in its order."""
    found = [
        (record.partition, json.loads(record.value or b"{}").get("after"))
        for record in shop.captures.log.read(f"{shop.name}.events.event")
    ]
    return [Captured(partition, row["position"], row["id"], row["version"]) for partition, row in found if row]


def leave_room(store: Store) -> None:
    """The table as one that was rolled back leaves it: what is appended next is read before what is there."""
    accounts = store.repository(Account)
    with store.connections.lent() as connection:
        with contextlib.suppress(Broken), connection.transaction():
            account = accounts.load(IDS[0])
            for _ in range(300):
                account.deposit(Decimal(1))
            store.save(account, connection=connection)
            raise Broken
        accounts.change(IDS[0], Account.deposit, Decimal(1))  # behind the room, so that it is not cut off
        connection.execute("VACUUM events.event")


def as_read(shop: Shop) -> list[int]:
    return [row[0] for row in shop.run("SELECT position FROM events.event")]


def told(shop: Shop, replayed: str = "") -> dict[Any, Decimal]:
    """The last that the flow said of each account."""
    records = [record.json() for record in shop.captures.log.read(f"{shop.name}-balances{replayed}")]
    return {record["id"]: Decimal(str(record["balance"])) for record in records}


def once(shop: Shop, spark: SparkSession, app: App, replay: Replay | None = None) -> None:
    with Run(app, shop.settings, once=True, spark=spark, traffic=False, replay=replay) as run:
        while not run.done:
            run.poll()
        run.stop()


def test_a_projection_as_a_flow_is_the_fold(shop: Shop, spark: SparkSession) -> None:
    """One with a fault, and made anew by a replay beside it, under another name."""
    with Store.open(shop.name, settings=shop.settings) as store:
        accounts = store.repository(Account)
        for id in IDS:
            accounts.change(id, Account.open, f"owner of {id}")
        leave_room(store)
        write(store, 1, 5)
        assert as_read(shop) != sorted(as_read(shop))
        app = app_of(shop, faulty=True)
        for more in (0, 5):  # what was there before the capture, and what is written while it goes on
            shop.captures.ensure(next(iter(app.graph().databases)).capture)
            write(store, 3, more)
            until(lambda: len(captured(shop)) >= store.head(), "the capture")
            once(shop, spark, app)
        assert_in_order(shop, store)
        drawn = {id: sum(amounts(store, id, Withdrawn)) for id in IDS}
        faulty = {id: accounts.load(id).balance + 2 * drawn[id] for id in IDS}
        assert told(shop) == faulty != {id: accounts.load(id).balance for id in IDS}
        once(shop, spark, app_of(shop), Replay("mended"))
        assert told(shop, ".mended") == {id: accounts.load(id).balance for id in IDS}
        assert told(shop) == faulty  # served until its readers have gone over


def assert_in_order(shop: Shop, store: Store) -> None:
    """Each event once; in a partition by position; those of an aggregate in one, and so in a flow that keeps order."""
    found = captured(shop)
    assert sorted(each.position for each in found) == list(range(1, store.head() + 1))
    for partition in range(PARTITIONS):
        there = [each.position for each in found if each.partition == partition]
        assert there == sorted(there)
    assert len({each.partition for each in found}) > 1
    steps = [record.json() for record in shop.captures.log.read(f"{shop.name}-steps")]
    for id in IDS:
        assert len({each.partition for each in found if each.id == id}) == 1
        versions = [each.version for each in found if each.id == id]
        assert versions == list(range(1, len(versions) + 1)) == [each["version"] for each in steps if each["id"] == id]


def amounts(store: Store, id: str, kind: type) -> list[Decimal]:
    return [each.event.amount for each in store.history(Account, id) if type(each.event) is kind]
