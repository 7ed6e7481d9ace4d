"""A view is added while the run of the old code goes on: it is filled by a run of the new code beside it, which runs
nothing else. The old views move on meanwhile, and all are PostgreSQL's answer."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.engine import Run
from millrace.errors import FlowLocked
from millrace.flow import App
from millrace.views.changelog import lsn_text
from millrace.views.store import Store
from tests.command import until
from tests.crash.supervisor import PATIENCE, Points, Supervised
from tests.shop import Shop
from tests.views.running import lsn, marked

pytestmark = [pytest.mark.spark, pytest.mark.server]

LIMIT_S = 300.0 * PATIENCE
OLD = """\
import millrace as mr

app = mr.App("adding-{name}")
app.capture("{name}", tables=["orders"])
app.view("{name}-sums", key="customer", sql="SELECT customer, sum(amount) AS total FROM orders GROUP BY customer")
"""
# One over a table that the old run reads too, and over its view.
NEW = '''\
app.view("{name}-large", key="id", sql="""SELECT o.id, o.amount, s.total FROM orders o
    JOIN "{name}-sums" s USING (customer) WHERE s.total > 20""")
'''
SUMS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
LARGE = f"SELECT o.id, o.amount, s.total FROM orders o JOIN ({SUMS}) s USING (customer) WHERE s.total > 20"
ANSWERS = {"sums": SUMS, "large": LARGE}


def app_of(shop: Shop, text: str) -> App:
    names: dict[str, Any] = {}
    exec(text.format(name=shop.name), names)
    found = names["app"]
    assert isinstance(found, App)
    return found


@pytest.mark.turn(0, 2)
def test_a_view_is_added_beside_a_run_that_goes_on(shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    shop.run(
        "CREATE TABLE orders (id integer PRIMARY KEY, customer integer, amount integer)",
        "INSERT INTO orders SELECT n, n % 7, n FROM generate_series(1, 40) n",
    )
    module, sums, large = f"adding_{shop.name}", f"{shop.name}-sums", f"{shop.name}-large"
    (shop.settings.folder / f"{module}.py").write_text((OLD + NEW).format(name=shop.name))
    old, new = app_of(shop, OLD), app_of(shop, OLD + NEW)
    shop.captures.ensure(old.graph().databases[0].capture)
    marked(shop, lsn(shop))
    beside = Supervised(shop.settings.folder, Points(tmp_path / "points"))
    beside.console = tmp_path / "beside.log"
    with contextlib.closing(Store(shop.settings, old.name)) as store:

        def are_true(*views: str) -> None:
            """What the store holds of what is committed now."""
            wanted = lsn_text(lsn(shop))
            for view in views:
                store.wait(f"{shop.name}-{view}", wanted, LIMIT_S)
                assert sorted(store.rows(f"{shop.name}-{view}")[1]) == sorted(shop.run(ANSWERS[view])), view

        try:
            with Run(old, shop.settings, spark=spark, traffic=False) as run:
                until(lambda: run.poll() is not None and store.position(sums), "the old view", LIMIT_S)
                beside.start("run", f"{module}:app", "--only", large)
                number = 40

                def is_filled() -> bool:
                    """And the old view goes on meanwhile."""
                    nonlocal number
                    run.poll()
                    number += 1
                    shop.run(f"INSERT INTO orders VALUES ({number}, {number % 7}, 1)")
                    are_true("sums")
                    return store.position(large) is not None or not beside.running

                until(is_filled, "the new view", LIMIT_S)
                assert beside.running, beside.said()
                for change in (
                    "UPDATE orders SET customer = 3 WHERE id < 9",
                    "DELETE FROM orders WHERE customer = 4",
                    "INSERT INTO orders VALUES (1001, 8, 500), (1002, 9, 1)",
                ):
                    shop.run(change)
                    are_true("sums", "large")
                    run.poll()
                # Nobody runs a view twice.
                with pytest.raises(FlowLocked, match=sums):
                    Run(new, shop.settings, spark=spark, only=[sums]).prepare()
                assert run.standings[sums].state == "running"
                assert (run.standings[sums].restarts, beside.stop()) == (0, 0), beside.said()
                # The old one does not need it.
                shop.run("UPDATE orders SET amount = amount + 1")
                are_true("sums")
                run.stop()
        finally:
            if beside.running:
                beside.kill()
        # The next start takes it in: nothing is filled again.
        epoch = store.position(large)
        marked(shop, lsn(shop))
        with Run(new, shop.settings, spark=spark, traffic=False, once=True) as run:
            while not run.done:
                run.poll()
            run.stop()
        assert epoch is not None
        assert store.position(large).epoch > epoch.epoch  # type: ignore[union-attr]
        for view, sql in ANSWERS.items():
            assert sorted(store.rows(f"{shop.name}-{view}")[1]) == sorted(shop.run(sql)), view
