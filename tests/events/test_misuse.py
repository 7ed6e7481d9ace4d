"""Wrong values, forks, a database that goes away, and rivals: one sentence each, and nothing lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from millrace import local
from millrace.config import Settings
from millrace.errors import (
    AggregateInvalid,
    AggregateMisused,
    ConflictLasting,
    DatabaseUnreachable,
    EventInvalid,
    StoreMisused,
)
from millrace.events import Aggregate, Projection, Store, Work, apply, command, event, every, joint, rows
from millrace.events.again import ATTEMPTS
from tests.command import until
from tests.events.bank import Account, Deposited, Opened

pytestmark = pytest.mark.server

LONG = "x" * 6_000


def test_what_is_no_id_or_time_or_number_is_told_so(store: Store) -> None:
    accounts = store.repository(Account)
    accounts.change("a", Account.open, "ann")

    def change(**options: Any) -> object:
        return accounts.change("a", Account.deposit, Decimal(1), **options)

    wrong: list[tuple[str, Callable[[], object]]] = [
        ("the id of Account cannot be 5", lambda: accounts.load(5)),  # type: ignore[arg-type]
        ("the id of Account cannot be ''", lambda: Account("")),
        ("the id of Account cannot be 'a\\x00b'", lambda: accounts.find("a\0b")),
        ("6,000 bytes long, and 1,000 are the most", lambda: accounts.find(LONG)),
        ("surrogates not allowed", lambda: accounts.find("\ud800")),
        ("command cannot be 5", lambda: change(by=5)),
        ("command cannot be 'xxx", lambda: change(by=LONG)),
        ("meta cannot be {'a': Decimal('1')}", lambda: change(meta={"a": Decimal(1)})),
        ("version cannot be '2'", lambda: accounts.load("a", version="2")),  # type: ignore[arg-type]
        ("version cannot be True", lambda: accounts.load("a", version=True)),
        ("at cannot be 'yesterday'", lambda: accounts.load("a", at="yesterday")),  # type: ignore[arg-type]
        ("it has no zone", lambda: accounts.load("a", at=datetime(2026, 1, 1))),
        ("subject cannot be 5", lambda: store.forget(5)),  # type: ignore[arg-type]
        ("after cannot be -5", lambda: store.read(-5)),
        ("limit cannot be 1180", lambda: store.read(limit=2**70)),
        ("the key of a deadline cannot be 5", lambda: Work(store, datetime.now(UTC)).later(5, "1 day")),  # type: ignore[arg-type]
        ("the key of a deadline cannot be 5", lambda: Work(store, datetime.now(UTC)).call_off(5)),  # type: ignore[arg-type]
        ("limit cannot be '9'", lambda: store.read(limit="9")),  # type: ignore[arg-type]
        ("an aggregate cannot be <class 'str'>", lambda: store.repository(str)),  # type: ignore[type-var]
        ("an aggregate cannot be 5", lambda: store.save(5)),  # type: ignore[arg-type]
        ("snapshots cannot be 100", lambda: store.repository(Account, snapshots=100)),  # type: ignore[arg-type]
        ("name that of the class: Account.open", lambda: accounts.change("a", "open", "ann")),  # type: ignore[arg-type]
        ("after cannot be 'a'", lambda: store.projection(Projection("p", create="")).wait("a")),  # type: ignore[arg-type]
        ("the id of Account cannot be None", lambda: store.history(Account, None)),  # type: ignore[arg-type]
    ]
    for words, act in wrong:
        with pytest.raises(StoreMisused) as told:
            act()
        assert words in str(told.value)
    assert [type(each.event) for each in store.read(events=[Opened, Deposited])] == [Opened]
    longest = "ü" * 500
    accounts.change(longest, Account.open, "ann", by=longest)
    assert accounts.change(longest, Account.open, "ann", by=longest).repeated
    store.forget(longest)


def test_a_child_that_was_forked_has_connections_of_its_own(store: Store) -> None:
    """As a web server does that loads the app first and then forks its workers. Each has an account of its own: rivals
    for one may be told to come later."""
    accounts = store.repository(Account)
    accounts.change("a", Account.open, "ann")
    store._joint._lock.acquire()  # by a thread that the children do not have
    children = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for _ in range(20):
                    accounts.change(f"a{number}", Account.deposit, Decimal(1))
                store.close()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    store._joint._lock.release()
    for _ in range(20):
        accounts.change("a", Account.deposit, Decimal(1))
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert [accounts.load(id).balance for id in ("a", "a0", "a1", "a2")] == [20] * 4


@contextmanager
def away(settings: Settings, database: str) -> Iterator[None]:
    """The database ends all sessions, and takes no new ones."""
    with psycopg.connect(local.address(settings, "postgres"), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,))
        try:
            yield
        finally:
            connection.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")


def test_who_follows_goes_on_when_the_database_is_back(
    store: Store, settings: Settings, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    sums = Projection("sums", create="CREATE TABLE total (amount numeric); INSERT INTO total VALUES (0)")

    @sums.on
    def deposited(connection: Any, event: Deposited) -> None:
        connection.execute("UPDATE total SET amount = amount + %s", (event.amount,))

    accounts, live = store.repository(Account), store.projection(sums)
    accounts.change("a", Account.open, "ann")
    heard: list[Any] = []
    enough = threading.Event()

    def listen() -> None:
        for each in store.follow(events=[Deposited], ended=enough.is_set):
            heard.append(each.event.amount)
            if len(heard) == 2:
                enough.set()

    listener = threading.Thread(target=listen, daemon=True)
    with live.running():
        listener.start()
        live.wait(accounts.change("a", Account.deposit, Decimal(1)), apply=False)
        with away(settings, database):
            while sum("waits: " in each.message for each in caplog.records) < 2:
                assert listener.is_alive()
                enough.wait(0.05)
        saved = accounts.change("a", Account.deposit, Decimal(2))
        live.wait(saved, apply=False, seconds=60)
        assert live.query("SELECT amount FROM total") == [{"amount": 3}]
        listener.join(60)
    assert heard == [1, 2]
    told = [each.message for each in caplog.records if each.name == "millrace.events"]
    assert sorted({each.partition(" ")[2].partition(":")[0] for each in told}) == [
        "follower goes on",
        "follower waits",
        "goes on",
        "waits",
    ]


def test_what_ends_a_follower_is_said_at_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    broken = Projection("broken", create="CREATE TABLE t (a integer)")

    @broken.on
    def deposited(connection: Any, event: Deposited) -> None:
        raise ValueError("no such thing")

    accounts = store.repository(Account)
    accounts.change("a", Account.open, "ann")
    accounts.change("a", Account.deposit, Decimal(1))

    def run() -> None:
        with store.projection(broken).running():
            while "broken has ended: no such thing" not in caplog.text:
                store.wait(store.head(), 0.05)

    with pytest.raises(ValueError, match="no such thing"):
        run()


def test_rivals_without_end_are_named(store: Store) -> None:
    accounts = store.repository(Account)
    accounts.change("a", Account.open, "ann")
    tries = []

    def disturbed(account: Account) -> None:
        tries.append(account.version)
        store.repository(Account).change("a", Account.deposit, Decimal(1))
        account.deposit(Decimal(5))

    with pytest.raises(ConflictLasting, match=f"each of the {ATTEMPTS} times") as told:
        accounts.change("a", disturbed)
    assert "repository.change" not in str(told.value)
    with pytest.raises(ConflictLasting):
        store.change(lambda work: disturbed(work.load(Account, "a")))
    assert (len(tries), accounts.load("a").balance) == (2 * ATTEMPTS, 2 * ATTEMPTS)


def test_a_state_that_is_none_is_not_saved(store: Store) -> None:
    class Odd(Aggregate):
        count: int = 0

        @command
        def add(self, amount: int) -> None:
            self.emit(Deposited(Decimal(amount)))

        @apply
        def added(self, event: Deposited) -> None:
            self.count += 100 // int(event.amount)

    odd = Odd("1")
    odd.add(1)
    with pytest.raises(ZeroDivisionError):
        odd.add(0)
    with pytest.raises(AggregateMisused, match="an @apply of it failed"):
        store.save(odd)
    assert store.head() == 0


def test_who_is_interrupted_interrupts_nobody_else(store: Store) -> None:
    """One thread writes for those who wait with it: a Ctrl-C is its own."""
    accounts, mine, other = store.repository(Account), Account("a"), Account("b")
    accounts.change("c", Account.open, "ann")
    mine.open("ann")
    other.open("bob")
    waits = joint._Asked(rows.encoded(store, None, [other], None, None))
    store._joint._waiting.append(waits)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

    def interrupt() -> None:
        with store.connections.lent() as watching:
            until(lambda: watching.execute(waiting).fetchone() == (1,), "the writer waits")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with store.connections.lent() as connection, connection.transaction():
        held = accounts.load("c")
        held.deposit(Decimal(1))
        store.save(held, connection=connection)  # all other writers wait
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            store.save(mine)
    thread.join()
    assert isinstance(waits.error, DatabaseUnreachable)
    assert accounts.find("a").version == accounts.find("b").version == 0
    accounts.change("a", Account.open, "ann")


@event
class Counted:
    number: int


class Count(Aggregate):
    number: int = 0

    @command
    def set(self, number: int) -> None:
        self.emit(Counted(number))

    @apply
    def counted(self, event: Counted) -> None:
        self.number = event.number


def test_a_number_that_cannot_be_written_is_told_so(store: Store) -> None:
    with pytest.raises(EventInvalid, match="Counted"):
        store.repository(Count).change("a", Count.set, 10**5_000)


def test_what_is_shared_by_all_is_no_default() -> None:
    @dataclass
    class Past:
        notes: list[str]

    with pytest.raises(AggregateInvalid, match="begins with a Past that all would share"):

        class Account(Aggregate):
            past: Past = Past([])


@dataclass(frozen=True)
class Mark:
    weight: float


@event
class Weighed:
    weight: Decimal


class Scale(Aggregate):
    """Its state is what Python makes of it: whole numbers where others are meant, and a None that is not said."""

    total: Decimal
    mean: float
    marks: list[Mark]
    label: str

    @command
    def weigh(self, weight: Decimal) -> None:
        self.emit(Weighed(weight))

    @apply
    def weighed(self, event: Weighed) -> None:
        self.total = 0 if not self.version else self.total + event.weight  # type: ignore[assignment]
        self.mean = self.version
        self.marks = [Mark(self.version), Mark(0.5)]
        if event.weight < 0:
            self.label = None  # type: ignore[assignment]


def test_a_snapshot_holds_whole_numbers_where_others_are_meant(store: Store) -> None:
    scales = store.repository(Scale, snapshots=every(1))
    for weight in (3, 4):
        scales.change("s", Scale.weigh, Decimal(weight))
        folded, first, by_snapshot = (
            scales.load("s", version=scales.load("s").version),
            scales.load("s"),
            scales.load("s"),
        )
        assert repr(folded) == repr(first) == repr(by_snapshot)
        with store.connections.lent() as connection:
            assert connection.execute("SELECT version FROM events.snapshot").fetchone() == (folded.version,)


def test_a_state_that_no_snapshot_can_hold_is_loaded_all_the_same(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    scales = store.repository(Scale, snapshots=every(1))
    scales.change("s", Scale.weigh, Decimal(-1))
    for _ in range(3):
        assert scales.load("s").label is None
    (told,) = [each.getMessage() for each in caplog.records if each.name == "millrace.events"]
    assert "label: None is not a text" in told
