"""How fresh a lake table is: from a change in PostgreSQL, through capture and topic, to the version that has it.

    python -m bench.lake --freshness [--rate 1000] [--seconds 60] [--formats delta,iceberg] [--every "2 seconds"]

Each change says when it was made and carries the next number; half are new rows, half change one of the last 10,000.
The first version that has a number is when it became visible. A number that no version has was overwritten before it
could be seen: nothing else may be missing. One machine, one clock. What the table holds in the end is compared with
PostgreSQL.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psycopg

from bench.capture import project
from millrace.config import Settings
from millrace.lakehouse import Catalog, LakeTable
from millrace.lakehouse.asking import connected, words
from millrace.local import address

LIMIT_S = 900.0
LOOK_S = 0.5
RECENT = 10_000
PER_TRANSACTION = 20
WARM_S = 20.0
APP = """\
import millrace as mr

app = mr.App("{name}")
db = app.capture("{name}", tables=["changes"])
db.changes.to(mr.lake("{name}", format="{kind}", every={every!r}))
"""
_INSERT = "INSERT INTO changes SELECT n, n, clock_timestamp() FROM generate_series(%s::bigint, %s::bigint) n"
_UPDATE = (
    "UPDATE changes SET n = new.n, made = clock_timestamp() "
    "FROM unnest(%s::bigint[], %s::bigint[]) new(id, n) WHERE changes.id = new.id"
)


class Freshness:
    """One format: a database of its own, and a run that keeps a lake table of it."""

    def __init__(self, settings: Settings, kind: str, every: str | None, name: str) -> None:
        self.settings, self.kind, self.every, self.name, self.number = settings, kind, every, name, 0
        self.ids: list[int] = []
        # By key the number that it has, and the numbers that others took the place of.
        self.newest: dict[int, int] = {}
        self.overwritten: set[int] = set()
        server = address(settings, "postgres")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.name}")
        self.url = server.rpartition("/")[0] + f"/{self.name}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE changes (id bigint PRIMARY KEY, n bigint, made timestamptz)")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        (self.settings.folder / f"{self.name}.py").write_text(
            APP.format(name=self.name, kind=self.kind, every=self.every)
        )
        command = [sys.executable, "-m", "millrace", "run", f"{self.name}:app"]
        with (self.settings.folder / f"{self.name}.out").open("wb") as out:
            process = subprocess.Popen(command, cwd=self.settings.folder, stdout=out, stderr=out)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def change(self, rate: int, seconds: float) -> None:
        draw, started = random.Random(rate), time.monotonic()
        with psycopg.connect(self.url) as connection:
            for place in range(int(rate * seconds) // PER_TRANSACTION):
                time.sleep(max(0.0, started + place * PER_TRANSACTION / rate - time.monotonic()))
                half = PER_TRANSACTION // 2
                recent = self.ids[-RECENT:]
                changed = draw.sample(recent, min(half, len(recent)))
                numbers = range(self.number, self.number + len(changed))
                connection.execute(_UPDATE, (changed, list(numbers)))
                first, last = self.number + len(changed), self.number + PER_TRANSACTION - 1
                connection.execute(_INSERT, (first, last))
                connection.commit()
                self.ids += range(first, last + 1)
                self.overwritten |= {self.newest[key] for key in changed}
                self.newest |= dict(zip(changed, numbers, strict=True)) | {n: n for n in range(first, last + 1)}
                self.number = last + 1

    def wait(self) -> None:
        """Until the table has the last change."""
        deadline, catalog = time.monotonic() + LIMIT_S, Catalog(self.settings)
        while True:
            if self.name in catalog.names():
                with catalog.opened(self.name) as table:
                    (found,) = _asked(table, "SELECT max(n) FROM {}")[0]
                if found == self.number - 1:
                    return
            assert time.monotonic() < deadline, (self.settings.folder / f"{self.name}.out").read_text()
            time.sleep(LOOK_S)

    def measured(self, after: int) -> dict[str, float]:
        """Seconds of the changes after that number."""
        waits: dict[int, float] = {}
        with Catalog(self.settings).opened(self.name) as table:
            for version in table.versions():
                held = _asked(table, f"SELECT n, epoch(made) FROM {{}} WHERE n > {after}", version)
                waits |= {n: version.at.timestamp() - at for n, at in held if n not in waits}
            (count, total), files = _asked(table, "SELECT count(*), sum(n) FROM {}")[0], table.files()
        with psycopg.connect(self.url) as connection:
            wanted = connection.execute("SELECT count(*), sum(n) FROM changes").fetchone()
        assert (count, int(total)) == (wanted and (wanted[0], int(wanted[1])))
        unseen = set(range(after + 1, self.number)) - waits.keys()
        assert unseen <= self.overwritten, f"{len(unseen - self.overwritten)} changes are in no version"
        spent = sorted(waits.values())
        told = {f"p{q}_s": round(spent[int(len(spent) * q / 100)], 2) for q in (50, 99)}
        return {
            **told,
            "most_s": round(spent[-1], 2),
            "seen": len(waits),
            "overwritten": len(unseen),
            "files": len(files),
        }


def _asked(table: LakeTable, query: str, version: Any = None) -> list[tuple[Any, ...]]:
    scan = words(table, version)
    with connected(scan) as connection:
        found: list[tuple[Any, ...]] = connection.sql(query.format(scan)).fetchall()
    return found


def freshness(formats: list[str], rate: int, seconds: float, every: list[str | None]) -> dict[str, Any]:
    """By format, and by the least time between two versions where one is said."""
    figures: dict[str, Any] = {}
    with project() as settings:
        for kind, pause in itertools.product(formats, every):
            name = kind if pause is None else f"{kind}_{pause.replace(' ', '_')}"
            bench = Freshness(settings, kind, pause, f"fresh_{name}")
            with bench.running():
                bench.change(rate, WARM_S)
                bench.wait()
                before = bench.number - 1
                bench.change(rate, seconds)
                bench.wait()
            figures[name] = bench.measured(before)
            print(f"freshness {name:18} at {rate:,} changes/s: {figures[name]}", flush=True)
    return figures
