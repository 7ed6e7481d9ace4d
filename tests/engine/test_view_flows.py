"""Views in a run: what the store holds is what PostgreSQL answers to the same SQL, and says up to where."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.capture import connector
from millrace.client import Client
from millrace.engine import Run
from millrace.engine.definition import folder_of
from millrace.engine.state import State
from millrace.errors import StateChanged, ViewKeyRepeated, ViewNotRun
from millrace.flow import App
from millrace.serve import waiting
from millrace.views.changelog import AFTER, lsn_number, lsn_text, marks_topic
from millrace.views.store import Store, url_of
from tests.command import until
from tests.serve.world import served
from tests.shop import Shop
from tests.views.fuzz import plain
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

# A machine that others use too is slow; the heartbeat, a day apart, is no part of it.
LIMIT_S = 900.0
TABLES = (
    "CREATE TABLE customers (id integer PRIMARY KEY, region text, since date)",
    "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, amount numeric(12, 2), note bytea)",
)
REVENUE = """SELECT c.region, count(*) AS orders, sum(o.amount) AS total, avg(o.amount) AS mean, min(c.since) AS since
    FROM {orders} o LEFT JOIN {customers} c ON o.customer_id = c.id GROUP BY c.region"""
LARGE = "SELECT id, customer_id, amount, note FROM {orders} WHERE amount > 5 AND note IS NOT NULL"
BEST = "SELECT region, total FROM {revenue} WHERE total > 10"
VISITS = "SELECT customer, count(*) AS visits, max(at) AS latest FROM {visits} GROUP BY customer"
VISITED = """SELECT c.region, count(v.customer) AS visits FROM {customers} c LEFT JOIN {visits} v ON v.customer = c.id
    GROUP BY c.region"""
CALLED = """SELECT c.region, count(*) AS calls, max(t.caller) AS latest FROM {customers} c JOIN {calls} t
    ON t.caller = c.id GROUP BY c.region"""
# The stream's rows, of the events that are in a table of the database too.
CALLS = "(SELECT customer AS caller FROM visits WHERE customer > 1)"


def names(shop: Shop) -> dict[str, str]:
    own = ("revenue", "large", "best", "visits", "visited", "seen", "calls", "called")
    return {name: f'"{shop.name}-{name}"' for name in own}


def calls(visits: DataFrame) -> DataFrame:
    return visits.where("customer > 1").selectExpr("customer AS caller")


def app_of(shop: Shop) -> App:
    own = {**names(shop), "orders": "orders", "customers": "customers"}
    app = App(f"views-{shop.name}")
    app.capture(shop.name, ["customers", "orders"])
    visits = app.topic(f"{shop.name}-visits", "customer int, at timestamp")
    app.stream(visits, name=f"{shop.name}-calls", schema="caller int")(calls)
    for name, key, sql in (
        ("revenue", "region", REVENUE),
        ("large", "id", LARGE),
        ("best", "region", BEST),
        ("seen", "customer", VISITS),
        ("visited", "region", VISITED),
        ("called", "region", CALLED),
    ):
        app.view(f"{shop.name}-{name}", key=key, sql=sql.format(**own))
    return app


def once(spark: SparkSession, shop: Shop, app: App, **options: Any) -> None:
    with Run(app, shop.settings, once=True, spark=spark, traffic=False, **options) as run:
        while not run.done:
            run.poll()
        run.stop()


def answer(shop: Shop, sql: str) -> set[tuple[Any, ...]]:
    """PostgreSQL's own, with views as views of its own and events in a table."""
    with psycopg.connect(shop.url, autocommit=True, options="-c TimeZone=UTC") as connection:
        return {tuple(map(plain, row)) for row in connection.execute(sql, binary=True).fetchall()}  # type: ignore[call-overload]


def held(shop: Shop, name: str) -> tuple[set[tuple[Any, ...]], Any]:
    store = Store(shop.settings, f"views-{shop.name}")
    _, rows, position = store.rows(f"{shop.name}-{name}")
    store.close()
    assert len(set(rows)) == len(rows)
    return {tuple(map(plain, row)) for row in rows}, position


def visit(shop: Shop, *customers: int | None) -> None:
    for customer in customers:
        at = f"2026-01-01T00:00:{len(list(shop.captures.log.read(f'{shop.name}-visits'))):02}Z"
        shop.captures.log.write(f"{shop.name}-visits", {"customer": customer, "at": at})
        with psycopg.connect(shop.url, autocommit=True) as connection:
            connection.execute("INSERT INTO visits VALUES (%s, %s)", (customer, at))


def compare(shop: Shop) -> None:
    own = {"orders": "orders", "customers": "customers", "visits": "visits", "calls": CALLS}
    own["revenue"] = f"({REVENUE.format(**own)}) r"
    views = {"revenue": REVENUE, "large": LARGE, "best": BEST, "seen": VISITS, "visited": VISITED, "called": CALLED}
    for name, sql in views.items():
        found, position = held(shop, name)
        assert found == answer(shop, sql.format(**own)), name
        assert (position.lsn is None) == (name in ("seen", "visited", "called")), name
    # What a view is true of has what was committed before it was asked for.
    assert lsn_number(held(shop, "best")[1].lsn) >= shop.reached


def test_the_store_holds_what_postgresql_answers(shop: Shop, spark: SparkSession) -> None:
    shop.run(*TABLES, "CREATE TABLE visits (customer integer, at timestamptz)")
    shop.run(
        "INSERT INTO customers SELECT n, (ARRAY['north', 'south', NULL])[1 + n % 3], date '2024-01-01' + n"
        " FROM generate_series(1, 9) n",
        r"INSERT INTO orders SELECT n, n % 11, n * 1.37, CASE WHEN n % 2 = 0 THEN '\x00ff'::bytea END"
        " FROM generate_series(1, 40) n",
    )
    app = app_of(shop)
    shop.captures.log.topics.ensure(f"{shop.name}-visits", partitions=2)
    visit(shop, 1, 2, 2, None)
    shop.captures.ensure(app.graph().databases[0].capture)
    reached(shop)
    once(spark, shop, app)
    compare(shop)
    _state_is_seen(shop, spark)
    # A group that goes with its last row, a row that moves to another, a key that changes, a new one.
    shop.run(
        "UPDATE customers SET region = 'east' WHERE region IS NULL",
        "UPDATE orders SET customer_id = 3, amount = amount + 0.01 WHERE id < 6",
        "DELETE FROM orders WHERE customer_id = 4",
        "UPDATE orders SET id = 100 WHERE id = 20",
        r"UPDATE orders SET note = '\x01' WHERE id BETWEEN 21 AND 24",  # which revenue does not read
        "INSERT INTO orders VALUES (101, 1, 99999999.99, ''), (102, NULL, NULL, NULL)",
        "DELETE FROM customers WHERE region = 'north'",
    )
    visit(shop, 2, 3)
    reached(shop)
    once(spark, shop, app)
    compare(shop)
    _changelog_is_whole(shop)

    # Another SQL is not what the checkpoint and the changelog hold; begun afresh, it takes their place.
    other = App(app.name)
    other.capture(shop.name, ["customers", "orders"])
    other.view(f"{shop.name}-large", key="id", sql="SELECT id, amount FROM orders WHERE amount > 20")
    with pytest.raises(StateChanged):
        once(spark, shop, other)
    once(spark, shop, other, fresh=[f"{shop.name}-large"])
    assert held(shop, "large")[0] == answer(shop, "SELECT id, amount FROM orders WHERE amount > 20")

    # A key that two rows have is told, and not shown.
    wrong = App(f"wrong-{shop.name}")
    wrong.capture(shop.name, ["customers", "orders"])
    wrong.view(f"{shop.name}-wrong", key="customer_id", sql="SELECT customer_id, amount FROM orders")
    with pytest.raises(ViewKeyRepeated, match="customer_id"):
        once(spark, shop, wrong)


def _state_is_seen(shop: Shop, spark: SparkSession) -> None:
    """Keys, rows and bytes of each operator, and what is kept of a key."""
    name = f"{shop.name}-revenue"
    state = State(spark, folder_of(shop.settings, f"views-{shop.name}", name), name)
    sizes = {each.operator: each for each in state.sizes()}
    assert {name: sizes[name].keys for name in ("table", "aggregate")} == {"table": 9 + 40, "aggregate": 3}, sizes
    assert set(sizes) == {"table", "join", "consolidate", "aggregate", "only"}
    assert sizes.pop("consolidate").rows == 0, "it adds up what an epoch has, and keeps nothing"
    assert all(each.rows >= each.keys > 0 and each.bytes > each.rows for each in sizes.values()), sizes
    found, _ = state.shown(["north"], 20)
    assert "north" in str([each.key for each in found])
    (number,) = (each.number for each in state.operators if each.told["operator"] == "table")
    kept = spark.read.format("statestore").option("path", str(state.checkpoint)).option("operatorId", number)
    rows = kept.option("stateVarName", "row").load().selectExpr("CAST(value.row AS string) AS row").collect()
    assert {tuple(json.loads(row.row)) for row in rows} == {("id", "customer_id", "amount"), ("id", "region", "since")}


def test_one_reads_ones_own_writes_without_a_heartbeat(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits knows a place behind his commit, with somebody else's in between, and no other follows."""
    monkeypatch.setattr(connector, "HEARTBEAT_MS", 86_400_000)
    monkeypatch.setattr(waiting, "WAIT_S", LIMIT_S)
    shop.run(
        "CREATE TABLE orders (id integer PRIMARY KEY, note text, amount integer)", "CREATE TABLE noise (n integer)"
    )
    app = App(f"own-{shop.name}")
    app.capture(shop.name, ["orders"])
    app.view(f"{shop.name}-sums", key="one", sql="SELECT 1 AS one, sum(amount) AS total FROM orders")
    app.view(f"{shop.name}-large", key="total", sql=f'SELECT total FROM "{shop.name}-sums" WHERE total > 5')
    shop.captures.ensure(app.graph().databases[0].capture)
    reached(shop)
    with Run(app, shop.settings, spark=spark, traffic=False) as run, closing(Store(shop.settings, app.name)) as store:
        until(lambda: run.poll() is not None and len(store.positions()) == 2, "both views", LIMIT_S)
        for number in (1, 2):
            shop.run(f"INSERT INTO orders VALUES ({number}, '', {10**number})", "INSERT INTO noise VALUES (1)")
            wanted = lsn(shop)
            for name, row in (("sums", (1, sum(10**n for n in range(1, number + 1)))), ("large", None)):
                found = store.wait(f"{shop.name}-{name}", lsn_text(wanted), LIMIT_S)
                assert lsn_number(str(found.lsn)) >= wanted
                _, rows, _ = store.rows(f"{shop.name}-{name}")
                assert rows == [row or (sum(10**n for n in range(1, number + 1)),)]
        _is_pushed(shop, app)
        _stands_still_and_goes_on(shop, app, run, store)
        _goes_on_over_another_column(shop, run, store)
        run.stop()


def _is_pushed(shop: Shop, app: App) -> None:
    """From a commit in PostgreSQL to the client's socket, through all that is between them."""
    with served(shop.settings, app) as server, closing(Client(server.address, timeout_s=LIMIT_S)) as client:
        told = client.watch(f"{shop.name}-sums")
        first = next(told)
        assert (first.snapshot, [row["total"] for row in first.rows]) == (True, [110])
        shop.run("UPDATE orders SET amount = 1 WHERE id = 1")
        changed = next(each for each in told if each.rows)
        assert ([row["total"] for row in changed.rows], changed.gone) == ([101], [])
        pulled = client.rows(f"{shop.name}-large", wait_for=lsn_text(lsn(shop)))
        assert list(pulled) == [{"total": 101}]


def _stands_still_and_goes_on(shop: Shop, app: App, run: Run, store: Store) -> None:
    """The store does not take a row any more: whoever looks is told, and it goes on when somebody has seen to it."""
    sums, large = (f"{shop.name}-{name}" for name in ("sums", "large"))
    with served(shop.settings, app) as server, psycopg.connect(url_of(shop.settings), autocommit=True) as connection:

        def told(path: str) -> httpx.Response:
            run.poll()
            return httpx.get(server.address + path, timeout=60)

        flows = {each["flow"]: each for each in told("/v1/flows").json()["flows"] if each["app"] == app.name}
        assert {name: each["state"] for name, each in flows.items()} == {sums: "running", large: "running"}
        assert all(each["epoch"] >= 0 and not each["trouble"] and "pid" not in each for each in flows.values())
        assert {each["flow"] for each in told("/v1/lag").json()["flows"]} == {sums, large}
        assert told("/health").json()["stands_still"] == {}

        table = SQL("{}.{}").format(Identifier(store.schema), Identifier(sums))
        connection.execute(SQL("ALTER TABLE {} ADD CONSTRAINT small CHECK (total < 1000)").format(table))
        shop.run("INSERT INTO orders VALUES (5, '', 2000)")
        until(lambda: told("/health").status_code == 503, "it is told", LIMIT_S)
        health = told("/health").json()
        assert list(health["stands_still"]) == [sums]
        assert f"the view {sums} stands still: MR-VIEW-STORE-UNFIT" in health["reason"]
        assert "small" in health["reason"]
        assert "tries again by itself" in health["reason"]
        assert (run.standings[sums].state, str(run.standings[sums].trouble)[:19]) == ("running", "MR-VIEW-STORE-UNFIT")
        # What is over it reads the changelog, and so do those who watch.
        store.wait(large, lsn_text(lsn(shop)), LIMIT_S)
        assert store.rows(large)[1] == [(2101,)]
        assert store.rows(sums)[1] == [(1, 101)]

        connection.execute(SQL("ALTER TABLE {} DROP CONSTRAINT small").format(table))
        until(lambda: told("/health").status_code == 200, "it goes on", LIMIT_S)
        assert store.rows(sums)[1] == [(1, 2101)]


def _goes_on_over_another_column(shop: Shop, run: Run, store: Store) -> None:
    """It reads neither the column that comes nor another one that its rows have, and keeps neither."""
    shop.run("ALTER TABLE orders ADD COLUMN number integer DEFAULT 7", "INSERT INTO orders VALUES (6, '', 10, 1)")
    until(lambda: run.poll() is not None and store.rows(f"{shop.name}-sums")[1] == [(1, 2111)], "its row", LIMIT_S)


LATELY = "SELECT id, at FROM {visits} WHERE at <= now() AND at > now() - interval '10 seconds'"
GUESTS = "SELECT guest, count(*) AS visits FROM {visits} WHERE at + interval '10 seconds' >= now() GROUP BY guest"


@dataclass
class Visits:
    """Rows of a table, and the same as events. `last` is the time of the last one."""

    shop: Shop
    topic: str
    number: int = 0
    last: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def add(self, *after_s: int) -> None:
        for seconds in after_s:
            self.number, self.last = self.number + 1, datetime.now(UTC) + timedelta(seconds=seconds)
            row = {"id": self.number, "guest": self.number % 2, "at": self.last.isoformat()}
            self.shop.run(f"INSERT INTO visits VALUES ({row['id']}, {row['guest']}, '{row['at']}')")
            self.shop.captures.log.write(self.topic, row)

    @property
    def over(self) -> bool:
        return datetime.now(UTC) > self.last + timedelta(seconds=10)


@pytest.mark.turn(1, 2)
def test_rows_come_and_go_by_the_clock(shop: Shop, spark: SparkSession) -> None:
    """Of a captured table and of events, without anything that happens but time; what is due while nothing runs is done
    by the next run. Each is PostgreSQL's answer, with the `at` that the view tells as now()."""
    shop.run("CREATE TABLE visits (id integer PRIMARY KEY, guest integer, at timestamptz)")
    app, visits = App(f"clock-{shop.name}"), Visits(shop, f"{shop.name}-events")
    app.capture(shop.name, ["visits"])
    app.topic(visits.topic, "id int, guest int, at timestamp")
    views = {f"{shop.name}-lately": LATELY, f"{shop.name}-guests": GUESTS}
    app.view(f"{shop.name}-lately", key="id", sql=LATELY.format(visits="visits"))
    app.view(f"{shop.name}-guests", key="guest", sql=GUESTS.format(visits=f'"{visits.topic}"'))
    shop.captures.log.topics.ensure(visits.topic, partitions=2)
    shop.captures.ensure(app.graph().databases[0].capture)
    reached(shop)

    with closing(Store(shop.settings, app.name)) as store:

        def held(view: str) -> list[tuple[Any, ...]] | None:
            """Its rows, if they are PostgreSQL's answer of all that was written."""
            _, rows, position = store.rows(view)
            sql = views[view].format(visits="visits").replace("now()", f"TIMESTAMPTZ '{position.at}'")
            return rows if {tuple(map(plain, row)) for row in rows} == answer(shop, sql) else None

        def both_come() -> bool:
            run.poll()
            if visits.over:  # and was not seen: the machine is slow
                visits.add(-3600, -2, 3)
            return all(held(view) for view in views)

        def all_go() -> bool:
            run.poll()
            return all(held(view) == [] for view in views)

        with Run(app, shop.settings, spark=spark, traffic=False) as run:
            until(lambda: run.poll() is not None and len(store.positions()) == 2, "both views", LIMIT_S)
            until(both_come, "rows of now", LIMIT_S)
            until(all_go, "nothing more", LIMIT_S)
            until(both_come, "rows of now, again", LIMIT_S)
            run.stop()
        until(lambda: visits.over, "while nothing runs")
        with Run(app, shop.settings, spark=spark, traffic=False) as run:
            until(all_go, "nothing more", LIMIT_S)
            run.stop()


def reached(shop: Shop) -> None:
    shop.reached = lsn(shop)
    marked(shop, shop.reached)


def _changelog_is_whole(shop: Shop) -> None:
    """Upserts and tombstones by key, each with its position; the last mark ends where the topic does."""
    log, topic = shop.captures.log, f"{shop.name}-revenue"
    rows: dict[bytes, Any] = {}
    for record in log.read(topic):
        assert record.key is not None
        assert AFTER in dict(record.headers)
        rows[record.key] = record.json()
        assert rows[record.key] is None or set(json.loads(record.key)) == {"region"}
    regions = {json.loads(key)["region"] for key, value in rows.items() if value is not None}
    assert regions == {row[0] for row in held(shop, "revenue")[0]}
    assert None in rows.values(), "a group has gone"
    *_, last = (record.json() for record in log.read(marks_topic(topic)))
    assert last["whole"]
    assert {int(number): end for number, end in last["ends"].items()} == {
        number: end for number, (_, end) in log.topics.offsets(topic).items()
    }


def test_a_play_says_that_it_runs_no_views(play: Any) -> None:
    app = mr.App("views")
    visits = app.topic("visits", "customer int")
    app.view("seen", key="customer", sql="SELECT customer, count(*) AS visits FROM visits GROUP BY customer")
    played = play(app)
    with pytest.raises(ViewNotRun, match="a play has neither"):
        played.feed(visits, [{"customer": 1}])
