"""A bank whose only record is its events: accounts, transfers as a saga, balances and statements, an audit, and fraud.

millrace demo --only bank    made-up customers; who draws money too fast, and transfers that nobody accepted in time

commands ──▶ events.event ──▶ Debezium ──▶ Kafka ──▶ Spark ──┬──▶ hasty: many withdrawals within a minute
                  │                                          ├──▶ overdue ──▶ a command: the money goes back
                  │                                          └──▶ overlooked ──▶ a command: look at it again
                  └──▶ in process: the saga, balances, statements

The bank's own code is in `bank_accounts.py`.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import millrace as mr
from millrace.demo import bank_accounts
from millrace.demo.bank_accounts import Account, Transfer, TransferTaken, Withdrawn
from millrace.events import Refused, Store, Work, every, typed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# So many withdrawals of one account within a minute, together of so much, are hasty: somebody should look at them.
HASTY, MUCH = 4, 1_000
ACCEPT_WITHIN = "20 seconds"
# How long a customer takes for the next thing, and how long before it is tried again when the bank cannot do anything.
TRADE_S = 0.2
AGAIN_S = 1.0

_logger = logging.getLogger("millrace.demo")


def withdrawals(changes: DataFrame) -> DataFrame:
    """What customers draw themselves, with the amount as a number, whichever version of the event has it."""
    drawn = typed(changes.select("after.*"), Withdrawn, decimals="decimal(18,2)").where("event.transfer IS NULL")
    return drawn.selectExpr("id AS account", "event.amount", "at")


def hasty(withdrawals: DataFrame) -> DataFrame:
    """Fraud by a rule over time: a withdrawal that makes so many, of so much, in the minute that ends with it."""
    looked = mr.lookback(
        withdrawals,
        by="account",
        late=mr.late.side("late_withdrawals"),
        times=mr.count(over="1 minute"),
        drawn=mr.sum("amount", over="1 minute"),
    )
    return looked.where(f"times >= {HASTY} AND drawn >= {MUCH}")


def steps(changes: DataFrame) -> DataFrame:
    """The events that the deadline of a transfer depends on; a reminder counts as if it were asked again. The store's
    ticks are among them so that time goes on where nothing else happens."""
    found = changes.select("after.id", "after.type", "after.at").where(
        "type IN ('TransferAsked', 'TransferReminded', 'TransferAccepted', 'TransferEnded', 'millrace.ticked')"
    )
    return found.selectExpr("id", "if(type = 'TransferReminded', 'TransferAsked', type) AS type", "at")


def overdue(steps: DataFrame, within: str = ACCEPT_WITHIN) -> DataFrame:
    is_a = {"asked": "type = 'TransferAsked'", "answered": "type IN ('TransferAccepted', 'TransferEnded')"}
    return mr.match(
        steps, by="id", pattern="asked !answered", define=is_a, within=within, late=mr.late.side("late_steps")
    )


def overlooked(late: DataFrame) -> DataFrame:
    """Transfers whose deadline nobody watches: they came when time had passed them. (Late answers do no harm: who gives
    up a transfer looks at it first.)"""
    return late.select("row.*", "late_ms").where("type = 'TransferAsked'")


def application(name: str, store: Callable[[], Store], within: str = ACCEPT_WITHIN) -> mr.App:
    """The app over the store in the database of that name. One partition, read as it lies there, keeps the events in
    their order, so that none is late, and makes every tick the time of all keys."""
    app = mr.App(name)
    events = app.capture(name, ["events.event"], partitions=1)["events.event"].changes
    columns = "account string, amount decimal(18,2), at timestamp"
    drawn = app.topic("drawn", columns, key="account", time="at", lateness="1 second", partitions=1)
    columns = "id string, type string, at timestamp"
    moves = app.topic("transfer_steps", columns, key="id", time="at", lateness="1 second", partitions=1)
    late = app.topic("late_steps", "row struct<id: string, type: string, at: timestamp>, late_ms long", partitions=1)
    app.stream(events, to=drawn)(withdrawals)
    app.stream(drawn, key="account")(hasty)
    app.stream(events, to=moves)(steps)

    @app.stream(moves, key="id", name="overdue")
    def late_ones(rows: DataFrame) -> DataFrame:
        return overdue(rows, within)

    def give_up(rows: DataFrame, _: Any) -> None:
        """The command has an id: an epoch that is done again gives it again, and nothing happens twice."""
        for row in rows.select("id").collect():
            store().change(partial(bank_accounts.give_up, transfer_id=row.id), by=f"overdue {row.id}")

    def remind(rows: DataFrame, _: Any) -> None:
        """The reminder is an event of now, so that it is on time; if it is late as well, it is followed by another."""
        for row in rows.select("id", "at").collect():
            store().change(partial(bank_accounts.remind, transfer_id=row.id), by=f"late {row.id} {row.at.timestamp()}")

    late_ones.to(mr.function(give_up))
    app.stream(late, key="id")(overlooked).to(mr.function(remind))
    return app


@functools.cache
def _store() -> Store:
    return Store.open("bank")


app = application("bank", _store)


# Made-up customers: they know of accounts and transfers, and nothing of what is derived from them.

CUSTOMERS = 20


def stock(store: Store) -> None:
    """Customers with some money, unless they are there."""
    accounts = store.repository(Account)
    for number in range(CUSTOMERS):
        name = f"account-{number}"
        accounts.change(name, Account.open, f"Customer {number}", by=f"open {name}")
        accounts.change(name, Account.deposit, Decimal(5_000), by=f"first deposit of {name}")


def business(store: Store, chance: random.Random, number: int) -> None:
    """One thing that happens at a bank. What is refused did not happen."""
    accounts, moves = store.repository(Account, snapshots=every(100)), store.repository(Transfer)
    one, other = (f"account-{each}" for each in chance.sample(range(CUSTOMERS), 2))
    what, amount = chance.random(), Decimal(chance.randint(100, 40_000)) / 100
    try:
        if what < 0.3:
            accounts.change(one, Account.deposit, amount)
        elif what < 0.6:
            accounts.change(one, Account.withdraw, amount)
        elif what < 0.65:  # somebody has found a card
            for _ in range(HASTY + 1):
                accounts.change(one, Account.withdraw, Decimal(300))
        else:
            target = other if what < 0.95 else "nobody"  # there is no such account: the money goes back
            moves.change(f"t-{number}", Transfer.ask, one, target, amount)
    except Refused:
        pass


def accept(store: Store, after: int = 0) -> int:
    """The other side says yes to four of five transfers, and nothing to the rest; gives the position it has seen."""
    head = store.head()
    for each in store.read(after, until=head, events=[TransferTaken]):
        if zlib.crc32(each.id.encode()) % 5:
            store.change(partial(_accept, transfer_id=each.id), by=f"accept {each.id}")
    return head


def _accept(work: Work, transfer_id: str) -> None:
    transfer = work.load(Transfer, transfer_id)
    if transfer.status == "taken":
        transfer.accept()


@contextmanager
def beside() -> Iterator[Mapping[str, str]]:
    """The bank itself, while the demo runs: its store, its saga, its projections, and its customers."""
    from millrace import config, local

    settings = config.load()
    with ExitStack() as opened:
        opened.enter_context(local.held(settings, () if settings.databases else ("postgres",)))
        store = opened.enter_context(Store.open("bank", settings=settings))
        stock(store)
        opened.enter_context(store.ticking("2 seconds"))
        opened.enter_context(store.saga(bank_accounts.transfers).running())
        opened.enter_context(store.projection(bank_accounts.balances).running())
        opened.enter_context(store.projection(bank_accounts.statements()).running())
        opened.enter_context(_open_for_business(store))
        yield {}


@contextmanager
def _open_for_business(store: Store) -> Iterator[None]:
    closed = threading.Event()

    def trade() -> None:
        """For as long as the bank is open: a database that is away for a moment does not send its customers home."""
        chance, number, seen, well = random.Random(1), 0, 0, True  # noqa: S311 -- repeatable, not secret
        while not closed.wait(TRADE_S if well else AGAIN_S):
            try:
                number = number or store.head()
                number += 1
                business(store, chance, number)
                if number % 10 == 0:
                    seen = accept(store, seen)
                if not well:
                    _logger.warning("the bank's customers are back")
                well = True
            except Exception as error:
                if well:
                    _logger.warning("the bank's customers wait: %s", error, exc_info=error)
                well = False

    trading = threading.Thread(target=trade, daemon=True)
    trading.start()
    try:
        yield
    finally:
        closed.set()
        trading.join()
