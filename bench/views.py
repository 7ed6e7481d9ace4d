"""A view over two captured tables: how fresh it is, and what a change costs when the tables grow.

    python -m bench.views [--sizes 10000,100000,1000000] [--rates 100,1000] [--seconds 20] [--burst 20000]
        [--warm-up 60]
    python -m bench.views --mode realtime [--epoch "60 seconds"] [--sizes 10000] [--rates 100] [--seconds 120]
        [--warm-up 130]

The view joins orders with customers and groups by region. Freshness is from the return of a COMMIT to the moment at
which it is seen in the view store, by HTTP and on a WebSocket (`views_fresh.py`); one machine, one clock. A change's
cost is CPU of the run (Python and JVM) for a burst of updates of random orders, in transactions of 100, until the last
is visible; changes a second are those of the same bursts. The peers compute the query anew after each transaction of
100: as a SELECT, and by REFRESH MATERIALIZED VIEW. They have the machine for themselves, the run has ended by then.
Read your writes is a commit, its LSN, and a wait for that LSN, again and again.
`flat` is the CPU of a change at the size at which it is cheapest, over that at which it is dearest; `refresh` and
`recomputed` are changes a second over the peer's, at the largest size; `fresh` is 1 s over the worst p99 on a
WebSocket.

A rate that is not held, because it was not written or because not everything was seen 300 s after it was, is named with
what was measured until then. Whatever ends a size early is told in `failed`, beside what was measured before; the exit
code is then 1.

A JVM that has just started has yet to compile what an epoch takes. So changes come at the first of the rates for a
minute before freshness counts; what it was in that minute is told beside it, as `young_ms`.

In real time only freshness is measured, of tentative rows, ends of epochs included. It begins with forty epochs of a
second, which then double up to its own: changes that do not count come for so long. `fresh` is 250 ms over the worst
p99 on a WebSocket.

How quickly rows are pulled, and changes pushed to many, is what `bench.serving` measures; `make bench-views` runs it
too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import statistics
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.capture import project
from bench.first_epochs import short_s
from bench.views_fresh import Phase, alone, looks, quantiles
from millrace import durations
from millrace.config import Settings
from millrace.local import address
from millrace.views.changelog import lsn_number
from millrace.views.store import Store

LIMIT_S = 900.0
LONGEST = 500  # of what is told of a failure
REGIONS, CUSTOMERS = 50, 1_000
WARM = 2_000
PER_TRANSACTION, PEER_TRANSACTIONS = 100, 20
OWN_WRITES = 20
WARM_UP_S = 60.0
LOOK_S = 0.004
WAYS = ("store", "http", "websocket")
SQL = """SELECT c.region, count(*) AS orders, sum(o.amount) AS total
    FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.region"""
APP = """\
import millrace as mr

app = mr.App("{name}")
app.capture("{name}", tables=["customers", "orders"])
app.view("revenue", key="region", sql=\"\"\"{sql}\"\"\"{mode})
"""
FRESH_MS = {"microbatch": 1_000, "realtime": 250}


class Bench:
    """One size: a database of its own, and a run of the view over it."""

    def __init__(self, settings: Settings, rows: int, epoch: str | None = None) -> None:
        self.settings, self.rows, self.name = settings, rows, f"views{rows}"
        self.mode = "" if epoch is None else f', mode="realtime", epoch="{epoch}"'
        server = address(settings, "postgres")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name}")
        self.url = server.rpartition("/")[0] + f"/{self.name}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE customers (id integer PRIMARY KEY, region text)")
            connection.execute(
                "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, amount numeric(12, 2))"
            )
            connection.execute(
                "INSERT INTO customers SELECT n, 'region ' || n %% %s FROM generate_series(0, %s) n",
                (REGIONS, CUSTOMERS - 1),
            )
            connection.execute(
                "INSERT INTO orders SELECT n, n %% %s, n %% 1000 / 10.0 FROM generate_series(1, %s) n",
                (CUSTOMERS, rows),
            )

    @contextlib.contextmanager
    def command(self, verb: str, *options: str) -> Iterator[psutil.Process]:
        (self.settings.folder / f"{self.name}.py").write_text(APP.format(name=self.name, sql=SQL, mode=self.mode))
        command = [sys.executable, "-m", "millrace", verb, f"{self.name}:app", *options]
        with self.said(verb).open("wb") as out:
            process = subprocess.Popen(command, cwd=self.settings.folder, stdout=out, stderr=out)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)

    def said(self, verb: str) -> Path:
        return self.settings.folder / f"{self.name}.{verb}.out"

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + LIMIT_S
        with self.command("serve", "--listen", str(port)):
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health"):
                    break
                assert time.monotonic() < deadline, self.said("serve").read_text()
                time.sleep(0.1)
            yield address

    def wait(self, lsn: int | None = None) -> None:
        """Until the store has the view, or something that was committed behind this place."""
        store, deadline = Store(self.settings, self.name), time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(Exception):
                found = store.position("revenue")
                if found is not None and (lsn is None or lsn_number(found.lsn or "0/0") > lsn):
                    store.close()
                    return
            assert time.monotonic() < deadline, self.said("run").read_text()
            time.sleep(LOOK_S)

    def burst(self, changes: int, after_each: Callable[[psycopg.Connection[Any]], object] | None = None) -> int:
        """Updates of random orders; gives the place before the last commit."""
        draw, place = random.Random(changes), 0
        with psycopg.connect(self.url) as connection:
            for _ in range(0, changes, PER_TRANSACTION):
                ids = draw.sample(range(1, self.rows + 1), PER_TRANSACTION)
                connection.execute(
                    "UPDATE orders SET amount = amount + 1, customer_id = (customer_id + 7) %% %s WHERE id = ANY(%s)",
                    (CUSTOMERS, ids),
                )
                place = written_lsn(connection)
                connection.commit()
                if after_each is not None:
                    after_each(connection)
                    connection.commit()
        return place

    def cost(self, process: psutil.Process, changes: int) -> dict[str, float]:
        """Microseconds of CPU a change, and changes a second."""
        cpu, began = cpu_s(process), time.monotonic()
        self.wait(self.burst(changes))
        took = time.monotonic() - began
        return {"cpu_us": round((cpu_s(process) - cpu) * 1e6 / changes), "per_s": round(changes / took)}

    def freshness(self, rate: int, seconds: float, server: str) -> dict[str, Any]:
        self.check()
        found = Phase(self.url, rate, seconds).run(
            looks(address(self.settings, "postgres"), f"millrace_{self.name}", server)
        )
        if not found["held"]:
            print(not_held(rate, found), flush=True)
        return found

    def own_writes(self) -> dict[str, int]:
        """Milliseconds from the return of a COMMIT until whoever made it has a view that contains it, with nobody else
        writing; the view store is on the same server."""
        store, waits = Store(self.settings, self.name), []
        with psycopg.connect(self.url, autocommit=True) as connection:
            for order in range(1, OWN_WRITES + 1):
                connection.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (order,))
                began = time.monotonic()
                row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
                assert row is not None
                store.wait("revenue", row[0], LIMIT_S)
                waits.append((time.monotonic() - began) * 1_000)
        store.close()
        return quantiles(waits)

    def peers(self) -> dict[str, dict[str, float]]:
        """Changes a second, and milliseconds for one computation."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE MATERIALIZED VIEW peer AS {SQL}")  # type: ignore[arg-type]
        statements = {"recomputed": SQL, "refresh": "REFRESH MATERIALIZED VIEW peer"}
        return {name: self._peer(statement) for name, statement in statements.items()}

    def _peer(self, statement: str) -> dict[str, float]:
        took = []

        def compute(connection: psycopg.Connection[Any]) -> None:
            began = time.monotonic()
            connection.execute(statement)  # type: ignore[arg-type]
            took.append(time.monotonic() - began)

        began = time.monotonic()
        self.burst(PEER_TRANSACTIONS * PER_TRANSACTION, compute)
        rate = PEER_TRANSACTIONS * PER_TRANSACTION / (time.monotonic() - began)
        return {"per_s": round(rate), "ms": round(statistics.median(took) * 1_000, 1)}

    def check(self) -> None:
        """The view is what PostgreSQL answers."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            expected, place = connection.execute(SQL).fetchall(), written_lsn(connection)  # type: ignore[arg-type]
            connection.execute("SELECT pg_logical_emit_message(true, 'bench', 'a commit')")
        self.wait(place)
        _, rows, _ = Store(self.settings, self.name).rows("revenue")
        assert sorted(rows) == sorted(expected)


def written_lsn(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def cpu_s(process: psutil.Process) -> float:
    spent = 0.0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            spent += times.user + times.system
    return spent


def not_held(rate: int, found: dict[str, Any]) -> str:
    unseen = "".join(f", {count} not seen by {way}" for way, count in found.get("unseen", {}).items() if count)
    return f"not held: {rate}/s ({found['written_per_s']}/s written{unseen})"


def measured(
    told: dict[str, Any],
    settings: Settings,
    rows: int,
    rates: list[int],
    seconds: float,
    burst: int,
    warm_up_s: float,
) -> None:
    bench, began = Bench(settings, rows), time.monotonic()
    told["alone_per_s"] = alone(bench.url)
    with bench.command("run") as process:
        bench.wait()
        told["filled_s"] = round(time.monotonic() - began, 1)
        bench.wait(bench.burst(WARM))
        costs = [bench.cost(process, burst) for _ in range(3)]
        told["change"] = {name: statistics.median(each[name] for each in costs) for name in costs[0]}
        fresh(told, bench, rates, seconds, warm_up_s)
        told["rss_mb"] = rss_mb(process)
        bench.check()
    told |= bench.peers()


def in_real_time(
    told: dict[str, Any],
    settings: Settings,
    rows: int,
    rates: list[int],
    seconds: float,
    epoch: str,
    warm_up_s: float,
) -> None:
    bench, began = Bench(settings, rows, epoch), time.monotonic()
    told["alone_per_s"] = alone(bench.url)
    with bench.command("run") as process:
        bench.wait()
        told["filled_s"] = round(time.monotonic() - began, 1)
        bench.wait(bench.burst(WARM))
        fresh(told, bench, rates, seconds, warm_up_s)
        told["rss_mb"] = rss_mb(process)
        bench.check()


def fresh(told: dict[str, Any], bench: Bench, rates: list[int], seconds: float, warm_up_s: float) -> None:
    with bench.serving() as server:
        told["young_ms"] = bench.freshness(rates[0], warm_up_s, server)
        told["own_writes_ms"] = bench.own_writes()
        for rate in rates:
            told.setdefault("freshness_ms", {})[str(rate)] = bench.freshness(rate, seconds, server)


def rss_mb(process: psutil.Process) -> int:
    return round(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 1e6)


def table(figures: dict[str, Any]) -> None:
    """For people."""
    for rows, found in figures.items():
        filled, memory = (found.get(each, "?") for each in ("filled_s", "rss_mb"))
        print(f"{int(rows):>9,} rows: filled in {filled} s, {memory} MB")
        for name in (each for each in ("change", "recomputed", "refresh") if each in found):
            print(f"          {name:<12}{found[name]['per_s']:>8,}/s   {found[name]}")
        if "own_writes_ms" in found:
            print(f"          own writes are read after {found['own_writes_ms']} ms")
        for rate, waits in found.get("freshness_ms", {}).items():
            told = ", ".join(f"{way} {waits[way]['p50']:,} / {waits[way]['p99']:,}" for way in WAYS)
            print(f"          {rate:>6}/s ({waits['written_per_s']:,} written): p50 / p99 ms: {told}")
            if not waits["held"]:
                print(f"          {not_held(int(rate), waits)}")
        if "alone_per_s" in found:
            print(f"          the writers alone: {found['alone_per_s']:,}/s")
        if "failed" in found:
            print(f"          ended early: {found['failed']}")


def ratios(figures: dict[str, Any], mode: str) -> dict[str, float]:
    """Of what was measured."""
    found: dict[str, float] = {}
    waits = [way["websocket"]["p99"] for each in figures.values() for way in each.get("freshness_ms", {}).values()]
    if waits:
        found["fresh"] = round(FRESH_MS[mode] / max(waits), 2)
    spent = [each["change"]["cpu_us"] for each in figures.values() if "change" in each]
    if spent:
        found["flat"] = round(min(spent) / max(spent), 2)
    largest = figures[max(figures, key=int)]
    for peer in ("recomputed", "refresh"):
        if peer in largest:
            found[peer] = round(largest["change"]["per_s"] / largest[peer]["per_s"], 3)
    return found


def missed(figures: dict[str, Any]) -> list[str]:
    """The rates that were not held."""
    waits = [
        (rows, rate, each) for rows, found in figures.items() for rate, each in found.get("freshness_ms", {}).items()
    ]
    return [f"{int(rate):,}/s of {int(rows):,} rows" for rows, rate, each in waits if not each["held"]]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--rates", default="100,1000")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--burst", type=int, default=20_000)
    parser.add_argument("--mode", choices=("microbatch", "realtime"), default="microbatch")
    parser.add_argument("--epoch", default="60 seconds")
    parser.add_argument(
        "--warm-up", type=float, help="seconds; otherwise 60, or as long as epochs of real time are short"
    )
    args = parser.parse_args()
    rates = [int(rate) for rate in args.rates.split(",")]
    short = short_s(durations.milliseconds(args.epoch) / 1_000) if args.mode == "realtime" else WARM_UP_S
    warm_up_s = short if args.warm_up is None else args.warm_up
    figures: dict[str, dict[str, Any]] = {}
    with project() as settings:
        for rows in map(int, args.sizes.split(",")):
            own = figures[str(rows)] = {}
            try:
                if args.mode == "realtime":
                    in_real_time(own, settings, rows, rates, args.seconds, args.epoch, warm_up_s)
                else:
                    measured(own, settings, rows, rates, args.seconds, args.burst, warm_up_s)
            except Exception as error:
                traceback.print_exc()
                own["failed"] = f"{type(error).__name__}: {error}"[-LONGEST:]
            print(f"{rows:>9,} rows: {json.dumps(own)}", flush=True)
    table(figures)
    peer = f"{FRESH_MS[args.mode]} ms"
    if args.mode == "microbatch":
        peer += "; the query anew after each transaction of 100: SELECT, REFRESH MATERIALIZED VIEW"
    told = {"bench": "views", "ratios": ratios(figures, args.mode), "not_held": missed(figures), "figures": figures}
    print(json.dumps({**told, "peer": peer}))
    return 1 if any("failed" in each for each in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
