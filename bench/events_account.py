"""The account of `bench.events`: what both of its programs store."""

from __future__ import annotations

from decimal import Decimal

from millrace.events import Aggregate, apply, command, event


@event
class Opened:
    owner: str


@event
class Deposited:
    amount: Decimal


class Account(Aggregate):
    owner: str = ""
    balance: Decimal = Decimal(0)

    @command
    def open(self, owner: str) -> None:
        self.emit(Opened(owner))

    @command
    def deposit(self, amount: Decimal) -> None:
        self.emit(Deposited(amount))

    @apply
    def opened(self, event: Opened) -> None:
        self.owner = event.owner

    @apply
    def deposited(self, event: Deposited) -> None:
        self.balance += event.amount
