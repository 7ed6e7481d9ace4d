"""A bank whose only record are events: accounts, transfers as a saga, balances and statements, an audit, and fraud.

python -m millrace.demo.bank                   the story: a transfer, a refusal, yesterday's balance, a mended fault
millrace run millrace.demo.bank:app            what its events tell as a stream: large withdrawals, as they happen
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import millrace as mr
from millrace.events import (
    Aggregate,
    Projection,
    Recorded,
    Refused,
    Saga,
    Store,
    Work,
    apply,
    command,
    event,
    every,
    personal,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What happens at a bank. `owner` is sealed with a key of the account: to forget the owner is to delete the key.


@event
class AccountOpened:
    owner: Annotated[str, personal(instead="(forgotten)")]


@event
class Deposited:
    amount: Decimal
    transfer: str | None = None


@event
class Withdrawn:
    amount: Decimal
    transfer: str | None = None


@event
class TransferAsked:
    source: str
    target: str
    amount: Decimal


@event
class TransferEnded:
    reason: str | None  # None: it was done


class Overdrawn(Refused):
    pass


class Account(Aggregate):
    owner: str = ""
    balance: Decimal = Decimal(0)

    @command
    def open(self, owner: str) -> None:
        if self.version:
            raise Refused(f"account {self.id} is open")
        self.emit(AccountOpened(owner))

    @command
    def deposit(self, amount: Decimal, transfer: str | None = None) -> None:
        if not self.version:
            raise Refused(f"there is no account {self.id}")
        if amount <= 0:
            raise Refused("an amount is more than nothing")
        self.emit(Deposited(amount, transfer))

    @command
    def withdraw(self, amount: Decimal, transfer: str | None = None) -> None:
        if amount > self.balance:
            raise Overdrawn(f"account {self.id} has {self.balance}")
        self.emit(Withdrawn(amount, transfer))

    @apply
    def opened(self, event: AccountOpened) -> None:
        self.owner = event.owner

    @apply
    def deposited(self, event: Deposited) -> None:
        self.balance += event.amount

    @apply
    def withdrawn(self, event: Withdrawn) -> None:
        self.balance -= event.amount


class Transfer(Aggregate):
    source: str = ""
    target: str = ""
    amount: Decimal = Decimal(0)
    status: str = ""

    @command
    def ask(self, source: str, target: str, amount: Decimal) -> None:
        if self.version or source == target or amount <= 0:
            raise Refused("that is no transfer")
        self.emit(TransferAsked(source, target, amount))

    @command
    def end(self, reason: str | None = None) -> None:
        self.emit(TransferEnded(reason))

    @apply
    def asked(self, event: TransferAsked) -> None:
        self.source, self.target, self.amount, self.status = event.source, event.target, event.amount, "asked"

    @apply
    def ended(self, event: TransferEnded) -> None:
        self.status = "done" if event.reason is None else event.reason


# A transfer is a saga: money is taken, then given; if nobody takes it for a day, it goes back.

transfers = Saga("transfers")


@transfers.on
def take(work: Work, event: TransferAsked, recorded: Recorded[TransferAsked]) -> None:
    try:
        work.load(Account, event.source).withdraw(event.amount, recorded.id)
    except Refused as refused:
        work.load(Transfer, recorded.id).end(str(refused))


@transfers.on
def give(work: Work, event: Withdrawn) -> None:
    if event.transfer is None:
        return
    transfer = work.load(Transfer, event.transfer)
    try:
        work.load(Account, transfer.target).deposit(transfer.amount, transfer.id)
        transfer.end()
    except Refused:
        work.later(transfer.id, "1 day")


@transfers.deadline
def give_or_return(work: Work, key: str) -> None:
    transfer = work.load(Transfer, key)
    try:
        work.load(Account, transfer.target).deposit(transfer.amount, key)
        transfer.end()
    except Refused as refused:
        work.load(Account, transfer.source).deposit(transfer.amount, key)
        transfer.end(str(refused))


# What people look at.


def statements(*, faulty: bool = False) -> Projection:
    """Each account's movements, with the balance after each. The faulty one is in the story: it forgot the sign."""
    found = Projection(
        "statements",
        create="CREATE TABLE entry (account text, version bigint, at timestamptz, amount numeric, balance numeric, "
        "PRIMARY KEY (account, version))",
        revision="1" if faulty else "2",
    )

    @found.on
    def moved(write: Any, event: Deposited | Withdrawn, recorded: Recorded[Any]) -> None:
        amount = event.amount if isinstance(event, Deposited) or faulty else -event.amount
        write.execute(
            "INSERT INTO entry SELECT %(account)s, %(version)s, %(at)s, %(amount)s, %(amount)s + coalesce("
            "(SELECT balance FROM entry WHERE account = %(account)s ORDER BY version DESC LIMIT 1), 0)",
            {"account": recorded.id, "version": recorded.version, "at": recorded.at, "amount": amount},
        )

    return found


# The same events as a stream: the store's table is captured into a topic. One partition keeps them in their order.

app = mr.App("bank")
log = app.capture("bank", ["events.event"], partitions=1)


@app.stream(log["events.event"], key="id")
def large_withdrawals(events: DataFrame) -> DataFrame:
    """Withdrawals of a thousand and more, for somebody to look at."""
    return (
        events.where("type = 'Withdrawn'")
        .selectExpr("position", "id", "at", "cast(get_json_object(data, '$.amount') AS decimal(18, 2)) AS amount")
        .where("amount >= 1000")
    )


def story(store: Store) -> Iterator[str]:
    accounts, moves = store.repository(Account, snapshots=every(100)), store.repository(Transfer)
    run = f"{datetime.now(UTC):%H%M%S}"  # the store stays: each run of the story has accounts of its own
    ann, bob = f"ann-{run}", f"bob-{run}"
    for name in (ann, bob):
        accounts.change(name, Account.open, name.title())
    earlier = accounts.change(ann, Account.deposit, Decimal(1500)).at
    saga = store.saga(transfers)
    for number, amount in enumerate((1200, 700)):
        moves.change(f"{run}-{number}", Transfer.ask, ann, bob, Decimal(amount))
        saga.catch_up()
        yield f"transfer of {amount}: {moves.load(f'{run}-{number}').status}"
    moves.change(f"{run}-2", Transfer.ask, bob, "nobody", Decimal(50))
    saga.catch_up(now=datetime.now(UTC) + timedelta(days=2))
    yield f"transfer to nobody: {moves.load(f'{run}-2').status}; bob has {accounts.load(bob).balance}"
    yield f"ann has {accounts.load(ann).balance}, and had {accounts.load(ann, at=earlier).balance} before"

    last = "SELECT balance FROM entry WHERE account = %s ORDER BY version DESC LIMIT 1"
    wrong, right = store.projection(statements(faulty=True)), store.projection(statements())
    wrong.rebuild()
    yield f"her statement says {wrong.query(last, [ann])[0]['balance']}: a fault, it forgot the sign"
    right.rebuild()
    yield f"mended and rebuilt beside it, it says {right.query(last, [ann])[0]['balance']}"

    store.forget(ann)
    yield f"the account of {accounts.load(ann).owner}, as the auditor sees it:"
    for each in store.history(Account, ann):
        yield f"  {each.position:>4} {each.at:%H:%M:%S} {each.event}"


def main() -> None:
    with Store.open("bank") as store:
        for line in story(store):
            print(line)


if __name__ == "__main__":
    main()
