"""Random changes, random kills: whatever dies when, the topics end as the database was, change by change.

    python -m tests.capture.torture --seeds 200        (make torture SEEDS=200)

Prints one line a seed; several suffer the same kills together. The servers are a project's own, in a folder that is
made for the purpose.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from millrace import config, local
from millrace.capture import Captures, capture
from millrace.capture.reading import decoded
from millrace.config import Settings
from millrace.errors import CaptureFailed, MillraceError, SlotLost
from millrace.local.declare import Memory
from millrace.log import Record
from tests.capture import history
from tests.capture.workload import TABLES, Writer, fill

SERVERS = ("connect", "kafka", "postgres")
CATCH_UP_S = 180.0


@dataclass
class Result:
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    records: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        kills = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items())) or "none"
        verdict = "ok" if not self.faults else f"{len(self.faults)} FAULTS, first: {self.faults[0]}"
        counts = f"{self.changes} changes, {self.records} records, kills: {kills}, {self.seconds:.0f} s"
        return f"seed {self.seed}: {counts}: {verdict}"


class Trial:
    """One seed: a database of its own with two writers, and its capture."""

    def __init__(self, settings: Settings, seed: int, rows: int, ddl: bool) -> None:
        self.settings, self.name, self.result = settings, f"t{seed}_{os.getpid()}", Result(seed)
        self.definition = capture(self.name, TABLES)
        Captures(settings).make_database(self.definition)
        self.url = local.address(settings, "postgres").rpartition("/")[0] + f"/{self.name}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            fill(connection, rows)
        self.writers = [Writer(self.url, seed * 10 + number, ddl and number == 0) for number in range(2)]
        for writer in self.writers:
            writer.start()

    def judged(self, captures: Captures) -> Result:
        _catch_up(captures, self.name, self.url)
        _judge(captures, self.name, self.url, self.result)
        captures.remove(self.name, topics=True)
        with psycopg.connect(local.address(self.settings, "postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")
        return self.result


def torture(
    settings: Settings,
    seeds: Sequence[int],
    *,
    kills: int = 4,
    rows: int = 3_000,
    ddl: bool = True,
    spare_snapshot: bool = False,
) -> list[Result]:
    """Databases that are captured while they are written to and while servers die, all of them together; with
    `spare_snapshot` not before the snapshots are done."""
    chance, began = random.Random(seeds[0]), time.monotonic()
    captures = Captures(settings)
    trials = [Trial(settings, seed, rows, ddl) for seed in seeds]
    try:
        for trial in trials:
            captures.add(trial.definition, wait=spare_snapshot)
        while spare_snapshot and not all(_streams(captures, trial.name) for trial in trials):
            time.sleep(0.5)
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 4.0))
            victim = chance.choice(SERVERS)
            _kill(settings, victim)
            time.sleep(chance.uniform(0.0, 1.0))
            local.up(settings, SERVERS)
            captures = Captures(settings)  # addresses may have changed
            for trial in trials:
                trial.result.kills[victim] += 1
                _tend(captures, trial.name)
        time.sleep(chance.uniform(0.5, 2.0))
    finally:
        for trial in trials:
            for writer in trial.writers:
                writer.stop()
    results = [trial.judged(captures) for trial in trials]
    for result in results:
        result.seconds = time.monotonic() - began
    return results


def _streams(captures: Captures, name: str) -> bool:
    offset = captures.connect.offsets(name) or {}
    return "lsn" in offset and "snapshot" not in offset


def _kill(settings: Settings, server: str) -> None:
    pid = Memory.read(settings.state_folder / "servers" / server).pid
    assert pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _tend(captures: Captures, name: str) -> None:
    """What `millrace run` does for the captures of its app: a task that failed is started again."""
    try:
        captures.tend(name)
    except (SlotLost, CaptureFailed):
        raise
    except MillraceError:  # something is away, and comes back
        pass


def _catch_up(captures: Captures, name: str, url: str) -> None:
    """Returns when the last change has reached its topic: a row of each table, written after everything else."""
    marks = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for table in TABLES:
            row = connection.execute(f"INSERT INTO {table} (id) VALUES (%s) RETURNING v", (-1,)).fetchone()
            assert row is not None
            marks[table] = row[0]
    watches = [Watch(captures, f"{name}.public.{table}", mark) for table, mark in marks.items()]
    deadline = time.monotonic() + CATCH_UP_S
    while time.monotonic() < deadline:
        _tend(captures, name)
        watches = [watch for watch in watches if not watch.reached()]
        if not watches:
            return
        with psycopg.connect(url, autocommit=True) as connection:
            for table in TABLES:
                connection.execute(f"UPDATE {table} SET v = nextval('version') WHERE id = -1")
        time.sleep(2)
    raise AssertionError(f"the capture did not catch up in {CATCH_UP_S:.0f} s: {captures.connect.state(name)}")


class Watch:
    """Reads what is new in a topic each time it is asked whether a row of this version has come."""

    def __init__(self, captures: Captures, topic: str, mark: int) -> None:
        self._captures, self._topic, self._mark = captures, topic, mark
        self._next: dict[int, int] = {}

    def reached(self) -> bool:
        found = False
        for number, (first, last) in self._captures.log.topics.offsets(self._topic).items():
            start = self._next.get(number, first)
            if start < last:
                records = history.of_topic(self._captures.log.read(self._topic, start, partition=number))
                # Read by a snapshot it would say nothing of the changes that are told after that.
                found |= any(c is not None and c[0] in "cu" and c[1] >= self._mark for c in records.get(-1, []))
                self._next[number] = last
        return found


def _judge(captures: Captures, name: str, url: str, result: Result) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        truth: dict[str, dict[int, list[history.Change]]] = defaultdict(lambda: defaultdict(list))
        for table, op, key, version in connection.execute("SELECT tbl, op, id, v FROM audit ORDER BY seq"):
            truth[table][key].append((op, version))
            result.changes += 1
        read = {table: list(captures.log.read(f"{name}.public.{table}")) for table in TABLES}
        cut = len(set.union(*map(history.snapshots, read.values()))) > 1
        for table, records in read.items():
            result.records += len(records)
            topic = history.of_topic(records)
            for changes in (truth[table], topic):  # the mark goes on while it is waited for
                changes.pop(-1, None)
            snapshot_v = max((row[1] for rows in topic.values() for row in rows if row and row[0] == "r"), default=0)
            result.faults += [f"{table} {fault}" for fault in history.faults(truth[table], topic, snapshot_v, cut)]
            result.faults += _differences(captures, name, table, connection, records)


def _differences(
    captures: Captures, name: str, table: str, connection: psycopg.Connection[tuple[object, ...]], records: list[Record]
) -> list[str]:
    """The table that the topic's last records make, against the source: every column, bit for bit."""
    # Shapes between two changes of the table, which only its topic knows, are learnt as a flow would learn them.
    rows = [json.loads(record.value).get("after") for record in records if record.value is not None]
    captures.refresh(name, {f"public.{table}": list(dict.fromkeys(tuple(row) for row in rows if row))})
    known = captures.get(name).tables[f"public.{table}"]
    last = {record.key: record.value for record in records}
    derived = {}
    for value in last.values():
        envelope = json.loads(value) if value is not None else None
        if envelope is not None and envelope["op"] != "d":
            row = decoded(known, json.dumps(envelope["after"]))
            derived[row["id"]] = row
    derived.pop(-1, None)
    columns = [column.name for column in known.columns]
    listed = ", ".join(f'"{column}"' for column in columns)
    source = {
        row[0]: dict(zip(columns, row, strict=True))
        for row in connection.execute(f"SELECT {listed} FROM {table} WHERE id <> -1")
    }
    for row in source.values():
        if row.get("doc") is not None:
            row["doc"] = json.dumps(row["doc"])
    found = [f"{table} {key} is not in the topic" for key in source.keys() - derived.keys()]
    found += [f"{table} {key} is in the topic and not in the database" for key in derived.keys() - source.keys()]
    found += [
        f"{table} {key} differs: {source[key]} is {derived[key]} in the topic"
        for key in source.keys() & derived.keys()
        if source[key] != derived[key]
    ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--kills", type=int, default=4, help="of servers, in each round")
    parser.add_argument("--together", type=int, default=5, help="seeds that suffer the same kills: a round")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="millrace-torture-"))
    settings = config.load(folder)
    failed, totals = 0, Counter[str]()
    seeds = range(args.first, args.first + args.seeds)
    with local.held(settings, SERVERS, say=print):
        for first in range(0, len(seeds), args.together):
            results = torture(settings, seeds[first : first + args.together], kills=args.kills)
            for result in results:
                print(result.line(), flush=True)
                failed += bool(result.faults)
                totals["changes"] += result.changes
            totals += results[0].kills  # all of a round suffer the same
    print(json.dumps({"torture": "capture", "seeds": args.seeds, "failed": failed, **totals}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
