"""What `millrace init` writes: an application of millrace.demo as a project of one's own, with a test that passes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

TOML = """# What this project is, and which servers it uses. Everything has a default.

[run]
app = "{name}:app"      # what `millrace run` runs
show = [{show}]        # the topics that it prints as it goes

# Servers of your own instead of the local ones:
# [kafka]
# bootstrap = "broker-1:9092,broker-2:9092"
# [kafka.options]
# security.protocol = "SASL_SSL"
# sasl.mechanisms = "PLAIN"
# sasl.username = "shop"
# sasl.password = "env:KAFKA_PASSWORD"
"""

README = """# {name}

{first}    millrace run      # starts Kafka, {does}
    pytest            # tests the flows without any server

`{name}.py` is the application, `millrace.toml` its settings, `.millrace/` what Millrace keeps: data, logs, checkpoints.
"""

STARTER_TEST = '''"""The body of a stream is an ordinary function of DataFrames: a test calls it with rows."""

from datetime import datetime

from {name} import views


def test_views_are_counted_by_url_and_ten_seconds(spark):
    rows = [
        ("/", 1, datetime(2026, 1, 1, 12, 0, 1)),
        ("/", 2, datetime(2026, 1, 1, 12, 0, 9)),
        ("/", 3, datetime(2026, 1, 1, 12, 0, 10)),
        ("/cart", 1, datetime(2026, 1, 1, 12, 0, 2)),
    ]
    counted = views(spark.createDataFrame(rows, "url string, user long, at timestamp")).collect()

    found = sorted((row.url, row.window_start.second, row.views) for row in counted)
    assert found == [("/", 0, 2), ("/", 10, 1), ("/cart", 0, 1)]
'''

FRAUD_TEST = '''"""Whole flows under the test's own time, and one of their functions over plain rows."""

from datetime import datetime
from decimal import Decimal

from {name} import PAYMENT, app, card_testing

TOPICS = {{topic.name: topic for topic in app.graph().topics}}


def test_the_third_failed_payment_raises_an_alert(play):
    p = play(app)
    p.feed(TOPICS["payments"], """
        | id | card | customer | amount | status | at       |
        | -- | ---- | -------- | ------ | ------ | -------- |
        | 1  | c    | 7        | 20.00  | failed | 10:00:00 |
        | 2  | c    | 7        | 20.00  | failed | 10:01:00 |
        | 3  | c    | 7        | 20.00  | failed | 10:04:59 |
        | 4  | c    | 7        | 20.00  | failed | 10:30:00 |
    """)
    p.expect("alerts", [{{"id": "failed payments:3", "evidence": "3 failed payments in 5 minutes"}}])
    p.expect("suspects", [{{"customer": 7, "alerts": 1}}])


def test_three_small_payments_and_a_large_one(spark):
    amounts = ("1.00", "1.50", "0.50", "900.00")
    rows = [
        (str(n), "c", 7, Decimal(amount), "ok", "DE", 52.52, 13.4, datetime(2026, 1, 1, 10, n))
        for n, amount in enumerate(amounts)
    ]
    (found,) = card_testing(spark.createDataFrame(rows, PAYMENT)).collect()
    assert (found.payment, found.evidence) == ("3", "3 small payments, then $900.00")
'''

SHOP_TEST = '''"""What follows the database, without any server: rows of tables in, what sinks and topics are given out.
Views want the servers, so they are left out."""

from {name} import app

(DB,) = app.graph().databases


def test_index_cache_and_lake_follow_the_tables(play):
    p = play(app, views=False)
    p.table(DB.customers, "id long, name string, city string", key="id")
    p.table(DB.products, "id long, title string, price decimal(12,2)", key="id")
    order = "id long, customer long, product long, pieces int, amount decimal(12,2), status string"
    p.table(DB.orders, order, key="id")

    p.feed(DB.customers, [{{"id": 7, "name": "Ann", "city": "Ulm"}}])
    p.expect("redis.customer", [{{"id": 7, "city": "Ulm"}}])
    p.feed(DB.products, [{{"id": 1, "title": "oak table", "price": "600.00"}}])
    p.expect("opensearch.products", [{{"id": 1, "title": "oak table"}}])
    p.feed(DB.orders, """
        | id | customer | product | pieces | amount  | status |
        | -- | -------- | ------- | ------ | ------- | ------ |
        | 1  | 7        | 1       | 2      | 1200.00 | new    |
        | 2  | 7        | 1       | 1      | 600.00  | new    |
    """)
    p.expect("lake.orders", [{{"id": 1}}, {{"id": 2}}])
    p.expect("large_orders", [{{"id": 1, "__diff": 1}}])

    p.delete(DB.orders, [{{"id": 1}}])
    p.expect("lake.orders", [{{"id": 1, "__diff": -1}}])
    p.expect("large_orders", [{{"id": 1, "__diff": -1}}])
'''


@dataclass(frozen=True)
class Template:
    """`app` is how its source makes the app, up to the name's end; `files` are what else it consists of, `first` is to
    be done before the app runs."""

    source: str
    app: str
    show: tuple[str, ...]
    does: str
    test: str
    files: tuple[str, ...] = ()
    first: str = ""

    def written(self, name: str) -> dict[str, str]:
        """The files of a project of that name, and what is in each."""
        made = {f"{each.replace(self.source, name)}.py": self._own(each, name) for each in (self.source, *self.files)}
        return {
            **made,
            f"test_{name}.py": self.test.format(name=name),
            "millrace.toml": TOML.format(name=name, show=", ".join(f'"{topic}"' for topic in self.show)),
            "README.md": README.format(name=name, does=self.does, first=self.first.format(name=name)),
            ".gitignore": ".millrace/\n__pycache__/\nlake/\n",
        }

    def _own(self, module: str, name: str) -> str:
        """The module's source as the project's own."""
        source = resources.files("millrace.demo").joinpath(f"{module}.py").read_text(encoding="utf-8")
        own = {
            f'{self.app}("{self.source}': f'{self.app}("{name}',
            f"millrace demo --only {self.source}": "millrace run",
            f"millrace.demo.{self.source}": name,
            f"{self.source}.py": f"{name}.py",
            f"{self.source}_": f"{name}_",
        }
        # All at once: what has been written may end like what is still to be found.
        return re.sub("|".join(map(re.escape, own)), lambda found: own[found[0]], source)


TEMPLATES = {
    "starter": Template(
        "starter",
        "mr.App",
        ("views",),
        "makes up some visitors, counts their page views, prints the counts",
        STARTER_TEST,
    ),
    "fraud": Template(
        "fraud",
        "application",
        ("alerts", "card_testing", "suspects"),
        "makes up payments and thieves, prints alerts as they come",
        FRAUD_TEST,
        ("fraud_training",),
    ),
    "shop": Template(
        "shop",
        "application",
        ("large_orders",),
        "Debezium and what else it needs, and prints large orders as they come and go",
        SHOP_TEST,
        first="    python {name}.py  # makes a database with made-up business, until Ctrl-C; then, elsewhere:\n",
    ),
}
