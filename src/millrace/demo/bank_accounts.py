"""The bank's own code (`bank.py`): what happens, who decides it, what follows from it. No Kafka and no Spark in it.

`owner` is sealed with a key of the account: to forget the owner is to delete the key.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Annotated, Any

from millrace.events import (
    Aggregate,
    LiveProjection,
    Projection,
    Recorded,
    Refused,
    Saga,
    Store,
    Work,
    apply,
    command,
    event,
    personal,
)


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
class TransferTaken:
    pass


@event
class TransferAccepted:
    pass


@event
class TransferReminded:
    """Whoever watches its deadline has overlooked it: its time begins anew."""


@event
class TransferEnded:
    reason: str | None  # None: it was done


class Overdrawn(Refused):
    pass


# An amount is less than this: the bank's flows have so many digits for it, and would stop at one more.
TOO_MUCH = Decimal(10**12)


def is_money(amount: Decimal) -> bool:
    return math.isfinite(amount) and 0 < amount < TOO_MUCH and amount == round(amount, 2)


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
        self.check(amount)
        self.emit(Deposited(amount, transfer))

    @command
    def withdraw(self, amount: Decimal, transfer: str | None = None) -> None:
        self.check(amount)
        if amount > self.balance:
            raise Overdrawn(f"account {self.id} has {self.balance}")
        self.emit(Withdrawn(amount, transfer))

    def check(self, amount: Decimal) -> None:
        """To draw less than nothing would be to bring money that nobody has."""
        if not self.version:
            raise Refused(f"there is no account {self.id}")
        if not is_money(amount):
            raise Refused(f"{amount} is no amount: that is more than nothing, and in whole cents")

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
    """asked ──▶ taken ──▶ accepted ──▶ ended; it may end anywhere on the way, and once."""

    source: str = ""
    target: str = ""
    amount: Decimal = Decimal(0)
    status: str = ""
    reason: str | None = None

    @command
    def ask(self, source: str, target: str, amount: Decimal) -> None:
        if self.version or source == target or not is_money(amount):
            raise Refused("that is no transfer")
        self.emit(TransferAsked(source, target, amount))

    @command
    def take(self) -> None:
        self.check("asked")
        self.emit(TransferTaken())

    @command
    def accept(self) -> None:
        self.check("taken")
        self.emit(TransferAccepted())

    @command
    def remind(self) -> None:
        self.check("asked", "taken")
        self.emit(TransferReminded())

    @command
    def end(self, reason: str | None = None) -> None:
        self.check("asked", "taken", "accepted")
        self.emit(TransferEnded(reason))

    def check(self, *statuses: str) -> None:
        if self.status not in statuses:
            raise Refused(f"transfer {self.id} is {self.status or 'unknown'}")

    @apply
    def asked(self, event: TransferAsked) -> None:
        self.source, self.target, self.amount, self.status = event.source, event.target, event.amount, "asked"

    @apply
    def went_on(self, event: TransferTaken | TransferAccepted) -> None:
        self.status = "taken" if isinstance(event, TransferTaken) else "accepted"

    @apply
    def reminded(self, event: TransferReminded) -> None:
        pass

    @apply
    def ended(self, event: TransferEnded) -> None:
        self.status, self.reason = "ended", event.reason


# A transfer is a saga: the money is taken at once, and given when the other side has accepted it.

transfers = Saga("transfers")


@transfers.on
def take(work: Work, event: TransferAsked, recorded: Recorded[TransferAsked]) -> None:
    transfer = work.load(Transfer, recorded.id)
    if transfer.status != "asked":
        return  # given up before its turn came
    try:
        work.load(Account, event.source).withdraw(event.amount, transfer.id)
        transfer.take()
    except Refused as refused:
        transfer.end(str(refused))


@transfers.on
def give(work: Work, _: TransferAccepted, recorded: Recorded[TransferAccepted]) -> None:
    transfer = work.load(Transfer, recorded.id)
    try:
        work.load(Account, transfer.target).deposit(transfer.amount, transfer.id)
        transfer.end()
    except Refused as refused:
        give_back(work, transfer.id, str(refused))


def give_back(work: Work, transfer_id: str, reason: str) -> None:
    """The compensation: what was taken goes back. A transfer that has ended stays as it ended."""
    transfer = work.load(Transfer, transfer_id)
    if transfer.status == "ended":
        return
    if transfer.status != "asked":
        work.load(Account, transfer.source).deposit(transfer.amount, transfer.id)
    transfer.end(reason)


def give_up(work: Work, transfer_id: str) -> None:
    """For a transfer that nobody accepted in time; one that was accepted meanwhile is on its way."""
    if work.load(Transfer, transfer_id).status != "accepted":
        give_back(work, transfer_id, "nobody accepted it")


def remind(work: Work, transfer_id: str) -> None:
    """For a transfer whose deadline is not watched; one that was accepted or has ended needs none."""
    transfer = work.load(Transfer, transfer_id)
    if transfer.status in ("asked", "taken"):
        transfer.remind()


# What people look at.

balances = Projection("balances", create="CREATE TABLE balance (account text PRIMARY KEY, amount numeric NOT NULL)")


@balances.on
def account_opened(write: Any, _: AccountOpened, recorded: Recorded[AccountOpened]) -> None:
    write.execute("INSERT INTO balance VALUES (%s, 0)", [recorded.id])


@balances.on
def money_moved(write: Any, event: Deposited | Withdrawn, recorded: Recorded[Any]) -> None:
    amount = event.amount if isinstance(event, Deposited) else -event.amount
    write.execute("UPDATE balance SET amount = amount + %s WHERE account = %s", [amount, recorded.id])


def statements(*, faulty: bool = False) -> Projection:
    """Each account's movements, with the balance after each. The faulty one has forgotten the sign."""
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


def audited(store: Store, live: LiveProjection) -> list[str]:
    """The accounts whose statement does not end with what their events add up to."""
    ends = live.query("SELECT DISTINCT ON (account) account, balance FROM entry ORDER BY account, version DESC")
    accounts = store.repository(Account)
    return [row["account"] for row in ends if accounts.load(row["account"]).balance != row["balance"]]
