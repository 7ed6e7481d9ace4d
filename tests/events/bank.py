"""A small bank: what the tests of this room share."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from millrace.events import Aggregate, Refused, apply, command, event, personal


@event
class Opened:
    owner: Annotated[str, personal(instead="somebody")]


@event
class Deposited:
    amount: Decimal
    note: str | None = None


@event
class Withdrawn:
    amount: Decimal


class Overdrawn(Refused):
    pass


class Account(Aggregate):
    owner: str = ""
    balance: Decimal = Decimal(0)
    notes: tuple[str, ...] = ()

    @command
    def open(self, owner: str) -> None:
        if self.version:
            raise Refused("it is open")
        self.emit(Opened(owner))

    @command
    def deposit(self, amount: Decimal, note: str | None = None) -> None:
        if amount <= 0:
            raise Refused("nothing")
        self.emit(Deposited(amount, note))

    @command
    def withdraw(self, amount: Decimal) -> None:
        if amount > self.balance:
            raise Overdrawn(f"there are {self.balance}")
        self.emit(Withdrawn(amount))

    @apply
    def opened(self, event: Opened) -> None:
        self.owner = event.owner

    @apply
    def deposited(self, event: Deposited) -> None:
        self.balance += event.amount
        if event.note is not None:
            self.notes = (*self.notes, event.note)

    @apply
    def withdrawn(self, event: Withdrawn) -> None:
        self.balance -= event.amount
