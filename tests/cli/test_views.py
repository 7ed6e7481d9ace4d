"""A view as a person has one: an app that runs, stops and runs again, and `millrace view` beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from millrace import config
from millrace.views.changelog import lsn_number, lsn_text
from millrace.views.store import everything
from tests.command import environ, millrace, start, until
from tests.shop import Shop
from tests.views.running import lsn

APP = """\
import millrace as mr

app = mr.App("orders-{name}")
app.capture("{name}", tables=["customers", "orders"])
app.view("{name}-revenue", key="region", sql=\"\"\"
    SELECT c.region, count(*) AS orders, sum(o.amount) AS total
    FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.region\"\"\")
app.view("{name}-best", key="region", sql='SELECT region, total FROM "{name}-revenue" WHERE total > 10')
"""


class Watched(threading.Thread):
    """`millrace view watch`, while it runs: what it has printed so far, applied."""

    def __init__(self, folder: Path, view: str) -> None:
        super().__init__(daemon=True)
        self.rows: dict[str, Any] = {}
        self.lines = 0
        command = [sys.executable, "-m", "millrace", "view", "watch", view]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, env=environ(), text=True)
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if "row" in told:
                self.rows[told["row"]["region"]] = told["row"]["total"]
            else:
                self.rows.pop(told["gone"]["region"], None)
            self.lines += 1

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()


def asked(folder: Path, *args: str) -> list[Any]:
    done = millrace("view", *args, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(folder: Path, *args: str) -> str:
    done = millrace("view", *args, cwd=folder)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    return done.stderr


def reached(shop: Shop, view: str, position: str) -> bool:
    held = {each.view: each.lsn or "0/0" for each in everything(shop.settings)[f"orders-{shop.name}"]}
    return lsn_number(held[view]) >= lsn_number(position)


def written(shop: Shop) -> str:
    """The position after all commits so far; one more comes behind it, so that nobody waits for the next heartbeat."""
    position = lsn_text(lsn(shop))
    shop.run("SELECT pg_logical_emit_message(true, 'tests', 'a commit')")
    return position


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.turn(0, 2)
def test_a_view_runs_is_asked_and_watched_and_goes_on_after_a_stop(shop: Shop) -> None:
    folder, name = shop.settings.folder, shop.name
    view, app = f"{name}-revenue", f"orders_{name}:app"
    (folder / f"orders_{name}.py").write_text(APP.format(name=name))
    shop.run(
        "CREATE TABLE customers (id integer PRIMARY KEY, region text)",
        "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, amount numeric(12, 2))",
        "INSERT INTO customers VALUES (1, 'north'), (2, 'south')",
        "INSERT INTO orders VALUES (1, 1, 5.50), (2, 1, 7.00), (3, 2, 1.25)",
    )
    with start("run", app, cwd=folder) as command:
        until(lambda: len(everything(shop.settings).get(f"orders-{name}", ())) == 2, "the views")
        listed = json.loads(millrace("view", "list", "--json", cwd=folder).stdout)
        assert {(each["app"], each["view"]) for each in listed} >= {(f"orders-{name}", view)}
        position = written(shop)
        found = asked(folder, "read", view, "--wait-for", position)
        assert sorted(found, key=lambda row: row["region"]) == [
            {"region": "north", "orders": 2, "total": 12.5},
            {"region": "south", "orders": 1, "total": 1.25},
        ]
        assert len(asked(folder, "read", view, "--limit", "1")) == 1
        watched = Watched(folder, view)
        until(lambda: watched.rows == {"north": 12.5, "south": 1.25}, "the rows")
        shop.run("UPDATE orders SET customer_id = 2 WHERE id = 2", "DELETE FROM orders WHERE id = 1")
        until(lambda: watched.rows == {"south": 8.25}, "the changes")
        assert watched.end() == 130
        command.send_signal(signal.SIGINT)
        said = command.communicate(timeout=60)[0]
        assert command.returncode == 0, said
        assert "stopping after this epoch" in said
    # What happens while nothing runs is there after the next start; a reader waits for its own writes.
    shop.run("INSERT INTO orders VALUES (4, 2, 2.00), (5, 1, 100.00)")
    position = written(shop)
    with start("run", app, cwd=folder):
        until(lambda: reached(shop, f"{name}-best", position), "what was written meanwhile")
        found = asked(folder, "read", f"{name}-best", "--wait-for", position)
        assert {(row["region"], row["total"]) for row in found} == {("north", 100.0), ("south", 10.25)}
    assert "MR-VIEW-UNKNOWN" in refused(folder, "read", f"{name}-revenu")
    assert f"did you mean '{view}'" in refused(folder, "watch", f"{name}-revenu")
    assert "is no LSN" in refused(folder, "read", view, "--wait-for", "yesterday")


def test_without_a_store_it_says_so(folder: Path) -> None:
    assert config.load(folder).views.url is None
    done = millrace("view", "list", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "postgres" in done.stderr
