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
from millrace.events import Store
from millrace.flow import App
from tests.command import until
from tests.events.bank import Account
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

IDS = ("a", "b", "c")


def app_of(shop: Shop) -> App:
    app = App(f"app-{shop.name}")
    log = app.capture(shop.name, ["events.event"], partitions=1)

    @app.stream(log["events.event"], key="id", emit="updates", name=f"{shop.name}-balances")
    def balances(events: DataFrame) -> DataFrame:
        sign = F.when(F.col("type") == "Deposited", 1).when(F.col("type") == "Withdrawn", -1)
        amount = F.get_json_object("data", "$.amount").cast("decimal(18,2)") * sign * F.col("__diff")
        return events.where("type <> 'Opened'").groupBy("id").agg(F.sum(amount).alias("balance"))

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


def told(shop: Shop) -> dict[Any, Decimal]:
    """The last that the flow said of each account."""
    records = [record.json() for record in shop.captures.log.read(f"{shop.name}-balances")]
    return {record["id"]: Decimal(str(record["balance"])) for record in records}


def test_a_projection_as_a_flow_is_the_fold(shop: Shop, spark: SparkSession) -> None:
    with Store.open(shop.name, settings=shop.settings) as store:
        for id in IDS:
            store.repository(Account).change(id, Account.open, f"owner of {id}")
        write(store, 1, 4)
        app = app_of(shop)
        for more in (0, 5):  # what was there before the capture, and what is written while it goes on
            shop.captures.ensure(next(iter(app.graph().databases)).capture)
            write(store, 3, more)
            until(lambda: len(positions(shop)) >= store.head(), "the capture")
            assert positions(shop) == list(range(1, store.head() + 1))  # each once, in the store's order
            with Run(app, shop.settings, once=True, spark=spark, traffic=False) as run:
                while not run.done:
                    run.poll()
                run.stop()
            assert told(shop) == {id: store.repository(Account).load(id).balance for id in IDS}
