"""Rebuilds beside others: of another process, of one that goes on applying, and of schemas that are not theirs."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest

from millrace.errors import ProjectionInvalid
from millrace.events import LiveProjection, Projection, Store
from millrace.events.connections import Connection
from tests.command import until
from tests.events.bank import Account, Deposited

pytestmark = pytest.mark.server


def sums(store: Store, name: str = "sums") -> LiveProjection:
    found = Projection(name, create="CREATE TABLE total (amount numeric); INSERT INTO total VALUES (0)", revision="1")

    @found.on
    def deposited(write: Any, event: Deposited) -> None:
        write.execute("UPDATE total SET amount = amount + %s", (event.amount,))

    return store.projection(found)


def test_a_schema_that_is_not_its_own_is_not_touched(store: Store) -> None:
    store.repository(Account).change("a", Account.open, "ann")
    with store.connections.lent() as connection:
        connection.execute("CREATE SCHEMA sales; CREATE TABLE sales.bill (amount int)")
    for name in ("sales", "events_keys", "events", "public"):
        for act in (sums(store, name).rebuild, sums(store, name).catch_up):
            with pytest.raises(ProjectionInvalid, match=f"has a schema '{name}' already"):
                act()
    with store.connections.lent() as connection:
        found = connection.execute("SELECT to_regclass('sales.bill'), to_regclass('events_keys.key')").fetchone()
    assert found is not None
    assert None not in found
    assert store.repository(Account).load("a").owner == "ann"


def test_who_waits_for_a_switch_goes_on_after_it(store: Store) -> None:
    accounts, live = store.repository(Account), sums(store)
    accounts.change("a", Account.open, "ann")
    live.catch_up()
    saved = accounts.change("a", Account.deposit, Decimal(1))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            live.catch_up()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=follow)
    with store.connections.lent() as watching, store.connections.lent() as connection:
        with connection.transaction():  # as a rebuild does at its end
            assert live._standing(connection, "sums") is not None
            thread.start()
            until(lambda: watching.execute(waiting).fetchone() == (1,), "the follower waits")
            connection.execute(store.sql("DELETE FROM {}.reader WHERE name = 'sums'"))
            connection.execute(store.sql("INSERT INTO {}.reader VALUES ('sums', 1, '1')"))
        thread.join()
    assert failures == []
    assert live.position == saved.position


class Delayed(LiveProjection):
    """A rebuild that is about to switch while somebody writes, and the old tables have it already."""

    def _owned(self, connection: Connection, schema: str) -> bool:
        with self.store.connections.lent() as other:
            filled = self._standing(other, f"{self.name}__next", lock=False)
        if schema == self.name and filled is not None and filled[0] == self.store.head():
            self.store.repository(Account).change("a", Account.deposit, Decimal(10))
            sums(self.store).catch_up()
        return super()._owned(connection, schema)


def test_a_switch_takes_nothing_back_that_was_seen(store: Store) -> None:
    accounts, live = store.repository(Account), sums(store)
    accounts.change("a", Account.open, "ann")
    accounts.change("a", Account.deposit, Decimal(1))
    live.catch_up()
    rebuilt = Delayed(store, live.definition)
    assert rebuilt.rebuild() == store.head() == 3
    with store.connections.lent() as connection:
        assert connection.execute("SELECT amount FROM sums.total").fetchone() == (11,)


def test_rebuilds_at_once_are_one(store: Store) -> None:
    accounts = store.repository(Account)
    accounts.change("a", Account.open, "ann")
    accounts.change("a", Account.deposit, Decimal(1))
    sums(store).catch_up()
    failures: list[BaseException] = []

    def rebuild() -> None:
        try:
            for _ in range(5):
                sums(store).rebuild()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rebuild) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert sums(store).query("SELECT amount FROM total") == [{"amount": 1}]
    assert sorted(store.lags()) == ["sums"]
