"""The bank of `bench.events` with the library `eventsourcing`, in a process and an environment of its own.

Reads one request a line, `{"do": "append", …}`, and answers with one line of JSON; see `bench/events.py`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

BEHIND = 99


class Account(Aggregate):
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = Decimal(0)

    @event("Deposited")
    def deposit(self, amount: Decimal) -> None:
        self.balance += amount


class Bank(Application[UUID]):
    pass


class Snapshotted(Application[UUID]):
    snapshotting_intervals = {Account: 100}  # noqa: RUF012


def append(app: Any, count: int, accounts: int) -> None:
    """One event a save, to aggregates that are in memory."""
    held = [Account(f"owner {number}") for number in range(accounts)]
    app.save(*held)
    for number in range(count):
        account = held[number % accounts]
        account.deposit(Decimal("1.25"))
        app.save(account)


def change(app: Any, count: int, accounts: int) -> None:
    """Load, one event, save."""
    held = [Account(f"owner {number}") for number in range(accounts)]
    app.save(*held)
    for number in range(count):
        account = app.repository.get(held[number % accounts].id)
        account.deposit(Decimal("1.25"))
        app.save(account)


def long_one(app: Any, events: int) -> UUID:
    """As many events as Millrace's side has, and as many after the last snapshot: they are made at each 100th."""
    account = Account("long")
    for version in range(2, events + BEHIND + 1):
        account.deposit(Decimal("1.25"))
        if version % 100 == 0:
            app.save(account)
    app.save(account)
    return account.id


def loads(app: Any, of: UUID, count: int) -> list[float]:
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        account = app.repository.get(of)
        found.append((time.perf_counter() - begin) * 1_000)
    assert account.version % 100 == BEHIND
    return found


def main() -> None:
    parts = urlsplit(sys.argv[1])
    os.environ.update(
        PERSISTENCE_MODULE="eventsourcing.postgres",
        POSTGRES_DBNAME=parts.path.lstrip("/"),
        POSTGRES_HOST=parts.hostname or "",
        POSTGRES_PORT=str(parts.port),
        POSTGRES_USER=parts.username or "",
        POSTGRES_PASSWORD="none",
    )
    app, snapshotted, ids = Bank(), Snapshotted(), {}
    for line in sys.stdin:
        asked = json.loads(line)
        chosen = snapshotted if asked.get("snapshots") else app
        begin, cpu = time.perf_counter(), time.process_time()
        answer: dict[str, Any] = {}
        if asked["do"] == "append":
            append(chosen, asked["count"], asked["accounts"])
        elif asked["do"] == "change":
            change(chosen, asked["count"], asked["accounts"])
        elif asked["do"] == "long":
            ids[bool(asked.get("snapshots"))] = long_one(chosen, asked["count"])
        else:
            answer["ms"] = loads(chosen, ids[bool(asked.get("snapshots"))], asked["count"])
        answer |= {"seconds": time.perf_counter() - begin, "cpu_s": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
