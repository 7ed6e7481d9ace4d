"""Loads and a rebuild in a store that is full: what `bench.events --stored N` measures beside the comparison.

- accounts of a thousand events, written in turn, so that each one's events are spread over the table: loads of random
  ones with a snapshot that is as old as `every(100)` lets it become (99 events stand after it), and without;
- one very long account: likewise, and changes of it;
- a projection that is made anew, one UPDATE an event: events a second, over as many as fit into REBUILD_S.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from bench.events_account import Account, Deposited
from millrace.events import Projection, Recorded, Repository, Store, every
from millrace.events.projection import NEXT, LiveProjection

EACH, BEHIND = 1_000, 99
# So many accounts are written in turn: a million events lie between an account's first and its last.
TOGETHER = 1_000
LONG_SHARE, LONGEST = 10, 1_000_000
LOADS, LONG_LOADS, CHANGES = 2_000, 3, 200
REBUILD_S = 60.0
LONG_ID = "stored-long"

_INSERT = """
INSERT INTO events.event (position, aggregate, id, version, type, schema, at, data)
SELECT %(after)s + n + 1, 'Account', {id}, {version}, 'Deposited', 1,
    '2026-01-01'::timestamptz + (%(after)s + n) * interval '1 ms', '{{"amount":"1.25"}}'
FROM generate_series(0, %(count)s - 1) n
"""


def fill(store: Store, events: int) -> None:
    """At least so many events of accounts, and the long one's, written past `append`; with their snapshots."""
    store.repository(Account)
    together = max(1, min(TOGETHER, events // EACH))
    spread = _INSERT.format(id="'stored-' || (%(first)s + n %% %(together)s)", version="n / %(together)s + 1")
    after = accounts = 0
    with store.connections.lent() as connection:
        while after < events:
            given = {"after": after, "count": together * EACH, "first": accounts, "together": together}
            connection.execute(spread.encode(), given)
            after, accounts = after + together * EACH, accounts + together
            print(f"stored {after} of {events} events", flush=True)
        alone = _INSERT.format(id=f"'{LONG_ID}'", version="n + 1")
        connection.execute(alone.encode(), {"after": after, "count": long_of(events)})
        connection.execute("VACUUM ANALYZE events.event")
    _snapshots(store, EACH, "id <> %s")
    _snapshots(store, long_of(events), "id = %s")


def long_of(events: int) -> int:
    return min(LONGEST, max(EACH, events // LONG_SHARE))


def _snapshots(store: Store, events: int, which: str) -> None:
    """Snapshots of accounts of so many events, 99 before their last. They are alike, so one state is that of all."""
    repository = store.repository(Account, snapshots=every(BEHIND + 1))
    assert repository.snapshots is not None
    version = events - BEHIND
    model = Account("model").fold([Deposited(Decimal("1.25"))] * version)
    state = repository.snapshots.encode(model)
    with store.connections.lent() as connection:
        connection.execute(
            "INSERT INTO events.snapshot SELECT aggregate, id, version, position, %s, json_build_object('balance', "
            f"%s::text), '{{}}' FROM events.event WHERE aggregate = 'Account' AND version = %s AND {which} "
            "AND id LIKE 'stored-%%'",
            (repository.snapshots.fingerprint, state["balance"], version, LONG_ID),
        )
        connection.execute("VACUUM ANALYZE events.snapshot")


def measured(store: Store, events: int) -> dict[str, Any]:
    together = max(1, min(TOGETHER, events // EACH))
    accounts = -(-events // (together * EACH)) * together
    chance = random.Random(1)
    some = [f"stored-{chance.randrange(accounts)}" for _ in range(LOADS)]
    kept, bare = store.repository(Account, snapshots=every(BEHIND + 1)), store.repository(Account)
    long = long_of(events)
    figures = {"events": store.head(), "accounts": accounts, "long_events": long, "bytes_an_event": _bytes(store)}
    assert _behind(store, some[0], kept) == _behind(store, LONG_ID, kept) == BEHIND
    for name in some[:50]:  # warm
        assert kept.load(name).balance == bare.load(name).balance == Decimal("1.25") * EACH
    return figures | {
        "load_with_snapshots_ms": _loads(kept, some, EACH),
        "load_without_snapshots_ms": _loads(bare, some[: LOADS // 10], EACH),
        "long_load_with_snapshots_ms": _loads(kept, [LONG_ID] * LOADS, long),
        "long_load_without_snapshots_ms": _loads(bare, [LONG_ID] * LONG_LOADS, long),
        "long_change_ms": _changes(kept),
        "rebuild": _rebuilt(store, REBUILD_S),
    }


def _bytes(store: Store) -> int:
    """On disk, indexes included; the replication log that filling wrote comes on top of it for a while."""
    with store.connections.lent() as connection:
        row = connection.execute("SELECT pg_total_relation_size('events.event')").fetchone()
    assert row is not None
    return round(row[0] / store.head())


def _behind(store: Store, name: str, kept: Repository[Account]) -> int:
    """How many events a load applies after the snapshot."""
    with store.connections.lent() as connection:
        found = kept._load(connection, name)
    assert found is not None
    return found.since


def _loads(repository: Repository[Account], ids: list[str], version: int) -> dict[str, float]:
    def load(name: str) -> None:
        assert repository.load(name).version == version

    return _times([partial(load, name) for name in ids])


def _changes(repository: Repository[Account]) -> dict[str, float]:
    return _times([lambda: repository.change(LONG_ID, Account.deposit, Decimal("1.25"))] * CHANGES)


def _times(works: list[Callable[[], Any]]) -> dict[str, float]:
    found = []
    for work in works:
        begin = time.perf_counter()
        work()
        found.append((time.perf_counter() - begin) * 1_000)
    found.sort()
    p99 = found[max(0, int(len(found) * 0.99) - 1)]
    return {"p50": round(statistics.median(found), 2), "p99": round(p99, 2), "max": round(found[-1], 2)}


def balances() -> Projection:
    made = Projection("balances", create="CREATE TABLE balance (account text PRIMARY KEY, amount numeric NOT NULL)")

    @made.on
    def moved(write: Any, event: Deposited, recorded: Recorded[Deposited]) -> None:
        change = "INSERT INTO balance AS b VALUES (%s, %s) ON CONFLICT (account) DO UPDATE SET amount = b.amount + %s"
        write.execute(change, (recorded.id, event.amount, event.amount))

    return made


def _rebuilt(store: Store, seconds: float) -> dict[str, float]:
    """As `LiveProjection.rebuild` does it, but no longer than that: fifty million events would take hours."""
    live = LiveProjection(store, balances())
    store.know(*live.handlers.events)
    beside, begin = f"{live.name}{NEXT}", time.perf_counter()
    with store.connections.lent() as connection:
        live._make(connection, beside)
        while not live._page(connection, beside) and time.perf_counter() - begin < seconds:
            pass
        took = time.perf_counter() - begin
        standing = live._standing(connection, beside)
    assert standing is not None
    return {"events": standing[0], "seconds": round(took, 1), "events_per_s": round(standing[0] / took)}
