"""A projection that is a view: it is the fold of the events, whole transactions of them only, waits for what was just
written, and is made anew beside the old one when its SQL was wrong."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.client import Client
from millrace.engine import Run
from millrace.errors import StateChanged
from millrace.events import Store, Work
from millrace.flow import App
from millrace.views.store import Store as ViewStore
from tests.command import until
from tests.events.bank import Account
from tests.serve.world import served
from tests.shop import Shop
from tests.test_guide import blocks

pytestmark = [pytest.mark.spark, pytest.mark.server]

IDS = ("a", "b", "c")
# A machine that others use too is slow, and the server gives up after seconds.
LIMIT_S = 900.0
(BLOCK,) = (block for block in blocks("event-sourcing.md") if "app.view(" in block)
MENDED = BLOCK.split('"""')[1]
FAULTY = MENDED.replace(" * CASE type WHEN 'Deposited' THEN 1 ELSE -1 END", "")
assert FAULTY != MENDED


def app_of(shop: Shop, sql: str) -> App:
    app = App(f"app-{shop.name}")
    app.capture(shop.name, ["events.event"], partitions=1)
    app.view(f"{shop.name}-balances", key="id", sql=sql)
    return app


def held(shop: Shop) -> dict[str, Decimal]:
    with closing(ViewStore(shop.settings, f"app-{shop.name}")) as views:
        columns, rows, _ = views.rows(f"{shop.name}-balances")
    return {row[columns.index("id")]: row[columns.index("balance")] for row in rows}


def once(shop: Shop, spark: SparkSession, app: App, **options: Any) -> None:
    with Run(app, shop.settings, once=True, spark=spark, traffic=False, **options) as run:
        while not run.done:
            run.poll()
        run.stop()


def move(work: Work) -> None:
    """From one account to the other in one transaction."""
    work.load(Account, "a").withdraw(Decimal("0.50"))
    work.load(Account, "b").deposit(Decimal("0.50"))


def folded(store: Store) -> dict[str, Decimal]:
    return {id: store.repository(Account).load(id).balance for id in IDS}


def test_a_projection_as_a_view_is_the_fold_and_waits_for_what_was_written(shop: Shop, spark: SparkSession) -> None:
    with Store.open(shop.name, settings=shop.settings) as store:
        accounts = store.repository(Account)
        for id in IDS:
            accounts.change(id, Account.open, f"owner of {id}")
            accounts.change(id, Account.deposit, Decimal("2.50"))
        store.change(move)
        faulty, mended = app_of(shop, FAULTY), app_of(shop, MENDED)
        once(shop, spark, faulty)
        assert held(shop) == {"a": Decimal("3.00"), "b": Decimal("3.00"), "c": Decimal("2.50")} != folded(store)
        with pytest.raises(StateChanged):  # other code does not go on with what this one made
            once(shop, spark, mended)
        assert held(shop)["a"] == Decimal("3.00")  # served until the other one is filled
        with Run(mended, shop.settings, spark=spark, traffic=False, fresh=[f"{shop.name}-balances"]) as run:
            until(lambda: run.poll() is not None and held(shop) == folded(store), "the mended view", LIMIT_S)
            with served(shop.settings, mended) as server, closing(Client(server.address)) as client:
                for _ in range(3):
                    store.change(move)
                    wanted = store.lsn()
                    with closing(ViewStore(shop.settings, f"app-{shop.name}")) as views:
                        views.wait(f"{shop.name}-balances", wanted, LIMIT_S)
                    row = client.get(f"{shop.name}-balances", "a", wait_for=wanted) or {}
                    account = accounts.load("a")
                    assert (Decimal(str(row["balance"])), row["version"]) == (account.balance, account.version)
                    assert sum(held(shop).values()) == Decimal("7.50")  # no transfer is half done
            run.stop()
        assert held(shop) == folded(store)
