"""Transfers between accounts of two tables, by several clients at once: the total never wavers, whatever is killed.

clients     checking ── amount ──> savings, and back, each transfer one transaction
a run       balances (all accounts), total (their sum); killed when the first epoch is delivered and Spark does not
            know, and when another is prepared and nothing of it committed
a watcher   asks the view store all the time: every version that it sees has the total
at last     every version that was ever pushed, from mark to mark of the changelog, has the total
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millrace.views.changelog import Mark, lsn_number, marks_topic
from millrace.views.store import Store
from tests.command import until
from tests.crash.supervisor import Points, Supervised
from tests.shop import Shop
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

ACCOUNTS, EACH, CLIENTS = 12, 100, 3
VERSIONS = 5
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
            while not ended.wait(0.03):
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
    """What the view store says, again and again: `seen` are the positions, `wrong` what was not the total, or went
    back."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(daemon=True)
        self.seen: set[int] = set()
        self.wrong: list[Any] = []
        self._shop, self._ended = shop, threading.Event()

    def run(self) -> None:
        with contextlib.closing(Store(self._shop.settings, f"bank-{self._shop.name}")) as store:
            self._watch(store, self._shop.name)

    def _watch(self, store: Store, name: str) -> None:
        while not self._ended.wait(0.02):
            if {each.view for each in store.positions()} != {f"{name}-balances", f"{name}-total"}:
                continue
            _, rows, position = store.rows(f"{name}-balances")
            _, total, _ = store.rows(f"{name}-total")
            found = (sum(row[2] for row in rows), len(rows), [tuple(map(int, row)) for row in total])
            lsn = lsn_number(str(position.lsn))
            if found != (TOTAL, 2 * ACCOUNTS, [(1, TOTAL)]) or lsn < max(self.seen, default=0):
                self.wrong.append((found, position))
            self.seen.add(lsn)

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


@pytest.mark.turn(0, 3)
def test_the_total_never_wavers(shop: Shop, tmp_path: Path) -> None:
    for table in ("checking", "savings"):
        shop.run(
            f"CREATE TABLE {table} (id integer PRIMARY KEY, balance numeric(12, 2) NOT NULL)",
            f"INSERT INTO {table} SELECT n, {EACH} FROM generate_series(1, {ACCOUNTS}) n",
        )
    folder = shop.settings.folder
    (folder / f"bank_{shop.name}.py").write_text(APP.format(name=shop.name))
    app, watcher = f"bank_{shop.name}:app", Watcher(shop)
    supervised = Supervised(folder, Points(tmp_path / "points"))
    watcher.start()
    with transfers(shop.url):
        killed_at(supervised, app, "AFTER_DELIVERED", f"{shop.name}-balances", lambda: True)
        killed_at(supervised, app, "AFTER_PREPARE", f"{shop.name}-balances", lambda: len(watcher.seen) > VERSIONS)
    last = lsn(shop)
    marked(shop, last)
    assert supervised.run("run", app, "--once") == 0, supervised.said()
    watcher.end()
    assert not watcher.wrong, watcher.wrong[:3]
    totals = pushed(shop)
    assert len(totals) > VERSIONS
    assert set(totals) == {Decimal(TOTAL)}
    with contextlib.closing(Store(shop.settings, f"bank-{shop.name}")) as store:
        _, rows, position = store.rows(f"{shop.name}-balances")
    tables = " UNION ALL ".join(f"SELECT '{table[0]}', id, balance FROM {table}" for table in ("checking", "savings"))
    assert sorted(rows) == sorted(shop.run(tables))
    assert lsn_number(str(position.lsn)) >= last


def killed_at(supervised: Supervised, app: str, point: str, flow: str, when: Callable[[], bool]) -> None:
    """kill -9 of a run, JVM and Python, at a place to which a flow comes after `when`."""
    if when():
        supervised.points.arm(point, flow)
        supervised.start("run", app)
    else:
        supervised.start("run", app)
        until(lambda: when() or not supervised.running, "some versions")
        supervised.points.arm(point, flow)
    assert supervised.await_point(point), supervised.said()
    supervised.kill()
