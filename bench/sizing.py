"""Twenty views and ten sinks on one database, in one run: what they take, and how fresh they are.

    python -m bench.sizing [--rows 100000] [--idle 60] [--changes 50] [--views 20] [--sinks 10]
    python -m bench.sizing --views 5,20         # what a view more takes

Memory is resident, of the run alone (Python and JVM), when everything is filled and after the changes; CPU is of the
same processes while nobody writes: looking for changes, and views with now(), which have an epoch each second.
Freshness is from the return of a COMMIT, one change of an order at a time, to the moment at which a view's position in
the store is behind it, looked at for all views at once: of each view, and of the last of them.
What is kept as state is read from the checkpoints when the run has ended, of one view of each kind, and of the sinks'
flows: bytes as Spark holds them, by operator.
`peak` is resident memory when filled over that after the changes: 1 if nothing grows. With several numbers of views
each is a run on servers of its own, and `a_view` what one more takes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import psycopg

from bench.capture import project
from bench.views import cpu_s, written_lsn
from bench.views_fresh import quantiles
from millrace.config import Settings
from millrace.engine.definition import folder_of
from millrace.engine.flows import flows
from millrace.engine.session import close, session
from millrace.engine.state import State
from millrace.local import address
from millrace.views.changelog import lsn_number
from millrace.views.store import Store

NAME = "sizing"
LIMIT_S = 1_800.0
LOOK_S = 0.01
CUSTOMERS = 1_000
TABLES = (
    "CREATE TABLE customers (id integer PRIMARY KEY, region text, since date)",
    "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, amount numeric(12, 2), at timestamptz)",
    "CREATE TABLE items (id integer PRIMARY KEY, order_id integer, product integer, quantity integer)",
)
# Each of them several times, with other numbers: the key, and the SQL.
KINDS = (
    ("region", """SELECT c.region, count(*) AS orders, sum(o.amount) AS total FROM orders o
        JOIN customers c ON o.customer_id = c.id WHERE o.amount > {n} GROUP BY c.region"""),
    ("id", "SELECT id, customer_id, amount FROM orders WHERE amount > 90 + {n}"),
    ("product", "SELECT product, sum(quantity) AS sold FROM items WHERE quantity > {n} % 3 GROUP BY product"),
    ("customer_id", "SELECT customer_id, max(amount) AS most, count(*) AS n FROM orders GROUP BY customer_id"
        " HAVING count(*) > {n}"),
    ("id", "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 1{n}"),
    ("id", "SELECT id, region FROM customers c WHERE NOT EXISTS"
        " (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.amount > 80 + {n})"),
    ("customer_id", "SELECT customer_id, count(*) AS n FROM orders WHERE at > now() - interval '{n} hours'"
        " GROUP BY customer_id"),
)  # fmt: skip


def code(views: int, sinks: int) -> str:
    lines = ["import millrace as mr", "", f'app = mr.App("{NAME}")']
    lines.append(f'db = app.capture("{NAME}", tables=["customers", "orders", "items"])')
    for number in range(views):
        key, sql = KINDS[number % len(KINDS)]
        lines.append(f'app.view("view{number}", key="{key}", sql="""{sql.format(n=1 + number // len(KINDS))}""")')
    for number in range(sinks):
        table = ("customers", "orders", "items")[number % 3]
        lines.append(f'db.{table}.to(mr.postgres("copies.{table}{number}", database="{NAME}"))')
    return "\n".join(lines) + "\n"


class Bench:
    def __init__(self, settings: Settings, rows: int, views: int, sinks: int) -> None:
        self.settings, self.rows, self.views = settings, rows, views
        server = address(settings, "postgres")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {NAME}")
        self.url = server.rpartition("/")[0] + f"/{NAME}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in TABLES:
                connection.execute(statement)  # type: ignore[arg-type]
            connection.execute("CREATE SCHEMA copies")
            connection.execute(
                "INSERT INTO customers SELECT n, 'region ' || n %% 50, date '2024-01-01' + n %% 900"
                " FROM generate_series(0, %s) n",
                (CUSTOMERS - 1,),
            )
            connection.execute(
                "INSERT INTO orders SELECT n, n %% %s, n %% 1000 / 10.0, now() - n * interval '1 second'"
                " FROM generate_series(1, %s) n",
                (CUSTOMERS, rows),
            )
            connection.execute("INSERT INTO items SELECT n, n, n %% 200, n %% 7 FROM generate_series(1, %s) n", (rows,))
        (settings.folder / f"{NAME}.py").write_text(code(views, sinks))
        self.out = settings.folder / f"{NAME}.out"

    @contextlib.contextmanager
    def running(self) -> Iterator[psutil.Process]:
        with self.out.open("wb") as out:
            command = [sys.executable, "-m", "millrace", "run", f"{NAME}:app"]
            process = subprocess.Popen(command, cwd=self.settings.folder, stdout=out, stderr=out)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(120)

    def filled(self, store: Store) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(Exception):  # there is no store yet
                if len(store.positions()) == self.views:
                    return
            assert time.monotonic() < deadline, self.out.read_text()
            time.sleep(1)

    def freshness(self, store: Store, changes: int) -> dict[str, dict[str, int]]:
        """Milliseconds until each view, and until the last of them, has a change."""
        draw, each, last = random.Random(changes), [], []
        with psycopg.connect(self.url) as connection:
            for _ in range(changes):
                order = draw.randint(1, self.rows)
                connection.execute("UPDATE orders SET amount = amount + 1, at = now() WHERE id = %s", (order,))
                place = written_lsn(connection)
                connection.commit()
                began, waiting = time.monotonic(), {f"view{number}" for number in range(self.views) if reads(number)}
                while waiting:
                    held = {found.view for found in store.positions() if lsn_number(found.lsn or "0/0") > place}
                    took = (time.monotonic() - began) * 1_000
                    each += [took] * len(waiting & held)
                    waiting -= held
                    assert took < LIMIT_S * 1_000, self.out.read_text()
                    time.sleep(LOOK_S)
                last.append(took)
        return {"each": quantiles(each), "last": quantiles(last)}


def reads(number: int) -> bool:
    """Whether a view reads orders: others have the change's position with the next heartbeat."""
    return "orders" in KINDS[number % len(KINDS)][1]


def rss_mb(process: psutil.Process) -> int:
    return round(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 1e6)


def kept(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """By flow its operators in their order: how many keys and rows each keeps, and bytes."""
    names = [each["flow"] for each in flows(settings) if each["app"] == NAME]
    names = [name for name in names if not name.startswith("view") or int(name.removeprefix("view")) < len(KINDS)]
    spark = session(settings, "local[2]", "sizes")
    try:
        return {
            name: [
                {"operator": size.operator, "key": size.key, "keys": size.keys, "rows": size.rows, "bytes": size.bytes}
                for size in State(spark, folder_of(settings, NAME, name), name).sizes()
            ]
            for name in sorted(names)
        }
    finally:
        close(spark)


def measured(args: argparse.Namespace, views: int) -> dict[str, Any]:
    with project() as settings:
        bench, began = Bench(settings, args.rows, views, args.sinks), time.monotonic()
        store = Store(settings, NAME)
        with bench.running() as process, contextlib.closing(store):
            bench.filled(store)
            found: dict[str, Any] = {"filled_s": round(time.monotonic() - began, 1), "rss_filled_mb": rss_mb(process)}
            spent = cpu_s(process)
            time.sleep(args.idle)
            found["idle_cores"] = round((cpu_s(process) - spent) / args.idle, 2)
            found["freshness_ms"] = bench.freshness(store, args.changes)
            found["rss_mb"] = rss_mb(process)
        found["state"] = kept(settings)
    return found


def table(args: argparse.Namespace, views: int, found: dict[str, Any]) -> None:
    """For people."""
    fresh = found["freshness_ms"]
    print(f"{views} views and {args.sinks} sinks over {args.rows:,} orders: filled in {found['filled_s']} s")
    print(f"  {found['rss_filled_mb']:,} MB when filled, {found['rss_mb']:,} MB after {args.changes} changes")
    print(f"  {found['idle_cores']} of a core while nobody writes")
    print(f"  freshness, p50 / p99 ms: each {fresh['each']['p50']:,} / {fresh['each']['p99']:,}, "
          f"the last {fresh['last']['p50']:,} / {fresh['last']['p99']:,}")  # fmt: skip
    for name, operators in found["state"].items():
        kind = KINDS[int(name.removeprefix("view"))][1] if name.startswith("view") else "its sinks"
        print(f"  {name}: {' '.join(kind.split())}")
        for each in operators:
            print(
                f"    {each['operator']:<12}{each['keys']:>10,} keys{each['rows']:>10,} rows{each['bytes']:>14,} bytes"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--idle", type=float, default=60.0)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--views", default="20")
    parser.add_argument("--sinks", type=int, default=10)
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    for views in sorted(map(int, args.views.split(","))):
        figures[str(views)] = measured(args, views)
        table(args, views, figures[str(views)])
    least, most = figures[min(figures, key=int)], figures[max(figures, key=int)]
    told: dict[str, Any] = {"rows": args.rows, "sinks": args.sinks, "views": figures}
    if len(figures) > 1:
        more = max(map(int, figures)) - min(map(int, figures))
        a_view = {name: round((most[name] - least[name]) / more, 3) for name in ("rss_mb", "idle_cores", "filled_s")}
        told["a_view"] = a_view
        print(f"a view more takes {a_view['rss_mb']} MB, and {a_view['idle_cores']} of a core while nobody writes")
    ratios = {"peak": round(most["rss_filled_mb"] / most["rss_mb"], 2)}
    print(json.dumps({"bench": "sizing", "ratios": ratios, "figures": told, "peer": "the same run, when filled"}))


if __name__ == "__main__":
    main()
