"""Nothing lost, doubled or reordered: random commands, concurrent writers, and writers killed in the middle."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace import local
from millrace.config import Settings
from millrace.errors import ConflictFound
from millrace.events import Refused, Store, every
from tests.command import environ, until
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


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(commands, max_size=30))
def test_state_is_the_fold_of_events(store: Store, given: list[tuple[int, str, str, Decimal]]) -> None:
    """Two writers with snapshots, whose aggregates grow old in memory, against a dict."""
    prefix = f"{next(_numbers)}-"
    repository = store.repository(Account, snapshots=every(3))
    held: list[dict[str, Account]] = [{}, {}]
    model: Counter[str] = Counter()
    versions: Counter[str] = Counter()
    last: tuple[str, str] | None = None
    for number, (writer, name, what, amount) in enumerate(given):
        account = held[writer].setdefault(name, repository.find(prefix + name))
        fresh = account.version == versions[name]
        if what == "reload":
            held[writer][name] = repository.find(prefix + name)
        elif what == "repeat":
            if last is not None:
                assert repository.change(prefix + last[1], Account.deposit, amount, by=last[0]).repeated
        else:
            try:
                getattr(account, what)(amount)
                command = f"{prefix}{number}"
                assert not repository.save(account, command=command).repeated
                assert fresh
                model[name] += int(amount if what == "deposit" else -amount)
                versions[name] += 1
                last = (command, name)
            except Refused:
                assert account.balance < amount
            except ConflictFound:
                assert not fresh
                held[writer][name] = repository.find(prefix + name)
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
        running[seed] = subprocess.Popen(argv, cwd=root, env=environ())

    try:
        for seed in range(WRITERS):
            start(seed)
        for kill in range(KILLS):
            seed, wanted = chance.randrange(WRITERS), len(lines(kill % WRITERS)) + chance.randint(3, 30)
            until(lambda at=kill % WRITERS, n=wanted: len(lines(at)) >= n, "writers write")  # type: ignore[misc]
            running[seed].kill()
            running[seed].wait()
            start(seed)  # before the first command again: what was handled is not handled twice
    finally:
        for process in running.values():
            process.kill()
            process.wait()

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


def projected(store: Store) -> dict[str, tuple[Decimal, int]]:
    found = balances(store)
    with store.connections.lent() as connection:  # these accounts were never opened
        found._make(connection, found.name)
        connection.execute("INSERT INTO balances.balance SELECT DISTINCT id, 0, 0 FROM events.event")
    return rows(found, store.head())
