"""Projections: exactly once, seen when asked for, rebuilt beside and switched. Sagas: steps that happen once."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from millrace.errors import ProjectionBehind, ProjectionChanged, ProjectionInvalid
from millrace.events import (
    Aggregate,
    LiveProjection,
    LiveSaga,
    Projection,
    Recorded,
    Refused,
    Saga,
    Store,
    Work,
    apply,
    command,
    event,
)
from tests.command import until
from tests.events.bank import Account, Deposited, Opened, Withdrawn

pytestmark = pytest.mark.server

TABLE = "CREATE TABLE balance (account text PRIMARY KEY, amount numeric NOT NULL, events int NOT NULL)"


def balances(store: Store, *, sign: int = -1) -> LiveProjection:
    found = Projection("balances", create=TABLE, revision=f"sign {sign}")

    @found.on
    def opened(write: Any, event: Opened, recorded: Recorded[Opened]) -> None:
        assert event
        write.execute("INSERT INTO balance VALUES (%s, 0, 1)", (recorded.id,))

    @found.on
    def moved(write: Any, event: Deposited | Withdrawn, recorded: Recorded[Any]) -> None:
        amount = event.amount if isinstance(event, Deposited) else sign * event.amount
        change = "UPDATE balance SET amount = amount + %s, events = events + 1 WHERE account = %s"
        write.execute(change, (amount, recorded.id))

    return store.projection(found)


def rows(projection: LiveProjection, after: Any = 0) -> dict[str, tuple[Decimal, int]]:
    found = projection.query("SELECT * FROM balance", after=after)
    return {row["account"]: (row["amount"], row["events"]) for row in found}


def folded(store: Store, ids: list[str]) -> dict[str, tuple[Decimal, int]]:
    accounts = store.repository(Account)
    return {id: (accounts.load(id).balance, accounts.load(id).version) for id in ids}


def test_a_query_sees_what_was_just_written(store: Store) -> None:
    accounts, projection = store.repository(Account), balances(store)
    for number in range(3):
        accounts.change(f"a{number}", Account.open, "ann")
        saved = accounts.change(f"a{number}", Account.deposit, Decimal(number + 1))
    assert projection.lag().events == 6
    assert projection.lag().seconds > 0
    assert rows(projection, saved) == folded(store, ["a0", "a1", "a2"])
    assert (projection.lag().events, projection.lag().seconds, projection.position) == (0, 0, 6)
    saved = accounts.change("a0", Account.withdraw, Decimal(1))
    assert rows(projection)["a0"] == (1, 2)  # it was not asked to wait
    with pytest.raises(ProjectionBehind, match="position 6 and not to 7"):
        projection.wait(saved, apply=False, seconds=0.05)
    assert {name: lag.events for name, lag in store.lags().items()} == {"balances": 1}
    with projection.running():
        projection.wait(saved, apply=False, seconds=60)
    assert rows(projection)["a0"] == (0, 3)


def test_several_apply_each_event_once(store: Store) -> None:
    accounts = store.repository(Account)
    accounts.change("a", Account.open, "ann")
    balances(store).catch_up()

    def write() -> None:
        for _ in range(20):
            accounts.change("a", Account.deposit, Decimal(1))
            balances(store).catch_up()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(balances(store), store.head()) == folded(store, ["a"]) == {"a": (60, 61)}


def test_a_failure_leaves_the_tables_where_they_were(store: Store) -> None:
    accounts, projection = store.repository(Account), balances(store)
    accounts.change("a", Account.open, "ann")
    projection.catch_up()
    projection.handlers.functions[Withdrawn] = lambda *_: 1 // 0
    with pytest.raises(ZeroDivisionError), projection.running():  # noqa: PT012
        accounts.change("a", Account.deposit, Decimal(1))
        accounts.change("a", Account.withdraw, Decimal(1))
        until(lambda: not any("balances" in each.name for each in threading.enumerate()), "the thread's end")
    assert projection.position in (1, 2)  # the deposit was applied with it or before
    projection = balances(store)
    assert rows(projection, store.head()) == folded(store, ["a"]) == {"a": (0, 3)}


def test_a_fault_is_mended_by_rebuilding_beside(store: Store) -> None:
    accounts, wrong = store.repository(Account), balances(store, sign=+1)
    accounts.change("a", Account.open, "ann")
    accounts.change("a", Account.deposit, Decimal(5))
    saved = accounts.change("a", Account.withdraw, Decimal(2))
    assert rows(wrong, saved)["a"] == (7, 3)
    right = balances(store)
    with pytest.raises(ProjectionChanged):
        right.catch_up()
    assert right.query("SELECT amount FROM balance")[0]["amount"] == 7  # the old one goes on being served
    assert right.rebuild() == saved.position
    assert rows(right) == folded(store, ["a"])
    accounts.change("a", Account.deposit, Decimal(1))
    with pytest.raises(ProjectionChanged):  # the old code finds that it is not asked any more
        wrong.catch_up()
    assert rows(right, store.head()) == folded(store, ["a"])


def test_what_cannot_be_a_projection(store: Store) -> None:
    for name in ("Balances", "a__b", "", "a-b"):
        with pytest.raises(ProjectionInvalid):
            Projection(name, create="")
    projection = balances(store).definition
    with pytest.raises(ProjectionInvalid, match="two functions"):

        @projection.on
        def again(write: Any, event: Opened) -> None:
            assert write
            assert event

    with pytest.raises(ProjectionInvalid, match="handles no event"):
        store.projection(Projection("empty", create="")).catch_up()


@event
class Asked:
    source: str
    target: str
    amount: Decimal


@event
class Ended:
    how: str


class Transfer(Aggregate):
    how: str = ""

    @command
    def ask(self, source: str, target: str, amount: Decimal) -> None:
        self.emit(Asked(source, target, amount))

    @command
    def end(self, how: str) -> None:
        if not self.how:
            self.emit(Ended(how))

    @apply
    def asked(self, event: Asked) -> None:
        self.how = ""

    @apply
    def ended(self, event: Ended) -> None:
        self.how = event.how


def transfers(store: Store) -> LiveSaga:
    saga = Saga("transfers")

    @saga.on
    def asked(work: Work, event: Asked, recorded: Recorded[Asked]) -> None:
        transfer = work.load(Transfer, recorded.id)
        if event.target == "nobody":
            work.later(recorded.id, "1 hour")
            return
        try:
            work.load(Account, event.source).withdraw(event.amount)
        except Refused:
            transfer.end("refused")
            return
        work.load(Account, event.target).deposit(event.amount)
        transfer.end("done")

    @saga.on
    def ended(work: Work, event: Ended, recorded: Recorded[Ended]) -> None:
        assert event
        work.call_off(recorded.id)

    @saga.deadline
    def expired(work: Work, key: str) -> None:
        work.load(Transfer, key).end("expired")

    return store.saga(saga)


def due(store: Store) -> list[str]:
    with store.connections.lent() as connection:
        return [key for (key,) in connection.execute("SELECT key FROM events.deadline")]


def test_a_saga(store: Store) -> None:
    accounts, moves, saga = store.repository(Account), store.repository(Transfer), transfers(store)
    for name in ("a", "b"):
        accounts.change(name, Account.open, name)
    accounts.change("a", Account.deposit, Decimal(5))
    moves.change("t1", Transfer.ask, "a", "b", Decimal(3))
    moves.change("t2", Transfer.ask, "a", "b", Decimal(3))
    moves.change("t3", Transfer.ask, "a", "nobody", Decimal(1))
    saga.catch_up()
    assert [moves.load(id).how for id in ("t1", "t2", "t3")] == ["done", "refused", ""]
    assert (accounts.load("a").balance, accounts.load("b").balance) == (2, 3)
    head = store.head()
    saga.catch_up()
    assert store.head() == head
    assert store.history(Account, "b")[-1].meta == {"saga": "transfers", "because": 4}
    saga.catch_up(now=datetime.now(UTC) + timedelta(hours=2))
    assert moves.load("t3").how == "expired"
    moves.change("t4", Transfer.ask, "a", "nobody", Decimal(1))
    saga.catch_up()
    assert due(store) == ["t4"]
    moves.change("t4", Transfer.end, "stopped")
    saga.catch_up()
    assert due(store) == []  # called off: who would be called with it need not look
    saga.catch_up(now=datetime.now(UTC) + timedelta(hours=2))
    assert moves.load("t4").how == "stopped"


def test_steps_of_a_saga_happen_once(store: Store) -> None:
    """Several processes run it, others write to the same accounts meanwhile, and steps break off in the middle."""
    accounts, moves = store.repository(Account), store.repository(Transfer)
    for name in ("a", "b"):
        accounts.change(name, Account.open, name)
        accounts.change(name, Account.deposit, Decimal(1_000))
    failing = transfers(store)
    kept = failing.handlers.functions[Asked]
    broken = iter([True, False, True, True, False] * 20)

    def breaks_off(*given: Any) -> None:
        kept(*given)
        if next(broken, False):
            raise RuntimeError("broken off")

    failing.handlers.functions[Asked] = breaks_off  # type: ignore[assignment]
    failing.handlers.functions[Asked].__signature__ = __import__("inspect").signature(kept)  # type: ignore[attr-defined]

    def run(saga: LiveSaga) -> None:
        for number in range(15):
            moves.change(f"{id(saga)}-{number}", Transfer.ask, "a", "b", Decimal(1))
            accounts.change("b", Account.deposit, Decimal(1))
            try:
                saga.catch_up()
            except RuntimeError:
                continue

    threads = [threading.Thread(target=run, args=(saga,)) for saga in (transfers(store), failing)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    transfers(store).catch_up()
    done = [each for each in store.read(events=[Ended]) if each.event.how == "done"]
    assert len(done) == len({each.id for each in done}) == 30
    assert (accounts.load("a").balance, accounts.load("b").balance) == (1_000 - 30, 1_000 + 30 + 30)


def test_a_saga_may_leave_out_the_past(store: Store) -> None:
    moves = store.repository(Transfer)
    moves.change("t1", Transfer.ask, "a", "nobody", Decimal(1))
    saga = transfers(store)
    saga.definition.begin = "now"
    saga.catch_up()
    moves.change("t2", Transfer.ask, "a", "nobody", Decimal(1))
    saga.catch_up(now=datetime.now(UTC) + timedelta(hours=2))
    assert [moves.load(id).how for id in ("t1", "t2")] == ["", "expired"]
    with pytest.raises(ProjectionInvalid):
        Saga("x", begin="soon")  # type: ignore[arg-type]
