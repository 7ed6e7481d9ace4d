"""Commands check and emit, applies change state, and whatever mixes the two is told so."""

from __future__ import annotations

from decimal import Decimal

import pytest

from millrace.errors import AggregateInvalid, AggregateMisused, EventInvalid, ExpectationMissed
from millrace.events import Aggregate, Refused, apply, command, event, unchanged
from millrace.events.fingerprint import of_aggregate
from millrace.testing import given
from tests.events.bank import Account, Deposited, Opened, Overdrawn, Withdrawn


def test_given_when_then() -> None:
    opened = (Opened("ann"), Deposited(Decimal(5)))
    given(Account, *opened).when(Account.withdraw, Decimal(3)).then(Withdrawn(Decimal(3))).state(balance=Decimal(2))
    given(Account, *opened).when(Account.withdraw, Decimal(9)).refused(Overdrawn).state(balance=Decimal(5))
    given(Account).when(Account.open, "ann").then(Opened("ann"))
    given(Account, *opened).when(Account.open, "bob").refused()


def test_a_wrong_expectation_is_told() -> None:
    done = given(Account, Opened("ann")).when(Account.deposit, Decimal(1))
    with pytest.raises(ExpectationMissed, match=r"Deposited\(amount=Decimal\('1'\)"):
        done.then(Deposited(Decimal(2)))
    with pytest.raises(ExpectationMissed, match="not refused"):
        done.refused()
    with pytest.raises(ExpectationMissed, match="balance is"):
        done.state(balance=Decimal(9))
    refused = given(Account).when(Account.withdraw, Decimal(1))
    with pytest.raises(ExpectationMissed, match="there are 0"):
        refused.then()
    with pytest.raises(ExpectationMissed, match="not KeyError"):
        refused.refused(KeyError)


def test_a_refused_command_leaves_nothing() -> None:
    class Careless(Account):
        @command
        def late(self) -> None:
            self.emit(Deposited(Decimal(1)))
            raise Refused("after all")

    account = Careless("1")
    account.open("ann")
    with pytest.raises(Refused):
        account.late()
    assert (account.version, account.balance, account.pending) == (1, Decimal(0), (Opened("ann"),))


def test_what_happened_does_not_change_with_the_state() -> None:
    @event
    class Begun:
        items: list[str]

    @event
    class Added:
        item: str

    class Basket(Aggregate):
        items: list[str]

        @command
        def begin(self, *items: str) -> None:
            self.emit(Begun(list(items)))

        @command
        def add(self, item: str) -> None:
            self.emit(Added(item))

        @apply
        def begun(self, event: Begun) -> None:
            self.items = event.items

        @apply
        def added(self, event: Added) -> None:
            self.items.append(event.item)

    basket = Basket("1")
    basket.begin("x")
    basket.add("y")
    assert (basket.items, basket.pending) == (["x", "y"], (Begun(["x"]), Added("y")))


def test_only_an_apply_sets_state() -> None:
    class Hasty(Account):
        @command
        def touch(self) -> None:
            self.balance = Decimal(9)

        entries: list[str]

        @command
        def sneak(self) -> None:
            self.entries.append("sneaked")

        @apply
        def opened(self, event: Opened) -> None:
            self.entries = [event.owner]

        @command
        def twice(self) -> None:
            self.deposit(Decimal(1))

    account = Hasty("1")
    account.open("ann")
    for act in (account.touch, lambda: setattr(account, "balance", 1), account.twice):
        with pytest.raises(AggregateMisused):
            act()
    with pytest.raises(AggregateMisused, match="outside of a @command"):
        account.emit(Opened("x"))
    # A list cannot be watched; the harness compares the state with the fold of the events.
    with pytest.raises(ExpectationMissed, match="changed entries itself"):
        given(Hasty, Opened("ann")).when(Hasty.sneak)


def test_definitions_that_cannot_work() -> None:
    with pytest.raises(AggregateInvalid, match="all would share"):

        class Shared(Aggregate):
            entries: list[int] = []  # noqa: RUF012

    with pytest.raises(AggregateInvalid, match="every aggregate has"):

        class Named(Aggregate):
            version: int

    with pytest.raises(EventInvalid, match="no event"):

        class Wrong(Aggregate):
            @apply
            def taken(self, event: int) -> None:
                assert event

    class Undeclared(Aggregate):
        balance: int = 0

        @apply
        def opened(self, event: Opened) -> None:
            self.balanse = 1

    with pytest.raises(AggregateMisused, match="did you mean 'balance'"):
        Undeclared("1").fold([Opened("ann")])
    with pytest.raises(AggregateMisused, match="no @apply for Deposited"):
        Undeclared("1").fold([Deposited(Decimal(1))])
    with pytest.raises(AggregateMisused):
        Account(7)  # type: ignore[arg-type]


def test_upcasters_are_a_whole_chain() -> None:
    with pytest.raises(EventInvalid, match="from version 1 to 2"):

        @event(version=3, upcasters={2: unchanged})
        class Gone:
            a: int

    with pytest.raises(EventInvalid, match="raise its version"):

        @event(version=1, upcasters={1: unchanged})
        class Beyond:
            a: int

    with pytest.raises(EventInvalid, match="no exact form"):

        @event
        class Odd:
            a: object


def counter(step: int, default: int, helped: int) -> type[Aggregate]:
    source = f"""
def helper(step):
    return step + {helped}
class Counter(Aggregate):
    count: int = {default}
    @apply
    def opened(self, event: Opened) -> None:
        self.count += {step} if self.count in {{1, 2, "x", "y", None}} else helper({step})
"""
    names = {"Aggregate": Aggregate, "apply": apply, "Opened": Opened}
    exec(source, names)
    return names["Counter"]  # type: ignore[return-value]


def test_the_fingerprint_follows_the_code() -> None:
    assert of_aggregate(counter(1, 0, 0)) == of_aggregate(counter(1, 0, 0))
    made = [counter(1, 0, 0), counter(2, 0, 0), counter(1, 7, 0), counter(1, 0, 1)]
    assert len({of_aggregate(each) for each in made}) == 4
