"""Runs the app of `tests.soak.app` under an even load and says what grew.

    python -m tests.soak --minutes 120 [--rate 100] [--changes 20] [--plot docs/soak.svg] [--figures soak.json]

The servers are a project's own, in a folder that is made for the purpose; `millrace run` is a process, as for a user.
Every ten seconds: memory of each process, files and bytes of the checkpoints, descriptors and threads of Spark's
process, the log that PostgreSQL keeps for the capture's slot, and how long events took from being sent to being seen by
a reader of committed records. The exit code is 1 if something grew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg

from millrace import config, local
from millrace.capture import Captures
from millrace.config import Settings
from millrace.log import Log
from tests.command import environ, until
from tests.soak.app import db
from tests.soak.judge import Series, svg

SAMPLE_S = 10.0
TICK_S = 0.1
ROWS = 1_000
KEYS = 50
END_S = 120
ROOT = Path(__file__).parents[2]
KB, MB = 1_000, 1_000_000
SHORT_MINUTES = 30  # until then a checkpoint may still grow to its hundred epochs, and Java's heap to its size
# Name of a figure: unit, and what it may vary by.
FIGURES = {
    "memory of Python": ("MB", 15.0),
    "memory of Spark": ("MB", 60.0),
    "memory of Kafka": ("MB", 60.0),
    "memory of Connect": ("MB", 60.0),
    "memory of PostgreSQL": ("MB", 30.0),
    "checkpoint files": ("files", 150.0),
    "checkpoint size": ("MB", 3.0),
    "descriptors of Spark": ("files", 40.0),
    "threads of Spark": ("threads", 15.0),
    "log kept for the slot": ("kB", 20_000.0),
    "latency, median": ("ms", 150.0),
    "latency, 99th of 100": ("ms", 500.0),
}
SERVERS = {"kafka": "memory of Kafka", "connect": "memory of Connect", "postgres": "memory of PostgreSQL"}


class Load(threading.Thread):
    """Events and changes at an even rate, until told to end."""

    def __init__(self, log: Log, url: str, rate: int, changes: int) -> None:
        super().__init__(daemon=True)
        self.log, self.url, self.rate, self.changes = log, url, rate, changes
        self.ended = threading.Event()

    def run(self) -> None:
        draw, began, sent, changed = random.Random(1), time.monotonic(), 0, 0
        with psycopg.connect(self.url, autocommit=True) as connection, self.log.writer("clicks") as writer:
            while not self.ended.wait(TICK_S):
                passed = time.monotonic() - began
                while sent < self.rate * passed:
                    now = time.time()
                    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
                    key = f"k{draw.randrange(KEYS)}"
                    writer.write({"id": sent, "key": key, "sent": now, "at": at}, key=key)
                    sent += 1
                while changed < self.changes * passed:
                    amount, order = draw.randrange(10_000), draw.randrange(ROWS)
                    connection.execute("UPDATE orders SET amount = %s, at = now() WHERE id = %s", (amount, order))
                    changed += 1


class Latency(threading.Thread):
    """Follows the answers, as a reader of committed records."""

    def __init__(self, log: Log) -> None:
        super().__init__(daemon=True)
        self.log, self.ended, self.taken = log, threading.Event(), list[float]()

    def run(self) -> None:
        for record in self.log.read("answered", "latest", follow=True, stop=self.ended):
            self.taken.append((time.time() - record.json()["sent"]) * 1e3)

    def since(self) -> list[float]:
        taken, self.taken = self.taken, []
        return sorted(taken)


def sampled(settings: Settings, run: psutil.Popen, latency: Latency) -> Iterator[tuple[str, float]]:
    yield "memory of Python", run.memory_info().rss / MB
    (jvm,) = (each for each in run.children(recursive=True) if each.name() == "java")
    yield "memory of Spark", jvm.memory_info().rss / MB
    yield "descriptors of Spark", jvm.num_fds()
    yield "threads of Spark", jvm.num_threads()
    for server in local.status(settings):
        if server.server in SERVERS and server.memory_mb is not None:
            yield SERVERS[server.server], server.memory_mb
    sizes = list(_sizes(settings.checkpoints))
    yield "checkpoint files", len(sizes)
    yield "checkpoint size", sum(sizes) / MB
    with psycopg.connect(_shop(settings)) as connection:
        asked = "SELECT max(pg_current_wal_lsn() - restart_lsn) FROM pg_replication_slots"
        ((kept,),) = connection.execute(asked).fetchall()
    if kept is not None:
        yield "log kept for the slot", float(kept) / KB
    if taken := latency.since():
        yield "latency, median", taken[len(taken) // 2]
        yield "latency, 99th of 100", taken[min(len(taken) * 99 // 100, len(taken) - 1)]


def _sizes(folder: Path) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue  # renamed or purged between the two looks


def _shop(settings: Settings) -> str:
    return local.address(settings, "postgres").rpartition("/")[0] + "/shop"


@contextmanager
def running(settings: Settings) -> Iterator[psutil.Popen]:
    """`millrace run`, ended as a user would."""
    with (settings.folder / "run.log").open("wb") as output:
        argv = [sys.executable, "-m", "millrace", "run", "tests.soak.app:app"]
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = environ({"PYTHONPATH": paths})
        run = psutil.Popen(argv, cwd=settings.folder, env=env, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield run
    finally:
        run.terminate()
        try:
            run.wait(END_S)
        except psutil.TimeoutExpired:
            run.kill()


def soaked(folder: Path, minutes: float, rate: int, changes: int) -> list[Series]:
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in FIGURES}
    settings = config.load(folder)
    with ExitStack() as stack:
        stack.enter_context(local.held(settings, ("kafka", "connect", "postgres")))
        stack.callback(local.down, settings)
        log = Log(settings)
        Captures(settings).make_database(db.capture)
        with psycopg.connect(_shop(settings), autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY, amount int, at timestamptz)")
            connection.execute("INSERT INTO orders SELECT id, 0, now() FROM generate_series(0, %s) id", (ROWS - 1,))
        for topic in ("clicks", "answered"):
            log.topics.create(topic, partitions=2)
        run = stack.enter_context(running(settings))
        load, latency = Load(log, _shop(settings), rate, changes), Latency(log)
        for thread in (load, latency):
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(thread.ended.set)
        until(lambda: bool(latency.taken) or run.poll() is not None, "the first answer")
        began = time.monotonic()
        while (passed := time.monotonic() - began) < minutes * 60:
            if run.poll() is not None:
                raise SystemExit(f"the run ended:\n{(folder / 'run.log').read_text()[-2_000:]}")
            for name, value in sampled(settings, run, latency):
                points[name].append((round(passed / 60, 2), round(value, 1)))
            time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - began - passed)))
    return [Series(name, *FIGURES[name], found) for name, found in points.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=int, default=100, help="events a second")
    parser.add_argument("--changes", type=int, default=20, help="changes of the database a second")
    parser.add_argument("--plot", type=Path, help="write a picture there")
    parser.add_argument("--figures", type=Path, help="write all figures there, as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-soak-", ignore_cleanup_errors=True) as name:
        found = soaked(Path(name), given.minutes, given.rate, given.changes)
    for series in found:
        print(series.line())
    if given.figures:
        given.figures.write_text(json.dumps([asdict(series) for series in found]))
    if given.plot:
        title = f"{given.minutes:g} minutes at {given.rate} events/s and {given.changes} changes/s"
        given.plot.write_text(svg(found, title))
    if given.minutes < SHORT_MINUTES:
        print(f"less than {SHORT_MINUTES} minutes are too few to tell what grows from what has not settled yet")
    grown = [series.name for series in found if not series.flat]
    print("flat" if not grown else f"not flat: {', '.join(grown)}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
