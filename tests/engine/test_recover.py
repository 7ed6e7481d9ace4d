"""docs/guide/recover.md, walked: rows that were deleted by mistake come back, and with them the index and the cache;
sinks that somebody changed behind their flow's back are found, and built again."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psycopg
import pytest
import redis as client
from pyspark.sql import SparkSession

from millrace import local
from millrace.engine import Run, verifying
from millrace.engine.verifying import SinkVerified, VerifySinks
from millrace.errors import TablePastGone
from millrace.flow import App
from millrace.log import position
from tests.command import millrace
from tests.shop import Shop
from tests.sinks.test_opensearch import ask

pytestmark = [pytest.mark.spark, pytest.mark.server]

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "recover.md"
ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, name text, amount numeric(12,2), at timestamptz DEFAULT now())"
ROWS, DELETED = 12_000, 10_000
LOOK_S = 1.0


APP = """\
import millrace as mr

app = mr.App("app-{name}")
db = app.capture("{name}", tables=["orders"])


def note(rows, epoch):
    pass


db.orders.to(mr.opensearch("orders-{name}"), mr.redis("orders-{name}"), mr.postgres("copy_{name}"))
db.orders.to(mr.files("orders-{name}"), mr.function(note))
"""


class Walk:
    def __init__(self, shop: Shop, valkey: str, url: str) -> None:
        self.shop, self.url, self.name = shop, url, f"orders-{shop.name}"
        self.redis = client.Redis.from_url(valkey, decode_responses=True)
        module = APP.replace("{name}", shop.name)
        (shop.settings.folder / f"{shop.name}.py").write_text(module)
        names: dict[str, Any] = {}
        exec(module, names)
        self.app: App = names["app"]

    @property
    def sinks(self) -> list[str]:
        """Those that somebody damages."""
        return [f"opensearch.{self.name}", f"redis.{self.name}", f"postgres.copy_{self.shop.name}"]

    def source(self) -> dict[int, str]:
        return dict(self.shop.run("SELECT id, name FROM orders"))

    def count(self) -> int:
        try:
            ask(self.url, "POST", f"/{self.name}/_refresh")
        except HTTPError:  # it is made by the first epoch
            return 0
        return int(ask(self.url, "GET", f"/{self.name}/_count")["count"])

    def cached(self) -> dict[int, str]:
        keys = list(self.redis.scan_iter(f"{self.name}:*", count=5_000))
        pipeline = self.redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hget(key, "name")
        return {int(key.rpartition(":")[2]): name for key, name in zip(keys, pipeline.execute(), strict=True)}

    def verified(self, spark: SparkSession) -> dict[str, SinkVerified]:
        topic = f"{self.shop.name}.public.orders"
        looking = VerifySinks(self.app.graph(), self.shop.settings, self.shop.captures.log, topic)
        return {each.sink: each for each in looking.run(spark)}

    @contextmanager
    def running(self, spark: SparkSession, until: Callable[..., None]) -> Iterator[Callable[..., None]]:
        with Run(self.app, self.shop.settings, spark=spark, traffic=False) as run:

            def comes(condition: Callable[[], bool], what: str) -> None:
                looked = [0.0]

                def seldom() -> bool:
                    """What is asked takes long itself."""
                    run.poll()
                    if time.monotonic() - looked[0] < LOOK_S:
                        return False
                    looked[0] = time.monotonic()
                    return condition()

                until(seldom, what)

            yield comes


@contextmanager
def writing(shop: Shop) -> Iterator[None]:
    """Somebody changes rows all the time."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(shop.url, autocommit=True) as connection:
            for number in range(1_000_000):
                if stop.wait(0.02):
                    return
                key = 11_000 + number % 200
                connection.execute("UPDATE orders SET name = %s WHERE id = %s", (f"w{number}", key))
                connection.execute("DELETE FROM orders WHERE id = %s", (key + 300,))
                connection.execute("INSERT INTO orders VALUES (%s, 'again', 1)", (key + 300,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


@pytest.mark.turn(2, 3)
def test_rows_that_were_deleted_by_mistake_come_back(
    spark: SparkSession, shop: Shop, valkey: str, opensearch: str, until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(verifying, "LOOKS", 1)  # what is on its way stays so: somebody writes all the time
    shop.run(
        ORDERS,
        f"INSERT INTO orders SELECT n, 'o\\\\\"' || n, n * 1.1, now() FROM generate_series(1, {ROWS}) n",
    )
    walk = Walk(shop, valkey, local.address(shop.settings, "opensearch"))
    assert opensearch
    with walk.running(spark, until) as comes:
        comes(lambda: walk.count() == ROWS, "the index has all rows")
        shop.run("UPDATE orders SET name = 'changed' WHERE id = 5", "SELECT pg_sleep(0.05)")
        before = walk.source()
        comes(lambda: walk.cached() == before, "the cache has all rows")
        ((at,),) = shop.run("SELECT clock_timestamp()")

        # Somebody deleted 10,000 rows by mistake, and the index followed. Others went on working.
        shop.run("SELECT pg_sleep(0.05)", f"DELETE FROM orders WHERE id <= {DELETED}")
        shop.run("UPDATE orders SET name = 'later' WHERE id = 11999", "INSERT INTO orders VALUES (20000, 'new', 2)")
        shop.run("INSERT INTO orders VALUES (7, 'put back by hand', 1)")
        comes(lambda: walk.count() == ROWS - DELETED + 2, "the index followed")

        read = millrace("table", "read", f"{shop.name}.orders", "--at", at.isoformat(), cwd=shop.settings.folder)
        assert read.returncode == 0, read.stderr
        lines = read.stdout.splitlines()
        assert {row["id"]: row["name"] for row in map(json.loads, lines)} == before
        put_back(shop, read.stdout)
        expected = {**before, 7: "put back by hand", 11_999: "later", 20_000: "new"}
        assert walk.source() == expected
        comes(lambda: walk.count() == ROWS + 1 and walk.cached() == expected, "what is derived followed")

        # A comparison while changes go on finds nothing wrong, and says what is.
        with writing(shop):
            found = within(comes, lambda: walk.verified(spark))
            assert not any(each.differences.count for each in found.values() if each.differences), found
            assert found["function.note"].left_out
            damage(walk)
            found = within(comes, lambda: walk.verified(spark))
            for sink in walk.sinks:
                differences = found[sink].differences
                assert differences is not None
                assert (differences.missing, differences.surplus, differences.different) == (1, 1, 1), found[sink]
                assert differences.keys["2"] == "missing"
                assert differences.keys["3"] == "different"
                assert "1 missing, 1 surplus, 1 different" in found[sink].text()
        comes(lambda: untouched(walk.cached()) == untouched(walk.source()), "everything is there")
    # By the command; the flow does not run any more.
    app = f"{shop.name}:app"
    done = millrace("verify", f"{shop.name}.orders", "--app", app, "--repair", cwd=shop.settings.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for sink in walk.sinks:
        assert f"{sink} is not true: 1 missing, 1 surplus, 1 different" in done.stderr
        assert f"{sink} is true: " in done.stderr
    assert "function.note was not compared" in done.stderr
    assert re.search(r"missing +2\b", done.stdout)
    shop.run("UPDATE orders SET name = 'at last' WHERE id = 1")
    with walk.running(spark, until) as comes:
        comes(lambda: walk.cached() == walk.source(), "the flow goes on with what was built")
    assert all(each.clean for each in walk.verified(spark).values())
    with pytest.raises(TablePastGone, match="tells how it was from"):
        tables_rows(shop, "8 days ago")


def untouched(rows: dict[int, str]) -> dict[int, str]:
    return {key: name for key, name in rows.items() if key not in (2, 3, 99_999)}


def tables_rows(shop: Shop, at: str) -> list[Any]:
    from millrace.capture import tables

    log = shop.captures.log
    _, table = tables.find(log, f"{shop.name}.orders")
    then = position(at)
    assert not isinstance(then, str | int)
    return list(tables.rows(log, table, then))


def put_back(shop: Shop, lines: str) -> None:
    """As the guide says it, with psql's \\copy as the COPY that it is."""
    (statements,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    statements = "\n".join(line.strip() for line in statements.splitlines())
    with psycopg.connect(shop.url) as connection:
        for statement in statements.strip().rstrip(";").split(";\n"):
            if statement.startswith("\\copy"):
                copied = statement.removeprefix("\\").replace("'before.jsonl'", "STDIN")
                with connection.cursor().copy(copied) as copy:
                    copy.write(lines)
            else:
                connection.execute(statement)  # type: ignore[call-overload]


def damage(walk: Walk) -> None:
    """Behind the flow's back: 2 is deleted, 3 forged, one added."""
    table = f"copy_{walk.shop.name}"
    ask(walk.url, "DELETE", f"/{walk.name}/_doc/2")
    for key in (3, 99_999):
        ask(walk.url, "PUT", f"/{walk.name}/_doc/{key}", {"id": key, "name": "forged"})
        walk.redis.hset(f"{walk.name}:{key}", mapping={"__version": 1, "id": str(key), "name": "forged"})
    walk.redis.delete(f"{walk.name}:2")
    server = local.address(walk.shop.settings, "postgres").rpartition("/")[0]
    with psycopg.connect(f"{server}/millrace", autocommit=True) as connection:
        connection.execute(f"DELETE FROM {table} WHERE id = 2")  # type: ignore[call-overload]
        connection.execute(f"UPDATE {table} SET name = 'forged' WHERE id = 3")  # type: ignore[call-overload]
        connection.execute(f"INSERT INTO {table} VALUES (99999, 'forged')")  # type: ignore[call-overload]


def within(comes: Callable[..., None], work: Callable[[], Any]) -> Any:
    """Does work in another thread, while the run goes on in this one."""
    found: list[Any] = []

    def do() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    threading.Thread(target=do).start()
    comes(lambda: bool(found), "the work")
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]
