"""Views in real time: shown at once, certain at the end of an epoch, and right after a crash in between."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from millrace.engine import Run
from millrace.errors import ViewNotRun
from millrace.flow import App
from millrace.views.changelog import Mark, marks_topic
from millrace.views.store import Store
from tests.command import until
from tests.crash.supervisor import Points, Supervised
from tests.shop import Shop
from tests.views.fuzz import plain
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

LIMIT_S = 900.0
TABLES = (
    "CREATE TABLE customers (id integer PRIMARY KEY, region text)",
    "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, amount integer NOT NULL)",
)
SALES = """SELECT region, count(*) AS orders, sum(amount) AS total
    FROM (SELECT region, amount FROM online UNION ALL SELECT region, amount FROM shops) AS sold GROUP BY region"""
# A row that comes and the one that goes take different ways here, by the old customer and by the new one.
PLACES = "SELECT o.id, o.amount, c.region FROM orders o JOIN customers c ON o.customer_id = c.id"


def answer(shop: Shop, sql: str) -> set[tuple[Any, ...]]:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        return {tuple(map(plain, row)) for row in connection.execute(sql, binary=True).fetchall()}  # type: ignore[call-overload]


@contextmanager
def store_of(shop: Shop) -> Iterator[Store]:
    with closing(Store(shop.settings, f"live-{shop.name}")) as store:
        yield store


def held(store: Store, view: str, *, certain: bool = False) -> set[tuple[Any, ...]]:
    if store.position(view) is None:
        return set()
    _, rows, _ = store.rows(view, certain=certain)
    assert len(set(rows)) == len(rows)
    return {tuple(map(plain, row)) for row in rows}


def change(shop: Shop, draw: random.Random) -> None:
    """One transaction over both tables."""
    with psycopg.connect(shop.url) as connection:
        for _ in range(draw.randint(1, 3)):
            number, customer = draw.randint(1, 20), draw.choice((*range(1, 7), None))
            connection.execute(
                *draw.choice(
                    (
                        ("UPDATE orders SET customer_id = %s, amount = amount + 1 WHERE id = %s", (customer, number)),
                        ("UPDATE customers SET region = %s WHERE id = %s", (draw.choice("nsew"), draw.randint(1, 6))),
                        ("DELETE FROM orders WHERE id = %s", (number,)),
                        ("INSERT INTO orders VALUES (%s, %s, 7) ON CONFLICT DO NOTHING", (number, customer)),
                    )
                )
            )


def versions(shop: Shop, view: str) -> Iterator[tuple[Mark, set[tuple[Any, ...]]]]:
    """What the changelog says at each of its marks."""
    log = shop.captures.log
    records = sorted(log.read(view), key=lambda each: each.offset)
    for mark in (Mark.from_json(record.json()) for record in log.read(marks_topic(view))):
        last = {each.key: each.value for each in records if each.offset < mark.ends[each.partition]}
        rows = [json.loads(value)["after"] for value in last.values() if value is not None]
        if mark.whole:
            yield mark, {tuple(map(plain, row.values())) for row in rows}


def test_what_is_certain_is_whole_transactions(shop: Shop, spark: SparkSession) -> None:
    shop.run(
        *TABLES,
        "INSERT INTO customers SELECT n, (ARRAY['n', 's', 'e'])[1 + n % 3] FROM generate_series(1, 6) n",
        "INSERT INTO orders SELECT n, 1 + n % 7, n FROM generate_series(1, 20) n",
    )
    view, app = f"{shop.name}-places", App(f"live-{shop.name}")
    app.capture(shop.name, ["customers", "orders"])
    app.view(view, key="id", sql=PLACES, mode="realtime", epoch="5 seconds")
    shop.captures.ensure(app.graph().databases[0].capture)
    marked(shop, lsn(shop))
    befores, answers = [], [answer(shop, PLACES)]
    draw = random.Random(9)
    with Run(app, shop.settings, spark=spark, traffic=False) as run, store_of(shop) as store:

        def shown() -> bool:
            run.poll()
            return held(store, view) == answers[-1]

        for _ in range(3):
            until(shown, "the view in real time", LIMIT_S)
            for _ in range(15):
                befores.append(lsn(shop))
                change(shop, draw)
                answers.append(answer(shop, PLACES))
                run.poll()
        until(shown, "the view at last", LIMIT_S)
        marked(shop, lsn(shop))
        run.stop()
        assert held(store, view) == held(store, view, certain=True) == answers[-1]
        assert store.rows(view)[2].tentative == 0
    seen = set()
    for mark, rows in versions(shop, view):
        place = sum(before < mark.lsn for before in befores)
        assert rows == answers[place], (mark, place)
        seen.add(place)
    assert len(seen) > 2, "too few epochs to tell"


APP = """\
import millrace as mr
from millrace.engine import realtime

realtime.FIRST_EPOCH_MS = 0  # an epoch ends when the run does, or is killed
app = mr.App("live-{name}")
app.capture("{name}", tables=["online", "shops"])
app.view("{name}-sales", key="region", sql=\"\"\"{sql}\"\"\", mode="realtime", epoch="10 minutes")
"""


def sold(shop: Shop) -> str:
    """Two tables with a row each; the view's name."""
    for table, region in (("online", "x"), ("shops", "y")):
        shop.run(
            f"CREATE TABLE {table} (id integer PRIMARY KEY, region text, amount integer NOT NULL)",
            f"INSERT INTO {table} VALUES (1, '{region}', 5)",
        )
    return f"{shop.name}-sales"


@pytest.mark.usefixtures("whole_epochs")
@pytest.mark.turn(1, 2)
def test_what_an_epoch_that_was_lost_has_shown_is_put_back(shop: Shop, spark: SparkSession) -> None:
    """Two changes in two topics, of which the first is shown when the run is lost, and both come at once after it:

    lost run      online: x -> y     group x goes, group y has two rows
    next run      and shops: - y     group x goes, and nobody speaks of group y: it has one row, as it had
    """
    view, app = sold(shop), App(f"live-{shop.name}")
    app.capture(shop.name, ["online", "shops"])
    app.view(view, key="region", sql=SALES, mode="realtime", epoch="10 minutes")
    shop.captures.ensure(app.graph().databases[0].capture)
    marked(shop, lsn(shop))
    with store_of(shop) as store:

        def comes(run: Run, rows: set[tuple[Any, ...]]) -> None:
            until(lambda: run.poll() is not None and held(store, view) == rows, f"{rows}", LIMIT_S)

        with Run(app, shop.settings, spark=spark, traffic=False) as run:
            comes(run, {("x", 1, 5), ("y", 1, 5)})
            shop.run("UPDATE online SET region = 'y'")
            comes(run, {("y", 2, 10)})
            assert store.rows(view)[2].tentative == 2
            assert held(store, view, certain=True) == {("x", 1, 5), ("y", 1, 5)}
            run._applying.end()
            run.abandon()
        assert held(store, view) == {("y", 2, 10)}
        shop.run("DELETE FROM shops")
        marked(shop, lsn(shop))
        with Run(app, shop.settings, spark=spark, traffic=False) as run:
            comes(run, {("y", 1, 5)})
            run.stop()
        assert held(store, view, certain=True) == answer(shop, SALES) == {("y", 1, 5)}
        assert store.rows(view)[2].tentative == 0
    assert ("y", 2, 10) not in {row for _, rows in versions(shop, view) for row in rows}


@pytest.mark.turn(0, 2)
def test_what_an_epoch_that_was_killed_has_shown_is_put_back(shop: Shop, tmp_path: Path) -> None:
    """The same with kill -9, and on in real time after it."""
    folder, view = shop.settings.folder, sold(shop)
    (folder / f"live_{shop.name}.py").write_text(APP.format(name=shop.name, sql=SALES))
    supervised = Supervised(folder, Points(tmp_path / "points"))
    with store_of(shop) as store:

        def comes(rows: set[tuple[Any, ...]]) -> None:
            until(lambda: held(store, view) == rows or not supervised.running, f"{rows}", LIMIT_S)
            assert held(store, view) == rows, supervised.said()

        supervised.start("run", f"live_{shop.name}:app")
        comes({("x", 1, 5), ("y", 1, 5)})
        shop.run("UPDATE online SET region = 'y'")
        comes({("y", 2, 10)})
        assert store.rows(view)[2].tentative == 2
        assert held(store, view, certain=True) == {("x", 1, 5), ("y", 1, 5)}
        supervised.kill()
        shop.run("DELETE FROM shops")
        supervised.start("run", f"live_{shop.name}:app")
        comes({("y", 1, 5)})
        shop.run("INSERT INTO shops VALUES (2, 'w', 1)", "UPDATE online SET amount = 6")
        comes({("y", 1, 6), ("w", 1, 1)})
        assert supervised.stop() == 0, supervised.said()
        assert held(store, view) == held(store, view, certain=True) == answer(shop, SALES)
        assert store.rows(view)[2].tentative == 0
    told = [rows for _, rows in versions(shop, view)]
    assert told[0] == {("x", 1, 5), ("y", 1, 5)}
    assert told[-1] == answer(shop, SALES)
    assert ("y", 2, 10) not in {row for rows in told for row in rows}


def test_what_runs_epoch_by_epoch_alone_is_refused(shop: Shop, spark: SparkSession) -> None:
    shop.run("CREATE TABLE offers (id integer PRIMARY KEY, until timestamptz)")
    app = App(f"live-{shop.name}")
    app.capture(shop.name, ["offers"])
    app.view(f"{shop.name}-open", key="id", sql="SELECT id FROM offers WHERE until > now()", mode="realtime")
    shop.captures.ensure(app.graph().databases[0].capture)
    with (
        pytest.raises(ViewNotRun, match=r"not in real time: it has now\(\)"),
        Run(app, shop.settings, spark=spark, traffic=False) as run,
    ):
        until(lambda: run.poll() is None, "a refusal")
