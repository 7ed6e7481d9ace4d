"""The event store against the Python library `eventsourcing`, on the same PostgreSQL in one run.

    python -m bench.events [--count N] [--rounds N] [--writers N] [--stored N]

- append: one event a save, to aggregates in memory, one thread. Appends a second of wall time, and a second of CPU: the
  client's and that of all of PostgreSQL's processes together.
- change: load, one command, save, over accounts of some 50 events; snapshots are off.
- load: an account of 10,000 events, with a snapshot every 100 events, in the worst case (99 events stand after it), and
  without any.
- order: the same appends by several threads at once: as they are (a position under a lock until the commit, which those
  who wait share), each in a transaction of its own, and so with positions from a sequence and no lock, where readers
  would have to stay behind the oldest open transaction.
- with `--stored`: all of that while Millrace's store holds so many events, and what `bench/events_stored.py` measures.

The library has its own environment, and Millrace's side is a process of its own, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench import events_stored
from bench.events_account import Account
from millrace import config, local
from millrace.capture.database import parsed
from millrace.config import Settings
from millrace.events import Store, every
from millrace.events.connections import Connections

VERSION = "9.5.6"
ACCOUNTS, LONG, BEHIND, LOADS = 100, 10_000, 99, 400
_FOLDER = Path(__file__).parent
_runs = itertools.count()


class Bank:
    """Millrace's side of what `events_peer.py` does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.repositories = {False: store.repository(Account), True: store.repository(Account, snapshots=every(100))}

    def opened(self, accounts: int) -> list[Account]:
        run = next(_runs)
        held = [Account(f"{os.getpid()}-{run}-{number}") for number in range(accounts)]
        for account in held:
            account.open(account.id)
        self.store.save(*held)
        return held

    def append(self, count: int, accounts: int, snapshots: bool = False) -> None:
        held = self.opened(accounts)
        repository = self.repositories[snapshots]
        for number in range(count):
            account = held[number % accounts]
            account.deposit(Decimal("1.25"))
            repository.save(account)

    def change(self, count: int, accounts: int) -> None:
        held = self.opened(accounts)
        for number in range(count):
            self.repositories[False].change(held[number % accounts].id, Account.deposit, Decimal("1.25"))

    def long_one(self, events: int, snapshots: bool) -> None:
        """An account of so many events, whose snapshot is as old as `every(100)` lets it become."""
        (account,) = self.opened(1)
        for version in range(2, events + BEHIND + 1):
            account.deposit(Decimal("1.25"))
            if version % 100 == 0:
                self.store.save(account)
            if version == events:
                self.repositories[snapshots].load(account.id)
        self.store.save(account)
        self.long = getattr(self, "long", {}) | {snapshots: account.id}

    def loads(self, count: int, snapshots: bool) -> list[float]:
        found = []
        for _ in range(count):
            begin = time.perf_counter()
            account = self.repositories[snapshots].load(self.long[snapshots])
            found.append((time.perf_counter() - begin) * 1_000)
        assert account.version == LONG + BEHIND
        return found


def serve(url: str) -> None:
    """Millrace's side as a process that is asked like the peer's."""
    bank = Bank(Store(Connections("bank", parsed("bank", url))))
    for line in sys.stdin:
        asked = json.loads(line)
        begin, cpu, answer = time.perf_counter(), time.process_time(), {}
        if asked["do"] == "append":
            bank.append(asked["count"], asked["accounts"])
        elif asked["do"] == "change":
            bank.change(asked["count"], asked["accounts"])
        elif asked["do"] == "long":
            bank.long_one(asked["count"], asked["snapshots"])
        else:
            answer["ms"] = bank.loads(asked["count"], asked["snapshots"])
        answer |= {"seconds": time.perf_counter() - begin, "cpu_s": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


class Side:
    def __init__(self, argv: list[str], server: psutil.Process) -> None:
        self.server = server
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        """What it answers, with the CPU that the server spent on it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        before = spent(self.server)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a side of the comparison ended")
        answer: dict[str, Any] = json.loads(line)
        answer["cpu_s"] += spent(self.server) - before
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def spent(server: psutil.Process) -> float:
    """Seconds of CPU of the server and its processes, those that ended among them."""
    own = server.cpu_times()
    alive = [each.cpu_times() for each in server.children(recursive=True)]
    return sum(sum(each[:2]) for each in [own, *alive]) + own.children_user + own.children_system


def environment() -> Path:
    """The Python of the library's environment, which is made if it is not there."""
    folder = config.cache_folder() / "eventsourcing" / VERSION
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"installing eventsourcing {VERSION} into {folder}", flush=True)
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
        wanted = [f"eventsourcing=={VERSION}", "psycopg[binary,pool]"]
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *wanted], check=True)
        ready.touch()
    return python


def without_lock(store: Store) -> None:
    """The store's function as it would be with positions from a sequence: writers do not wait for each other."""
    with store.connections.lent() as connection:
        connection.execute(f"CREATE SEQUENCE place START {store.head() + 1}".encode())
        row = connection.execute("SELECT pg_get_functiondef('events.append'::regproc)").fetchone()
        assert row is not None
        text = "\n".join(line for line in row[0].splitlines() if "pg_advisory_xact_lock" not in line)
        text = text.replace("coalesce(newest.position, 0) + 1", "nextval('place')")
        text = text.replace("first + u.n - 1", "CASE u.n WHEN 1 THEN first ELSE nextval('place') END")
        connection.execute(text.encode())


class Alone:
    """Each thread's append in a transaction of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def append(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        with self.store.connections.lent() as connection:
            return connection.execute(self.store._append, values, prepare=True).fetchone() or ()


def at_once(store: Store, writers: int, count: int) -> float:
    """Appends a second by several threads, each to accounts of its own."""
    bank = Bank(store)
    works: list[Callable[[], None]] = [lambda: Bank(store).append(count // writers, 5)] * writers
    bank.append(20, 5)
    threads = [threading.Thread(target=work) for work in works]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return count / (time.perf_counter() - begin)


def compared(sides: dict[str, Side], count: int, rounds: int) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {name: {} for name in sides}
    for what in ("append", "change"):
        for name, side in sides.items():
            side.ask(do=what, count=count // 5, accounts=ACCOUNTS, snapshots=False)  # warm
            figures[name] |= {f"{what}_per_s": [], f"{what}_per_cpu_s": []}
        for _ in range(rounds):
            for name, side in sides.items():
                done = side.ask(do=what, count=count, accounts=ACCOUNTS, snapshots=False)
                figures[name][f"{what}_per_s"].append(round(count / done["seconds"]))
                figures[name][f"{what}_per_cpu_s"].append(round(count / done["cpu_s"]))
    for snapshots in (True, False):
        for name, side in sides.items():
            side.ask(do="long", count=LONG, snapshots=snapshots)
            side.ask(do="load", count=10, snapshots=snapshots)
            ms = sorted(side.ask(do="load", count=LOADS if snapshots else LOADS // 10, snapshots=snapshots)["ms"])
            word = "with" if snapshots else "without"
            figures[name][f"load_{word}_snapshots_ms"] = {
                "p50": round(statistics.median(ms), 2),
                "p99": round(ms[int(len(ms) * 0.99) - 1], 2),
            }
    return figures


def measured(
    settings: Settings, count: int, rounds: int, writers: list[int], stored: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    server = local.address(settings, "postgres")
    with psycopg.connect(server, autocommit=True) as connection:
        row = connection.execute("SELECT pg_postmaster_start_time(), inet_server_port()").fetchone()
        assert row is not None
        for name in ("ours", "theirs", "shared", "locked", "unlocked"):
            connection.execute(f"CREATE DATABASE {name}".encode())
    (pid,) = {each.pid for each in local.status(settings) if each.server == "postgres"}
    assert pid is not None
    urls = {name: server.rpartition("/")[0] + f"/{name}" for name in ("ours", "theirs")}
    process = psutil.Process(pid)
    if stored:
        with Store.open("ours", settings=settings) as store:
            begin = time.perf_counter()
            events_stored.fill(store, stored)
            print(f"filled in {time.perf_counter() - begin:.0f} s", flush=True)
    sides = {
        "millrace": Side([sys.executable, "-m", "bench.events", "--serve", urls["ours"]], process),
        "eventsourcing": Side([str(environment()), str(_FOLDER / "events_peer.py"), urls["theirs"]], process),
    }
    figures = compared(sides, count, rounds)
    for side in sides.values():
        side.end()
    print(json.dumps(figures), flush=True)
    if stored:
        with Store.open("ours", settings=settings) as store:
            figures["stored"] = events_stored.measured(store, stored)
            print(json.dumps(figures["stored"]), flush=True)
    order: dict[str, Any] = {}
    for name in ("shared", "locked", "unlocked"):
        with Store.open(name, settings=settings) as store:
            at_once(store, 1, 50)
            if name == "unlocked":
                without_lock(store)
            if name != "shared":
                store._joint = Alone(store)  # type: ignore[assignment]
            order[name] = {many: round(at_once(store, many, count)) for many in writers}
    return figures, order


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument(
        "--stored", type=int, default=0, help="events that Millrace's store holds before, e.g. 50000000"
    )
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    with tempfile.TemporaryDirectory() as folder:
        settings = config.load(Path(folder))
        with local.held(settings, ("postgres",)):
            figures, order = measured(settings, args.count, args.rounds, args.writers, args.stored)
    ours, theirs = figures["millrace"], figures["eventsourcing"]
    ratios = {}
    for name, value in ours.items():
        if isinstance(value, list):
            ratios[name] = round(statistics.median(value) / statistics.median(theirs[name]), 2)
            print(f"{name:<28} {value} against {theirs[name]}: {ratios[name]}")
        else:
            ratios[name] = round(theirs[name]["p99"] / value["p99"], 2)
            print(f"{name:<28} {value} against {theirs[name]}: {ratios[name]} (p99)")
    for name, value in order.items():
        print(f"appends/s, {name:<16} {value}")
    for name, value in figures.get("stored", {}).items():
        print(f"stored, {name:<36} {value}")
    told = {"figures": figures, "order_appends_per_s": order, "peer": f"eventsourcing {VERSION}"}
    print(json.dumps({"bench": "events", "ratios": ratios, **told}))


if __name__ == "__main__":
    main()
