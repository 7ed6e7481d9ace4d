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
from tests.events.bank import Account, Deposited, Opened, Withdrawn

pytestmark = pytest.mark.server

WRITERS = 5
KINDS = (Opened, Deposited, Withdrawn)


def followed(store: Store, seed: int) -> tuple[list[int], list[int]]:
    """What a reader who follows sees while writers append, hold their transactions and commit in random order; and what
    is there in the end."""
    chance = random.Random(seed)
    begin = store.head()
    releases = [threading.Event() for _ in range(WRITERS)]
    done = [threading.Event() for _ in range(WRITERS)]

    def write(number: int) -> None:
        account = Account(f"{seed}-{number}")
        for _ in range(chance.randint(1, 3)):
            account.deposit(Decimal(1))
        with store.connections.lent() as connection, connection.transaction():
            store.save(account, connection=connection)
            releases[number].wait(60)
        done[number].set()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
        # Those without a lock get here one after the other; those with one wait for it, and that is as well.
        threading.Event().wait(0.005)
    seen: list[int] = []

    def look() -> None:
        seen.extend(each.position for each in store.read(seen[-1] if seen else begin, events=KINDS))

    for number in chance.sample(range(WRITERS), WRITERS):
        releases[number].set()
        done[number].wait(0.02)
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
