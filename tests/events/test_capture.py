"""From the store to a topic by capture, and from there a projection as a flow, which is the fold of the events."""

from __future__ import annotations

import json
import threading
from decimal import Decimal
from typing import Any

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

IDS = ("a", "b", "c")


def app_of(shop: Shop, *, faulty: bool = False) -> App:
    app = App(f"app-{shop.name}")
    log = app.capture(shop.name, ["events.event"], partitions=1)

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
            accounts.change(IDS[number % 3], Account.deposit, Decimal("2.25"))
            accounts.change(IDS[number % 2], Account.withdraw, Decimal("0.75"))

    running = [threading.Thread(target=work) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()


def positions(shop: Shop) -> list[int]:
    found = [json.loads(record.value or b"{}") for record in shop.captures.log.read(f"{shop.name}.events.event")]
    return [record["after"]["position"] for record in found if record]


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
        write(store, 1, 4)
        app = app_of(shop, faulty=True)
        for more in (0, 5):  # what was there before the capture, and what is written while it goes on
            shop.captures.ensure(next(iter(app.graph().databases)).capture)
            write(store, 3, more)
            until(lambda: len(positions(shop)) >= store.head(), "the capture")
            assert positions(shop) == list(range(1, store.head() + 1))  # each once, in the store's order
            once(shop, spark, app)
        drawn = {id: sum(amounts(store, id, Withdrawn)) for id in IDS}
        faulty = {id: accounts.load(id).balance + 2 * drawn[id] for id in IDS}
        assert told(shop) == faulty != {id: accounts.load(id).balance for id in IDS}
        once(shop, spark, app_of(shop), Replay("mended"))
        assert told(shop, ".mended") == {id: accounts.load(id).balance for id in IDS}
        assert told(shop) == faulty  # served until its readers have gone over


def amounts(store: Store, id: str, kind: type) -> list[Decimal]:
    return [each.event.amount for each in store.history(Account, id) if type(each.event) is kind]
