"""Nothing lost, doubled or reordered: random commands, concurrent writers, and writers killed in the middle."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace import local
from millrace.config import Settings
from millrace.demo import bank
from millrace.demo.bank_accounts import Account as BankAccount
from millrace.demo.bank_accounts import (
    AccountOpened,
    Transfer,
    TransferAsked,
    TransferEnded,
    TransferTaken,
    Withdrawn,
    transfers,
)
from millrace.errors import AggregateUnknown, ConflictFound
from millrace.events import Refused, Store, every
from millrace.events.tables import LOCK
from tests.command import environ, until
from tests.events import follower
from tests.events.bank import Account
from tests.events.test_projections import balances, folded, rows

pytestmark = pytest.mark.server

WRITERS, KILLS = 3, 5

_numbers = itertools.count()
accounts_named = st.sampled_from(["x", "y"])
commands = st.tuples(
    st.integers(0, 1),  # which of two writers, each with aggregates of its own in memory
    accounts_named,
    st.sampled_from(["deposit", "withdraw", "reload", "repeat"]),
    st.integers(1, 5).map(Decimal),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(commands, max_size=30))
def test_state_is_the_fold_of_events(store: Store, given: list[tuple[int, str, str, Decimal]]) -> None:
    """Two writers with snapshots, whose aggregates grow old in memory, against a dict."""
    prefix = f"{next(_numbers)}-"
    repository = store.repository(Account, snapshots=every(3))
    held: list[dict[str, Account]] = [{}, {}]
    model: Counter[str] = Counter()
    versions: Counter[str] = Counter()
    last: tuple[str, str] | None = None
    past: list[tuple[str, datetime, int, int]] = []  # of an account: at this moment, this version and balance
    for number, (writer, name, what, amount) in enumerate(given):
        account = held[writer].setdefault(name, repository.find(prefix + name))
        fresh = account.version == versions[name]
        if what == "reload":
            held[writer][name] = repository.find(prefix + name)
        elif what == "repeat":
            if last is not None:
                assert repository.change(prefix + last[1], Account.deposit, amount, by=last[0]).repeated
                again = repository.find(prefix + last[1])
                again.deposit(amount)  # who did not ask before whether it was handled
                assert repository.save(again, command=last[0]).repeated
                assert (again.version, again.pending) == (versions[last[1]], ())
        else:
            try:
                getattr(account, what)(amount)
                command = f"{prefix}{number}"
                saved = repository.save(account, command=command)
                assert not saved.repeated
                assert fresh
                model[name] += int(amount if what == "deposit" else -amount)
                versions[name] += 1
                last = (command, name)
                assert saved.at is not None
                past.append((name, saved.at, versions[name], model[name]))
            except Refused:
                assert account.balance < amount
            except ConflictFound:
                assert not fresh
                held[writer][name] = repository.find(prefix + name)
    for number, (name, at, version, balance) in enumerate(past):
        then = repository.load(prefix + name, at=at)
        assert (then.version, then.balance) == (version, balance)
        for other in {each[0] for each in past[:number]}:  # of one that did not move then: what it was last
            last_of = next(each for each in reversed(past[: number + 1]) if each[0] == other)
            assert repository.load(prefix + other, at=at).version == last_of[2]
    if past:
        with pytest.raises(AggregateUnknown):
            repository.load(prefix + past[0][0], at=past[0][1] - timedelta(microseconds=1))
    for name, version in versions.items():
        for found in (repository.load(prefix + name), repository.load(prefix + name, version=version)):
            assert (found.balance, found.version) == (model[name], version)
        events = store.history(Account, prefix + name)
        assert [each.version for each in events] == list(range(1, version + 1))
        assert [each.position for each in events] == sorted(each.position for each in events)


def test_killed_writers(store: Store, settings: Settings, database: str, tmp_path: Path) -> None:
    """Processes that write to the same accounts are killed at random, and their commands run again from the first."""
    chance = random.Random(7)
    url = local.address(settings, "postgres").rpartition("/")[0] + f"/{database}"
    running: dict[int, subprocess.Popen[bytes]] = {}
    acknowledged = {seed: tmp_path / f"{seed}" for seed in range(WRITERS)}

    def lines(seed: int) -> list[str]:
        return acknowledged[seed].read_text().splitlines() if acknowledged[seed].exists() else []

    def start(seed: int) -> None:
        argv = [sys.executable, "-m", "tests.events.writer", url, str(seed), str(acknowledged[seed])]
        root = Path(__file__).parent.parent.parent
        running[seed] = subprocess.Popen(argv, cwd=root, env=environ({"PGAPPNAME": "writer"}))

    def ended() -> bool:
        """The server may still commit what a killed process sent."""
        with store.connections.lent() as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'writer'"
            return connection.execute(query).fetchone() == (0,)

    try:
        for seed in range(WRITERS):
            start(seed)
        for kill in range(KILLS):
            seed, wanted = chance.randrange(WRITERS), len(lines(kill % WRITERS)) + chance.randint(3, 30)
            until(lambda at=kill % WRITERS, n=wanted: len(lines(at)) >= n, "writers write")  # type: ignore[misc]
            running[seed].kill()
            running[seed].wait()
            start(seed)  # before the first command again: what was handled is not handled twice
        assert not ended()
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    until(ended, "nobody writes")

    events = store.read(events=tuple(Account.__aggregate__.applies))
    assert len(events) > WRITERS * 10
    assert [each.position for each in store.read()] == list(range(1, store.head() + 1))
    told = {line for seed in range(WRITERS) for line in lines(seed)}
    per_command: dict[str, list[tuple[int, str]]] = {}
    for each in events:
        assert each.command is not None
        per_command.setdefault(each.command, []).append((each.position, type(each.event).__name__))
    assert told <= set(per_command)  # nothing lost
    for found in per_command.values():  # nothing doubled, and a transfer is whole
        kinds = [kind for _, kind in found]
        assert kinds in (["Deposited"], ["Withdrawn"], ["Withdrawn", "Deposited"])
        assert [position for position, _ in found] == list(range(found[0][0], found[0][0] + len(found)))
    ids = sorted({each.id for each in events})
    for id in ids:  # nothing reordered
        versions = [each.version for each in events if each.id == id]
        assert versions == list(range(1, len(versions) + 1))
        assert store.repository(Account, snapshots=every(7)).verify(id)
    signed = sum(
        (-each.event.amount if type(each.event).__name__ == "Withdrawn" else each.event.amount) for each in events
    )
    assert sum(store.repository(Account).load(id).balance for id in ids) == signed
    assert min(store.repository(Account).load(id).balance for id in ids) >= 0
    assert projected(store) == folded(store, ids)


@pytest.mark.turn(1, 2)
def test_killed_followers(store: Store, settings: Settings, database: str) -> None:
    """Processes that project, that rebuild a projection and that run a saga are killed while they are at it."""
    chance = random.Random(7)
    url = local.address(settings, "postgres").rpartition("/")[0] + f"/{database}"
    running: dict[str, subprocess.Popen[bytes]] = {}

    def start(what: str) -> None:
        argv = [sys.executable, "-m", "tests.events.follower", url, what]
        running[what] = subprocess.Popen(argv, cwd=Path(__file__).parent.parent.parent, env=environ())

    def reached(what: str) -> int:
        with store.connections.lent() as connection:
            query = "SELECT coalesce(max(position), 0) FROM events.reader WHERE name = %s"
            return int(connection.execute(query, (follower.READERS[what],)).fetchone()[0])  # type: ignore[index]

    bank.stock(store)
    try:
        for what in follower.READERS:
            start(what)
        number = 0
        for kill in range(2 * len(follower.READERS)):
            for _ in range(15):
                number += 1
                bank.business(store, chance, number)
            what = sorted(follower.READERS)[kill % len(follower.READERS)]
            began = reached(what)
            until(lambda what=what, began=began: reached(what) != began, f"{what} goes on")  # type: ignore[misc]
            running[what].kill()
            running[what].wait()
            start(what)
        until(lambda: reached("saga") == store.head(), "the saga comes to the end")
    finally:
        for process in running.values():
            process.kill()
            process.wait()

    ids = [each.id for each in store.read(events=[AccountOpened])]
    model = {id: sum_of(store, id) for id in ids}
    accounts = store.repository(BankAccount)
    assert {id: accounts.load(id).balance for id in ids} == model
    for name in ("balances", "rebuilt"):
        live = follower.projected(store, name)
        if name == "rebuilt":
            live.rebuild()  # goes on with what was begun
        found = live.query("SELECT * FROM balance", after=store.head())
        assert {row["account"]: row["amount"] for row in found} == model, name
    assert len(store.read(events=[TransferAsked])) > 10
    assert_steps_once(store)


# What a step has not come past while the test holds it: a table that it writes, its own place, the order of events.
HOLDING = (
    ("project", "LOCK TABLE balances.balance IN ACCESS EXCLUSIVE MODE"),
    ("project", "LOCK TABLE events.reader IN SHARE MODE"),  # may be read for update, and not be updated
    ("saga", f"SELECT pg_advisory_xact_lock({LOCK}, 'events.event'::regclass::oid::integer)"),
)


def test_killed_in_the_middle_of_a_step(store: Store, settings: Settings, database: str) -> None:
    """A step that is held up halfway, and whose process is killed there, has not happened; and then happens once."""
    chance = random.Random(7)
    url = local.address(settings, "postgres").rpartition("/")[0] + f"/{database}"
    bank.stock(store)
    live, saga = follower.projected(store, "balances"), store.saga(transfers)
    for number, (what, holding) in enumerate(HOLDING):
        live.catch_up()
        saga.catch_up()
        store.repository(BankAccount).change("account-0", BankAccount.deposit, Decimal(7))
        store.repository(Transfer).change(f"held-{number}", Transfer.ask, "account-0", "account-1", Decimal(5))
        bank.business(store, chance, number)
        with store.connections.lent() as connection, connection.transaction():
            connection.execute(holding.encode())
            argv = [sys.executable, "-m", "tests.events.follower", url, what]
            process = subprocess.Popen(argv, cwd=Path(__file__).parent.parent.parent, env=environ())
            try:
                until(lambda: held_up(store), f"{what} is held up")
            finally:
                process.kill()
                process.wait()
    saga.catch_up()
    ids = [each.id for each in store.read(events=[AccountOpened])]
    rows = live.query("SELECT * FROM balance", after=store.head())
    assert {row["account"]: row["amount"] for row in rows} == {id: sum_of(store, id) for id in ids}
    assert_steps_once(store)


def held_up(store: Store) -> bool:
    with store.connections.lent() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return connection.execute(query).fetchone() != (0,)


def assert_steps_once(store: Store) -> None:
    """What was asked was taken or refused, once; and what was taken was withdrawn, once."""
    asked = {each.id for each in store.read(events=[TransferAsked])}
    taken = Counter(each.id for each in store.read(events=[TransferTaken]))
    refused = Counter(each.id for each in store.read(events=[TransferEnded]))
    moved = Counter(each.event.transfer for each in store.read(events=[Withdrawn]) if each.event.transfer)
    assert taken + refused == Counter(asked)
    assert moved == taken


def sum_of(store: Store, id: str) -> Decimal:
    """By hand, from the rows."""
    with store.connections.lent() as connection:
        query = (
            "SELECT type, data FROM events.event WHERE aggregate = 'Account' AND id = %s AND type <> 'AccountOpened'"
        )
        rows = connection.execute(query, (id,)).fetchall()
    return sum((Decimal(data["amount"]) * (1 if kind == "Deposited" else -1) for kind, data in rows), Decimal(0))


def projected(store: Store) -> dict[str, tuple[Decimal, int]]:
    found = balances(store)
    with store.connections.lent() as connection:  # these accounts were never opened
        found._make(connection, found.name)
        connection.execute("INSERT INTO balances.balance SELECT DISTINCT id, 0, 0 FROM events.event")
    return rows(found, store.head())
