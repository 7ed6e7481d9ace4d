"""From a database to what is derived from it, while Connect dies: in its snapshot, while it streams, and it stands
still. Rows in PostgreSQL and in Valkey are those of the source in the end, without a hand but the server's start."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import psycopg
import pytest
import redis as client
from pyspark.sql import SparkSession

import millrace as mr
from millrace import local
from millrace.capture.connect import Connect
from millrace.engine import Run
from millrace.flow import App
from tests.rotation import seeded
from tests.shop import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

ROWS, LOCK = 40_000, 4711
# Longer than Connect's group waits for a member: the work is given to it anew when it comes back.
FREEZE_S = 30.0 if os.environ.get("TEST_ALL") else 8.0


class Derived:
    """A captured table, a flow, and its rows in two places."""

    def __init__(self, shop: Shop, valkey: str) -> None:
        self.shop, self.name = shop, f"kept-{shop.name}"
        self.app = App(f"kills-{shop.name}")
        orders = self.app.capture(shop.name, tables=["orders"]).orders
        orders.to(mr.postgres(f"kept_{shop.name}"), mr.redis(self.name))
        self.topic = f"{shop.name}.public.orders"
        self._valkey = client.Redis.from_url(valkey, decode_responses=True)
        self._target = local.address(shop.settings, "postgres").rpartition("/")[0] + "/millrace"
        self._topics = shop.captures.log.topics

    def written(self) -> int:
        """Records of the topic, also those of open transactions."""
        if not self._topics.exists(self.topic):
            return 0
        return sum(end for _, end in self._topics.offsets(self.topic, committed=False).values())

    def stands(self) -> bool:
        """Whether the snapshot waits for what holds it back."""
        return bool(self.shop.run(f"SELECT 1 FROM pg_locks WHERE objid = {LOCK} AND NOT granted"))

    def streams(self) -> bool:
        """Whether the capture is past its snapshot: only then somebody reads the slot."""
        asked = "SELECT 1 FROM pg_replication_slots WHERE active AND database = current_database()"
        return bool(self.shop.run(asked))

    def source(self) -> dict[int, str]:
        return dict(self.shop.run("SELECT id, name FROM orders"))

    def table(self) -> dict[int, str]:
        with psycopg.connect(self._target) as connection:
            return dict(connection.execute(f"SELECT id, name FROM kept_{self.shop.name}").fetchall())

    def hashes(self) -> dict[int, str]:
        keys = list(self._valkey.scan_iter(f"{self.name}:*", count=5_000))
        pipeline = self._valkey.pipeline(transaction=False)
        for key in keys:
            pipeline.hget(key, "name")
        return {int(key.rpartition(":")[2]): name for key, name in zip(keys, pipeline.execute(), strict=True)}

    def close(self) -> None:
        self._valkey.close()
        with psycopg.connect(self._target, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS kept_{self.shop.name}")


@contextlib.contextmanager
def held_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A snapshot stops in the middle of the rows until it is let go."""
    locked = f"SELECT pg_advisory_lock{{}}({LOCK})"
    middle = f"CASE WHEN id = {ROWS // 2} THEN ({locked.format('_shared')}) IS NOT NULL ELSE true END"
    select = {
        "snapshot.select.statement.overrides": "public.orders",
        "snapshot.select.statement.overrides.public.orders": f"SELECT id, name FROM orders WHERE {middle}",
    }
    put = Connect.put
    monkeypatch.setattr(Connect, "put", lambda self, name, config: put(self, name, {**config, **select}))
    with psycopg.connect(shop.url, autocommit=True) as connection:
        connection.execute(locked.format(""))  # type: ignore[call-overload]
        yield connection.close


@contextlib.contextmanager
def changing(shop: Shop, draw: random.Random) -> Iterator[None]:
    """Rows come, change and go all the time."""
    stop = threading.Event()

    def change() -> None:
        with psycopg.connect(shop.url, autocommit=True) as connection:
            number = 0
            while not stop.wait(0.01):
                number, key = number + 1, draw.randrange(2 * ROWS)
                connection.execute("DELETE FROM orders WHERE id = %s", (draw.randrange(2 * ROWS),))
                put = "INSERT INTO orders VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
                connection.execute(put, (key, f"c{number}"))

    changes = threading.Thread(target=change)
    changes.start()
    try:
        yield
    finally:
        stop.set()
        changes.join()


def connect_of(shop: Shop) -> psutil.Process:
    (pid,) = (row.pid for row in local.status(shop.settings) if row.server == "connect")
    assert pid is not None
    return psutil.Process(pid)


def killed(shop: Shop, until: Callable[..., None]) -> None:
    connect_of(shop).kill()
    until(lambda: {row.server: row.state for row in local.status(shop.settings)}["connect"] == "died", "the kill")


@pytest.mark.turn(0, 3)
def test_connect_dies_in_its_snapshot_and_while_it_streams_and_stands_still(
    spark: SparkSession, shop: Shop, valkey: str, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = seeded("connect dies")
    shop.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, name text)",
        f"INSERT INTO orders SELECT n, 'o' || n FROM generate_series(1, {ROWS}) n",
    )
    derived = Derived(shop, valkey)
    with (
        held_back(shop, monkeypatch) as let_go,
        Run(derived.app, shop.settings, spark=spark, traffic=False) as run,
    ):

        def comes(condition: Callable[[], Any], what: str) -> None:
            until(lambda: run.poll() is not None and bool(condition()), what)

        def some_more() -> None:
            before = derived.written()
            comes(lambda: derived.written() > before + 20, "more changes in the topic")

        comes(lambda: derived.stands() and derived.written() > 0, "a snapshot in the middle of the rows")
        with changing(shop, draw):
            killed(shop, until)
            assert derived.written() < ROWS, "the snapshot was over before the kill"
            let_go()
            local.up(shop.settings, ("connect",))
            comes(derived.streams, "a snapshot, and changes behind it")

            some_more()
            killed(shop, until)
            local.up(shop.settings, ("connect",))
            some_more()

            frozen = connect_of(shop)
            os.kill(frozen.pid, signal.SIGSTOP)
            try:
                threading.Event().wait(FREEZE_S)
            finally:
                os.kill(frozen.pid, signal.SIGCONT)
            some_more()
        source = derived.source()
        comes(lambda: derived.table() == source, "the rows of the source in PostgreSQL")
        comes(lambda: derived.hashes() == source, "the rows of the source in Valkey")
        standing = run.standings[next(iter(run.standings))]
        assert (standing.restarts, standing.error) == (0, None)
    derived.close()
