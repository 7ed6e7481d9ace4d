"""The bank, run: what its saga, its projections and its flows make of the events is what plain Python makes of them."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from millrace.cli import main
from millrace.demo import bank, bank_accounts
from millrace.engine import Run
from millrace.events import Store
from tests.command import until
from tests.rotation import today
from tests.shop import Shop

MINUTE = timedelta(minutes=1)


def trade(store: Store, chance: random.Random, times: int) -> None:
    """Whatever chance brings, and for certain one who is hasty and a transfer that nobody accepts."""
    bank.stock(store)
    for _ in range(bank.HASTY + 1):
        store.repository(bank_accounts.Account).change("account-0", bank_accounts.Account.withdraw, Decimal(300))
    ignored = next(name for name in (f"ignored-{n}" for n in range(100)) if zlib.crc32(name.encode()) % 5 == 0)
    moves = store.repository(bank_accounts.Transfer)
    moves.change(ignored, bank_accounts.Transfer.ask, "account-0", "account-1", Decimal(5))
    for number in range(times):
        bank.business(store, chance, number)
    saga = store.saga(bank_accounts.transfers)
    saga.catch_up()
    bank.accept(store)
    saga.catch_up()


class Recomputed:
    """The bank by hand, from the rows of the table alone."""

    def __init__(self, shop: Shop) -> None:
        self.balances: dict[str, Decimal] = defaultdict(Decimal)
        self.status: dict[str, str] = {}
        self.hasty: set[tuple[str, str]] = set()
        self.own = Decimal(0)  # what customers brought and drew themselves
        drawn: dict[str, list[tuple[datetime, Decimal]]] = defaultdict(list)
        for kind, name, data, at in shop.run("SELECT type, id, data, at FROM events.event ORDER BY position"):
            if kind in ("Deposited", "Withdrawn"):
                amount = Decimal(data["amount"]) * (1 if kind == "Deposited" else -1)
                self.balances[name] += amount
                self.own += amount if data["transfer"] is None else 0
            if kind == "Withdrawn" and data["transfer"] is None:
                drawn[name].append((at, Decimal(data["amount"])))
                last = [amount for moment, amount in drawn[name] if moment > at - MINUTE]
                if len(last) >= bank.HASTY and sum(last) >= bank.MUCH:
                    self.hasty.add((name, at.astimezone(UTC).isoformat()))
            if kind.startswith("Transfer"):
                assert self.status.get(name) != "TransferEnded"  # it ends once
                self.status[name] = kind


def told(shop: Shop) -> set[tuple[str, str]]:
    rows = [record.json() for record in shop.captures.log.read("hasty")]
    return {(row["account"], datetime.fromisoformat(row["at"]).astimezone(UTC).isoformat()) for row in rows}


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.turn(1, 2)
def test_flows_find_the_hasty_and_give_back_what_nobody_accepted(shop: Shop, spark: SparkSession) -> None:
    chance = random.Random(today())
    with Store.open(shop.name, settings=shop.settings) as store:
        trade(store, chance, 60)
        before = Recomputed(shop)
        waiting = {name for name, status in before.status.items() if status == "TransferTaken"}
        assert waiting
        assert before.hasty
        app = bank.application(shop.name, lambda: store, within="2 seconds")

        def ended() -> bool:
            run.poll()
            moves = store.repository(bank_accounts.Transfer)
            return all(moves.load(name).status == "ended" for name in waiting) and told(shop) >= before.hasty

        with store.ticking("500 ms"), Run(app, shop.settings, spark=spark, traffic=False) as run:
            until(ended, "all that was not accepted has ended", 240)
            run.stop()
        after = Recomputed(shop)
        assert set(after.status.values()) == {"TransferEnded"}
        assert told(shop) == after.hasty == before.hasty
        check(store, after)


def check(store: Store, found: Recomputed) -> None:
    """No money came and none went but by customers; and everybody who looks sees the same."""
    accounts = store.repository(bank_accounts.Account)
    assert sum(found.balances.values()) == found.own
    assert {name: accounts.load(name).balance for name in found.balances} == found.balances
    live = store.projection(bank_accounts.balances)
    rows = live.query("SELECT * FROM balance", after=store.head())
    assert {row["account"]: row["amount"] for row in rows} == found.balances


@pytest.mark.server
def test_the_bank_in_process(shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(shop.name, settings=shop.settings) as store:
        trade(store, random.Random(3), 80)
        for name in [name for name, status in Recomputed(shop).status.items() if status != "TransferEnded"]:
            for _ in range(2):  # a deadline that is told twice, and one that comes when all is over
                store.change(lambda work, name=name: bank_accounts.give_up(work, name))  # type: ignore[misc]
        check(store, Recomputed(shop))
        wrong, right = (store.projection(bank_accounts.statements(faulty=each)) for each in (True, False))
        wrong.rebuild()
        assert bank_accounts.audited(store, wrong)
        right.rebuild()
        assert bank_accounts.audited(store, right) == []
        monkeypatch.setattr("millrace.config.load", lambda: shop.settings)
        assert main(["events", "lag", shop.name]) == 0
        assert "statements" in capsys.readouterr().out


def test_its_flows() -> None:
    assert [stream.name for stream in bank.app.graph().streams] == ["withdrawals", "steps", "hasty", "overdue"]
