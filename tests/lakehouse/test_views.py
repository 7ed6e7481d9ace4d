"""A view's changelog in the lake: the table is what PostgreSQL answers to the view's SQL, also where rows go."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from millrace.flow import App
from millrace.lakehouse.asking import asked
from tests.engine.items import once
from tests.rotation import todays
from tests.shop import Shop
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

SQL = "SELECT region, count(*) AS orders, sum(amount) AS total FROM orders WHERE amount > 5 GROUP BY region"
CHANGES = (
    "INSERT INTO orders SELECT n, (ARRAY['north', 'south', 'west'])[1 + n % 3], n FROM generate_series(1, 12) n",
    "DELETE FROM orders WHERE region = 'south'",
    "UPDATE orders SET region = 'south', amount = amount + 0.5 WHERE id = 12",
    "UPDATE orders SET amount = 1 WHERE region <> 'west'",
    "DELETE FROM orders",
)


@pytest.mark.parametrize("kind", todays(("delta", "iceberg"), 1))
def test_a_views_rows_come_change_and_go(kind: Any, shop: Shop, spark: SparkSession) -> None:
    view, table = f"{shop.name}-sums", f"sums_{shop.name}"
    shop.run("CREATE TABLE orders (id integer PRIMARY KEY, region text, amount numeric(12, 2))")
    app = App(f"views-{shop.name}")
    db = app.capture(shop.name, ["orders"])
    app.view(view, key="region", sql=SQL)
    reports = App(f"reports-{shop.name}")
    sums = reports.table(view, "region string, orders long, total decimal(38,2)", key="region")
    sums.to(mr.lake(table, format=kind))
    shop.captures.ensure(db.capture)
    counts = []
    for change in CHANGES:
        shop.run(change)
        marked(shop, lsn(shop))
        once(spark, shop.settings, app)
        once(spark, shop.settings, reports)
        with asked(shop.settings, f"SELECT region, orders, total FROM {table}") as found:
            rows = found.fetchall()
        assert sorted(rows) == sorted(shop.run(SQL)), change
        counts.append(len(rows))
    assert counts == [3, 2, 3, 1, 0]
