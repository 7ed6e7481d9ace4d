"""A view's SQL changes while its old code runs and clients write, and `millrace deploy` is killed wherever it hurts.

clients     insert, change and delete orders, all the time
a run       of the old code, which goes on: sums, and best over it
a deploy    killed in the fill; killed when the old one has let go and is still the view, after which the old one goes
            on by itself; killed when the new one is the view and nobody has its rows
at last     a run of the new code ends it: both views are PostgreSQL's answer
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millrace.engine import handing
from millrace.engine.generations import Generation, beside
from millrace.views.changelog import Mark, lsn_number, marks_topic
from millrace.views.store import Store
from tests.command import until
from tests.crash.supervisor import PATIENCE, Points, Supervised
from tests.shop import Shop
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

LIMIT_S = 120.0 * PATIENCE
APP = """\
import millrace as mr

app = mr.App("deployed-{name}")
app.capture("{name}", tables=["orders"])
app.view("{name}-sums", key="customer", sql="{sql}")
app.view("{name}-best", key="customer", sql='{best}')
"""
SUMS = "SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders WHERE amount > {least} GROUP BY customer"
BEST = "SELECT customer, total FROM {sums} WHERE total > 50"
CUSTOMERS, ORDERS = 20, 300


@contextlib.contextmanager
def clients(url: str) -> Iterator[None]:
    ended = threading.Event()

    def work() -> None:
        draw = random.Random(7)
        with psycopg.connect(url, autocommit=True) as connection:
            while not ended.wait(0.05):
                number, customer, amount = draw.randint(1, ORDERS), draw.randint(1, CUSTOMERS), draw.randint(1, 30)
                if draw.random() < 0.2:
                    connection.execute("DELETE FROM orders WHERE id = %s", (number,))
                else:
                    connection.execute(
                        "INSERT INTO orders VALUES (%(id)s, %(customer)s, %(amount)s) ON CONFLICT (id)"
                        " DO UPDATE SET customer = %(customer)s, amount = %(amount)s",
                        {"id": number, "customer": customer, "amount": amount},
                    )

    client = threading.Thread(target=work)
    client.start()
    try:
        yield
    finally:
        ended.set()
        client.join()


class World:
    def __init__(self, shop: Shop, points: Path) -> None:
        self.shop, self.view = shop, f"{shop.name}-sums"
        folder = shop.settings.folder
        self.modules = {}
        for least in (0, 10):
            module = f"deployed{least}_{shop.name}"
            best = BEST.format(sums=f'"{self.view}"')
            text = APP.format(name=shop.name, sql=SUMS.format(least=least), best=best)
            (folder / f"{module}.py").write_text(text)
            self.modules[least] = f"{module}:app"
        self.old, self.new = (Supervised(folder, Points(points / name)) for name in ("old", "new"))
        # What each of them prints is by itself.
        self.old.console, self.new.console = (points / f"{name}.log" for name in ("old", "new"))

    def position(self, view: str) -> int:
        with contextlib.closing(Store(self.shop.settings, f"deployed-{self.shop.name}")) as store:
            found = store.position(view)
        return 0 if found is None else lsn_number(str(found.lsn))

    def is_kept_true(self, view: str) -> None:
        """By the old run, which has to be there."""
        wanted = lsn(self.shop)
        until(lambda: self.position(view) >= wanted or not self.old.running, f"{view} up to now", LIMIT_S)
        assert self.old.running, self.old.said()

    def killed(self, point: str, who: str) -> None:
        self.new.points.arm(point, who)
        self.new.start("deploy", self.modules[10], "--yes", "--diff")
        assert self.new.await_point(point), self.new.said()

    def marks(self) -> list[tuple[int, int]]:
        """Epoch and position of every version that was ever pushed."""
        records = self.shop.captures.log.read(marks_topic(self.view))
        return [(mark.epoch, mark.lsn) for mark in (Mark.from_json(record.json()) for record in records)]

    def held(self, view: str) -> list[Any]:
        with contextlib.closing(Store(self.shop.settings, f"deployed-{self.shop.name}")) as store:
            return sorted(tuple(map(int, row)) for row in store.rows(view)[1])

    def answers(self, sql: str) -> list[Any]:
        return sorted(tuple(map(int, row)) for row in self.shop.run(sql))


@pytest.mark.turn(1, 3)
def test_a_deploy_that_is_killed_anywhere_leaves_an_answer_that_is_true(shop: Shop, tmp_path: Path) -> None:
    shop.run(
        "CREATE TABLE orders (id integer PRIMARY KEY, customer integer, amount integer)",
        f"INSERT INTO orders SELECT n, 1 + n % {CUSTOMERS}, 1 + n % 30 FROM generate_series(1, {ORDERS}) n",
    )
    world = World(shop, tmp_path)
    named = shop.settings.checkpoints / f"deployed-{shop.name}" / world.view
    try:
        with clients(shop.url):
            world.old.start("run", world.modules[0])
            until(lambda: world.position(f"{shop.name}-best") or not world.old.running, "the views", LIMIT_S)
            assert world.old.running, world.old.said()

            world.killed("AFTER_PREPARE", beside(world.view, 2))
            world.is_kept_true(world.view)
            world.new.kill()

            # The old one has let the view go, and takes it back.
            world.killed("DEPLOY_SWITCHING", world.view)
            assert "going on with the new one" in world.new.said()
            assert " changed," in world.new.said()
            before = world.position(world.view)
            asks = named / handing.FILE  # as one on another host leaves it
            asks.write_text(asks.read_text().replace(socket.gethostname(), "another-host"))
            world.new.kill()
            assert Generation.read(named).number == 1
            world.is_kept_true(world.view)
            assert world.position(world.view) > before

            world.killed("DEPLOY_SWITCHED", world.view)
            world.new.kill()
            assert Generation.read(named).number == 2
            until(lambda: "MR-VIEW-DEPLOYED" in world.old.said(), "the old run's word", LIMIT_S)
        assert world.old.stop() == 0, world.old.said()
        last = lsn(shop)
        marked(shop, last)
        assert world.new.run("run", world.modules[10], "--once") == 0, world.new.said()
    finally:
        for each in (world.old, world.new):
            if each.running:
                each.kill()
    new = SUMS.format(least=10)
    assert world.held(world.view) == world.answers(new)
    assert world.held(f"{shop.name}-best") == world.answers(BEST.format(sums=f"({new}) s"))
    assert world.position(world.view) >= last
    assert world.marks() == sorted(world.marks()), "for those who watch, nothing ever went back"
    assert not [name for name in shop.captures.log.topics.names() if "generation" in name]
