"""Transfers between accounts of two tables, by several clients at once: the total never wavers, whatever is killed.

clients     checking ── amount ──> savings, and back, each transfer one transaction
a run       balances (all accounts), total (their sum); killed again and again
a watcher   asks the view store all the time: every version that it sees has the total
at last     every version that was ever pushed, from mark to mark of the changelog, has the total
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from millrace.views.changelog import Mark, marks_topic
from millrace.views.store import Store
from tests.command import millrace, start, until
from tests.shop import Shop
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

ACCOUNTS, EACH, CLIENTS = 12, 100, 3
TOTAL = 2 * ACCOUNTS * EACH
APP = """\
import millrace as mr

app = mr.App("bank-{name}")
app.capture("{name}", tables=["checking", "savings"])
ALL = "SELECT 'c'::text AS kind, id, balance FROM checking UNION ALL SELECT 's'::text AS kind, id, balance FROM savings"
app.view("{name}-balances", key=["kind", "id"], sql=ALL)
app.view("{name}-total", key="one", sql=f"SELECT 1 AS one, sum(balance) AS total FROM ({{ALL}}) AS accounts")
"""


def transfer(connection: psycopg.Connection[Any], draw: random.Random) -> None:
    """Between one account of each table, or several; a part of them is taken back."""
    for _ in range(draw.choice((1, 1, 3))):
        one, other = draw.sample(("checking", "savings"), 2)
        amount = draw.randint(1, 20)
        for table, sign, account in ((one, -1, draw.randint(1, ACCOUNTS)), (other, 1, draw.randint(1, ACCOUNTS))):
            connection.execute(
                f"UPDATE {table} SET balance = balance + %s WHERE id = %s",  # type: ignore[arg-type]
                (sign * amount, account),
            )
    if draw.random() < 0.1:
        connection.rollback()
    connection.commit()


@contextlib.contextmanager
def transfers(url: str) -> Iterator[None]:
    ended = threading.Event()

    def work(seed: int) -> None:
        draw = random.Random(seed)
        with psycopg.connect(url) as connection:
            while not ended.wait(0.01):
                with contextlib.suppress(psycopg.errors.DeadlockDetected):
                    transfer(connection, draw)
                connection.rollback()

    clients = [threading.Thread(target=work, args=(seed,)) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ended.set()
        for client in clients:
            client.join()


class Watcher(threading.Thread):
    """What the view store says, again and again: `seen` are the positions, `wrong` what was not the total."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(daemon=True)
        self.seen: set[str] = set()
        self.wrong: list[Any] = []
        self._shop, self._ended = shop, threading.Event()

    def run(self) -> None:
        store, name = Store(self._shop.settings, f"bank-{self._shop.name}"), self._shop.name
        while not self._ended.wait(0.02):
            if {each.view for each in store.positions()} != {f"{name}-balances", f"{name}-total"}:
                continue
            _, rows, position = store.rows(f"{name}-balances")
            _, total, _ = store.rows(f"{name}-total")
            found = (sum(row[2] for row in rows), len(rows), [tuple(map(int, row)) for row in total])
            if found != (TOTAL, 2 * ACCOUNTS, [(1, TOTAL)]):
                self.wrong.append((found, position))
            self.seen.add(str(position.lsn))

    def end(self) -> None:
        self._ended.set()
        self.join()


def pushed(shop: Shop) -> list[Decimal]:
    """The total of every version of the balances that was ever pushed."""
    log, view = shop.captures.log, f"{shop.name}-balances"
    marks = [Mark.from_json(record.json()) for record in log.read(marks_topic(view))]
    records = list(log.read(view))
    found = []
    for mark in marks:
        held = {
            record.key: record.json()
            for record in sorted(records, key=lambda each: each.offset)
            if record.offset < mark.ends[record.partition]
        }
        if mark.whole:
            found.append(sum((Decimal(str(row["after"]["balance"])) for row in held.values()), Decimal(0)))
    return found


@pytest.mark.turn(0, 2)
def test_the_total_never_wavers(shop: Shop) -> None:
    for table in ("checking", "savings"):
        shop.run(
            f"CREATE TABLE {table} (id integer PRIMARY KEY, balance numeric(12, 2) NOT NULL)",
            f"INSERT INTO {table} SELECT n, {EACH} FROM generate_series(1, {ACCOUNTS}) n",
        )
    folder = shop.settings.folder
    (folder / f"bank_{shop.name}.py").write_text(APP.format(name=shop.name))
    app, watcher = f"bank_{shop.name}:app", Watcher(shop)
    watcher.start()
    with transfers(shop.url):
        for _ in range(2):
            before = len(watcher.seen)
            with start("run", app, cwd=folder) as command:
                until(lambda before=before: len(watcher.seen) > before + 4, "some versions")  # type: ignore[misc]
                os.kill(command.pid, signal.SIGKILL)
    last = lsn(shop)
    marked(shop, last)
    done = millrace("run", app, "--once", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    watcher.end()
    assert not watcher.wrong, watcher.wrong[:3]
    totals = pushed(shop)
    assert len(totals) > len(watcher.seen) / 2
    assert set(totals) == {Decimal(TOTAL)}
    _, rows, position = Store(shop.settings, f"bank-{shop.name}").rows(f"{shop.name}-balances")
    tables = " UNION ALL ".join(f"SELECT '{table[0]}', id, balance FROM {table}" for table in ("checking", "savings"))
    assert sorted(rows) == sorted(shop.run(tables))
    assert position.lsn is not None
