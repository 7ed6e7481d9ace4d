"""Commands check and emit, applies change state, and whatever mixes the two is told so."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from types import ModuleType

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


def test_an_apply_that_fails_leaves_nothing_to_be_saved_or_commanded() -> None:
    class Odd(Aggregate):
        count: int = 0

        @command
        def add(self, *amounts: int) -> None:
            for amount in amounts:
                self.emit(Deposited(Decimal(amount)))

        @apply
        def added(self, event: Deposited) -> None:
            self.count += 100 // int(event.amount)

    odd = Odd("1")
    odd.add(1)
    with pytest.raises(ZeroDivisionError):
        odd.add(50, 0)
    assert odd.pending == (Deposited(Decimal(1)),)
    with pytest.raises(AggregateMisused, match="an @apply of it failed"):
        odd.add(1)


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


SOURCE = """
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
import rules
from rules import Money, also
STEP, TABLE = 1, {"a": [1, 2], "b": {"x", "y", None}}
def doubled(function):
    @wraps(function)
    def run(step):
        return function(step) * 2
    return run
@doubled
def helper(step):
    return step + 0
@lru_cache
def kept(step):
    return step + 10
def scaled(step, factor=3):
    return step * factor
half = partial(scaled, factor=0.5)
def up(data):
    return {**data, "a": 20}
@event(version=2, upcasters={1: up})
class Raised:
    a: int
    by: Money
    @property
    def twice(self):
        return self.a * 2
class Mixin:
    def bounded(self, value):
        return min(value, 100)
class Counter(Aggregate, Mixin):
    count: int = 0
    @apply
    def opened(self, event: Opened) -> None:
        self.count += STEP if self.count in {1, 2, "x", "y", None} else helper(STEP) + half(2) + kept(TABLE["a"][0])
    @apply
    def raised(self, event: Raised) -> None:
        self.count = self.bounded(event.twice + rules.rate(event.a) + also(1) + len(Money(3) + Money(4)))
"""
RULES = """
from dataclasses import dataclass
LEAST = 30
@dataclass(frozen=True)
class Limit:
    most: int
LIMIT = Limit(40)
def rate(a):
    return max(a, LEAST, LIMIT.most)
def also(a):
    return a + 50
@dataclass(frozen=True)
class Money:
    units: int
    def __add__(self, other):
        return "m" * (self.units + other.units + 60)
"""


def fingerprint(source: str = SOURCE, rules: str = RULES) -> str:
    module = ModuleType("rules")
    exec(compile(rules, "rules.py", "exec", dont_inherit=True), vars(module))
    names = {"Aggregate": Aggregate, "apply": apply, "event": event, "Opened": Opened, "__name__": "of_the_user"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rules", module)
        exec(compile(source, "own.py", "exec", dont_inherit=True), names)
        return of_aggregate(names["Counter"])  # type: ignore[arg-type]


def test_the_fingerprint_follows_the_code() -> None:
    """The same code has the same one, in this process and in another, and every change that counts another one."""
    assert fingerprint() == fingerprint()
    script = f"from tests.events.test_aggregates import fingerprint; print(fingerprint({SOURCE!r}))"
    for seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert told.stdout.strip() == fingerprint()
    changes = (
        ("STEP, TABLE = 1", "STEP, TABLE = 2"), ('"a": [1, 2]', '"a": [1, 3]'), ('"y", None}}', '"z", None}}'),
        ("* 2\n    return run", "* 3\n    return run"), ("step + 0", "step + 1"), ("step + 10", "step + 11"),
        ("factor=0.5", "factor=0.6"), ("step * factor", "step - factor"), ('"a": 20', '"a": 21'),
        ("self.a * 2", "self.a * 4"), ("value, 100", "value, 101"), ("count: int = 0", "count: int = 7"),
        ("STEP if self", "-STEP if self"), ('{1, 2, "x"', '{1, 3, "x"'),
        ("version=2, upcasters={1: up}", "name='Other'"),
    )  # fmt: skip
    within = (
        ("LEAST = 30", "LEAST = 31"), ("Limit(40)", "Limit(41)"), ("max(a", "min(a"), ("a + 50", "a + 51"),
        ("units + 60", "units + 61"),
    )  # fmt: skip
    assert all(old in SOURCE for old, _ in changes)
    assert all(old in RULES for old, _ in within)
    made = [fingerprint()]
    made += [fingerprint(SOURCE.replace(*change)) for change in changes]
    made += [fingerprint(SOURCE, RULES.replace(*change)) for change in within]
    names = ["unchanged", *(old for old, _ in changes + within)]
    same = [name for name, found in zip(names, made, strict=True) if made.count(found) > 1]
    assert same == []
