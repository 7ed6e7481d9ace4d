"""The bank, run: what its saga, its projections and its flows make of the events is what plain Python makes of them."""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest
from pyspark.sql import SparkSession

from millrace.cli import main
from millrace.config import Settings
from millrace.demo import bank, bank_accounts
from millrace.engine import Run
from millrace.events import Refused, Store
from millrace.testing import Play, given
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
                assert self.status.get(name) != "TransferEnded"  # it ends once, and nobody is reminded of it then
                self.status[name] = kind if kind != "TransferReminded" else self.status[name]


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
                store.change(partial(bank_accounts.remind, transfer_id=name))
                store.change(partial(bank_accounts.give_up, transfer_id=name))
        check(store, Recomputed(shop))
        wrong, right = (store.projection(bank_accounts.statements(faulty=each)) for each in (True, False))
        wrong.rebuild()
        assert bank_accounts.audited(store, wrong)
        right.rebuild()
        assert bank_accounts.audited(store, right) == []
        monkeypatch.setattr("millrace.config.load", lambda: shop.settings)
        assert main(["events", "lag", shop.name]) == 0
        assert "statements" in capsys.readouterr().out


@pytest.mark.server
def test_customers_stay_when_the_bank_can_do_nothing_for_a_moment(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bank, "TRADE_S", 0.01)
    monkeypatch.setattr(bank, "AGAIN_S", 0.05)
    with Store.open(shop.name, settings=shop.settings) as store:
        bank.stock(store)
        begun = store.head()
        with bank._open_for_business(store):
            until(lambda: store.head() > begun, "somebody trades")
            shop.run("ALTER TABLE events.event RENAME TO away")
            until(lambda: "customers wait" in caplog.text, "they are told to wait")
            shop.run("ALTER TABLE events.away RENAME TO event")
            until(lambda: "customers are back" in caplog.text, "they are back")
            before = store.head()
            until(lambda: store.head() > before, "and trade")


@pytest.mark.server
@pytest.mark.usefixtures("postgres")
def test_the_lag_of_a_store_that_is_not_there(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told, with what there is; and nothing is made by the question."""
    monkeypatch.setattr("millrace.config.load", lambda: settings)
    Store.open("lagging", settings=settings, schema="ledger").close()
    for _ in range(2):
        for words, hint in (
            (("laging", "--schema", "ledger"), "did you mean 'lagging'?"),
            (("nonsuch",), "there is one in "),
            (("lagging",), "there is one with --schema ledger"),
        ):
            assert main(["events", "lag", *words]) == 1
            told = capsys.readouterr().err
            assert "MR-STORE-UNKNOWN" in told
            assert hint in told
    assert main(["events", "lag", "lagging", "--schema", "ledger"]) == 0


def test_its_flows() -> None:
    flows = {stream.name for stream in bank.app.graph().streams}
    assert flows == {"withdrawals", "steps", "hasty", "overdue", "overlooked"}


EVENT = (
    "position long, aggregate string, id string, version long, type string, schema int, at timestamp, command string, "
    "data string, seals string, meta string"
)


class Played:
    """The bank's flows under the test's own time. Its events come in the order in which they are given."""

    def __init__(self, play: Callable[..., Play]) -> None:
        app = bank.application("bank", lambda: pytest.fail("no command is given in a play"), within="20 seconds")
        (database,) = app.graph().databases
        self.table = database["events.event"]
        self.play = play(app)
        self.play.table(self.table, EVENT, key="position")
        self.position = 0

    def feed(self, *steps: tuple[str, str, str]) -> None:
        rows = []
        for name, kind, at in steps:
            self.position += 1
            data = '{"source": "a", "target": "b", "amount": "1"}' if kind == "TransferAsked" else '{"reason": null}'
            rows.append(
                {"position": self.position, "id": name, "version": 1, "type": kind, "schema": 1, "at": at, "data": data}
            )
        self.play.feed(self.table, rows)

    def told(self, sink: str) -> list[str]:
        return sorted(row["id"] for row in self.play.rows(f"function.{sink}"))


@pytest.mark.spark
def test_a_transfer_that_comes_late_is_given_back_too(play: Callable[..., Play]) -> None:
    """What is late is asked about anew, by an event of now, which has a deadline like any other.

    00:00:00      00:00:30     00:01:00                00:01:01             00:01:30
    t-1 asked     a tick       a tick, and behind      the reminder         a tick
                  |            it the others:                 |------ 20 s ------|
                  t-1 is over  t-2, asked 00:00:40     of t-2, and none of t-3, t-4    t-2 is over
    """
    bank = Played(play)
    bank.feed(("t-1", "TransferAsked", "00:00:00"))
    bank.feed(("clock", "millrace.ticked", "00:00:30"))
    assert bank.told("give_up") == ["t-1"]
    bank.feed(("t-3", "TransferAsked", "00:00:30"), ("clock", "millrace.ticked", "00:01:00"))
    bank.feed(
        ("t-2", "TransferAsked", "00:00:40"),
        ("t-3", "TransferAccepted", "00:00:41"),
        ("t-4", "TransferEnded", "00:00:42"),
    )
    assert bank.told("remind") == ["t-2"]
    assert "t-2" not in bank.told("give_up")
    bank.feed(("t-2", "TransferReminded", "00:01:01"))
    bank.feed(("clock", "millrace.ticked", "00:01:30"))
    assert "t-2" in bank.told("give_up")
    assert bank.told("remind") == ["t-2"]


@pytest.mark.spark
def test_steps_are_in_the_order_of_the_store(play: Callable[..., Play]) -> None:
    """An epoch may be a minute long, and who reads it may see half of it: out of order, the rest would be late."""
    bank = Played(play)
    bank.feed(*((f"t-{number}", "TransferAsked", f"00:00:{number:02}") for number in range(60)))
    assert [row["id"] for row in bank.play.rows("transfer_steps")] == [f"t-{number}" for number in range(60)]


@pytest.mark.parametrize("amount", ["-5", "0", "0.001", "NaN", "Infinity", "1e30"])
def test_what_is_no_amount_is_refused(amount: str) -> None:
    no_amount = Decimal(amount)
    account = (bank_accounts.AccountOpened("ann"), bank_accounts.Deposited(Decimal(9)))
    for method in (bank_accounts.Account.deposit, bank_accounts.Account.withdraw):
        given(bank_accounts.Account, *account).when(method, no_amount).refused(Refused)
    given(bank_accounts.Transfer).when(bank_accounts.Transfer.ask, "ann", "bob", no_amount).refused(Refused)
