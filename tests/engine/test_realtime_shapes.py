"""The kinds of SQL in real time: what each shows at last, and what is certain at each epoch's end, is PostgreSQL's."""

from __future__ import annotations

import random

import psycopg
import pytest
from pyspark.sql import SparkSession

from millrace.engine import Run
from millrace.flow import App
from tests.command import until
from tests.engine.test_realtime_views import LIMIT_S, TABLES, answer, change, held, store_of, versions
from tests.rotation import seeded, todays
from tests.shop import Shop
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

JOINED = "orders o {how} JOIN customers c ON o.customer_id = c.id"
SOME = "(SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.amount > 8)"
ROUNDS, TRANSACTIONS, A_DAY = 3, 10, 2

# The key, and the SQL. Events are in a table of the database too, for PostgreSQL's answer.
SHAPES = {
    "left join": ("id", f"SELECT o.id, o.amount, c.region FROM {JOINED.format(how='LEFT')}"),
    "full join": (
        ("id", "customer"),
        f"SELECT o.id, c.id AS customer, o.amount, c.region FROM {JOINED.format(how='FULL')}",
    ),
    "full join of groups": (
        "region",
        f"SELECT c.region, count(o.id) AS orders, count(c.id) AS known FROM {JOINED.format(how='FULL')} GROUP BY 1",
    ),
    "exists": ("id", f"SELECT id, region FROM customers c WHERE EXISTS {SOME}"),
    "not exists": ("id", f"SELECT id, region FROM customers c WHERE NOT EXISTS {SOME}"),
    "distinct": (
        ("region", "rest"),
        f"SELECT DISTINCT c.region, o.amount % 3 AS rest FROM {JOINED.format(how='INNER')}",
    ),
    "except": ("id", "SELECT id FROM customers EXCEPT SELECT customer_id FROM orders WHERE amount > 8"),
    "limit": ("id", "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 3"),
    "row_number": (
        ("customer_id", "place"),
        "SELECT customer_id, place, id FROM (SELECT customer_id, id, row_number() OVER (PARTITION BY customer_id"
        " ORDER BY amount DESC, id) AS place FROM orders) AS numbered WHERE place <= 2",
    ),
    "max and count distinct": (
        "customer_id",
        "SELECT customer_id, max(amount) AS most, min(amount) AS least, count(DISTINCT amount) AS kinds"
        " FROM orders GROUP BY customer_id HAVING count(*) > 1",
    ),
    "one group": ("one", "SELECT 1 AS one, count(*) AS orders, max(amount) AS most FROM orders WHERE amount > 12"),
    "several steps": (
        "region",
        "SELECT region, max(total) AS best, count(*) AS buyers FROM (SELECT c.region, c.id, sum(o.amount) AS total"
        f" FROM {JOINED.format(how='INNER')} GROUP BY c.region, c.id) AS bought WHERE total > 10 GROUP BY region",
    ),
    "a topic": ("customer", "SELECT customer, count(*) AS visits, max(n) AS latest FROM visits GROUP BY customer"),
    "a topic and a table": (
        "region",
        "SELECT c.region, count(v.customer) AS visits FROM customers c LEFT JOIN visits v ON v.customer = c.id"
        " GROUP BY c.region",
    ),
}


def visit(shop: Shop, topic: str, draw: random.Random) -> None:
    with psycopg.connect(shop.url) as connection:
        ((number,),) = connection.execute("SELECT count(*) FROM visits").fetchall()
        customer = draw.choice((*range(1, 7), None))
        connection.execute("INSERT INTO visits VALUES (%s, %s)", (customer, number))
    shop.captures.log.write(topic, {"customer": customer, "n": number})


@pytest.mark.parametrize("name", todays(list(SHAPES), A_DAY))
def test_each_shape_is_postgresqls(shop: Shop, spark: SparkSession, name: str) -> None:
    """Over three rounds of transactions and events. What reads events has no position of the database: of that the last
    version is compared."""
    shop.run(
        *TABLES,
        "CREATE TABLE visits (customer integer, n integer)",
        "INSERT INTO customers SELECT n, (ARRAY['n', 's', 'e'])[1 + n % 3] FROM generate_series(1, 6) n",
        "INSERT INTO orders SELECT n, 1 + n % 7, n FROM generate_series(1, 20) n",
    )
    view, topic, app, draw = f"{shop.name}-shape", f"{shop.name}-visits", App(f"live-{shop.name}"), seeded(name)
    key, sql = SHAPES[name]
    app.capture(shop.name, ["customers", "orders"])
    app.topic(topic, "customer int, n int")
    shop.captures.log.topics.ensure(topic, partitions=2)
    read = sql.replace("FROM visits", f'FROM "{topic}"').replace("JOIN visits", f'JOIN "{topic}"')
    app.view(view, key=key, sql=read, mode="realtime", epoch="5 seconds")
    shop.captures.ensure(app.graph().databases[0].capture)
    visit(shop, topic, draw)
    marked(shop, lsn(shop))
    befores, answers = [], [answer(shop, sql)]
    with Run(app, shop.settings, spark=spark, traffic=False) as run, store_of(shop) as store:

        def shown() -> bool:
            run.poll()
            return store.position(view) is not None and held(store, view) == answers[-1]

        for _ in range(ROUNDS):
            until(shown, "the view in real time", LIMIT_S)
            for _ in range(TRANSACTIONS):
                befores.append(lsn(shop))
                change(shop, draw)
                if draw.random() < 0.3:
                    visit(shop, topic, draw)
                answers.append(answer(shop, sql))
                run.poll()
        until(shown, "the view at last", LIMIT_S)
        marked(shop, lsn(shop))
        run.stop()
        assert held(store, view) == held(store, view, certain=True) == answers[-1]
        assert store.rows(view)[2].tentative == 0
    told = list(versions(shop, view))
    assert told[-1][1] == answers[-1]
    for mark, rows in told if topic not in read else ():
        place = sum(before < mark.lsn for before in befores)
        assert rows == answers[place], (mark, place)
