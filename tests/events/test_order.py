"""A reader who follows the store is never passed by: concurrent writers, whose commits are delayed in random order.

The fault that this is about: two writers take positions 7 and 8, the second commits first, a reader reads 8 and goes on
from there, and never sees 7. The same test, on a store that takes positions from a sequence, has to see it happen.
"""

from __future__ import annotations

import random
import threading
from decimal import Decimal

import pytest

from millrace.errors import PositionGap
from millrace.events import Store
from tests.command import until
from tests.events.bank import Account, Deposited, Opened, Withdrawn

pytestmark = pytest.mark.server

WRITERS = 5
KINDS = (Opened, Deposited, Withdrawn)


_WAITING = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def followed(store: Store, seed: int) -> tuple[list[int], list[int]]:
    """What a reader who follows sees while writers append, hold their transactions and commit in random order; and what
    is there in the end."""
    chance = random.Random(seed)
    begin = store.head()
    appended, releases, done = ([threading.Event() for _ in range(WRITERS)] for _ in range(3))

    def write(number: int, count: int) -> None:
        account = Account(f"{seed}-{number}")
        for _ in range(count):
            account.deposit(Decimal(1))
        with store.connections.lent() as connection, connection.transaction():
            store.save(account, connection=connection)
            appended[number].set()
            releases[number].wait(60)
        done[number].set()

    def settled() -> bool:
        """Each has written, or waits until it may."""
        with store.connections.lent() as connection:
            (waiting,) = connection.execute(_WAITING).fetchone() or (0,)
        return sum(each.is_set() for each in appended) + waiting == WRITERS

    threads = [threading.Thread(target=write, args=(number, chance.randint(1, 3))) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    until(settled, "the writers")
    seen: list[int] = []

    def look() -> None:
        seen.extend(each.position for each in store.read(seen[-1] if seen else begin, events=KINDS))

    for number in chance.sample(range(WRITERS), WRITERS):
        releases[number].set()
        until(lambda n=number: done[n].is_set() or not appended[n].is_set(), "the commit")  # type: ignore[misc]
        look()
    for thread in threads:
        thread.join()
    look()
    return seen, [each.position for each in store.read(begin, events=KINDS)]


def test_a_follower_sees_everything_in_order(store: Store) -> None:
    for seed in range(12):
        seen, there = followed(store, seed)
        assert seen == there
    everything = store.read()
    assert [each.position for each in everything] == list(range(1, len(everything) + 1))
    assert [each.at for each in everything] == sorted(each.at for each in everything)


def test_positions_of_a_sequence_would_be_passed_by(store: Store) -> None:
    """The same test sees the fault where it is: it can fail."""
    naive(store)
    assert any(seen != there for seen, there in (followed(store, seed) for seed in range(12)))


def test_a_hole_is_told(store: Store) -> None:
    naive(store)
    with store.connections.lent() as connection:
        connection.execute("SELECT nextval('naive')")
    account = Account("1")
    account.deposit(Decimal(1))
    store.save(account)
    with pytest.raises(PositionGap):
        store.read()


def naive(store: Store) -> None:
    """Makes the store's function one without the lock, which takes positions from a sequence."""
    with store.connections.lent() as connection:
        connection.execute("CREATE SEQUENCE naive")
        (text,) = connection.execute("SELECT pg_get_functiondef('events.append'::regproc)").fetchone() or ("",)
        changed = "\n".join(line for line in text.splitlines() if "pg_advisory_xact_lock" not in line)
        changed = changed.replace("coalesce(newest.position, 0) + 1", "nextval('naive')")
        changed = changed.replace("first + u.n - 1", "CASE u.n WHEN 1 THEN first ELSE nextval('naive') END")
        assert changed.count("naive") == 2
        connection.execute(changed.encode())
