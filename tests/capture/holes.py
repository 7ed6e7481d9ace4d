"""Kills the Connect worker again and again under a workload, and counts what became of every committed row.

Debezium's own connector and Millrace's read the same tables in the same worker, so each kill hits both:

    python -m tests.capture.holes --kills 200

With `--restarts` the tasks are restarted through Connect instead, which is quicker and gentler. `--quiet` are restarts
while nothing happens but one open transaction. `--each 3` runs three connectors of either class, which makes three
samples of a kill. Counts are of all rows so far; their last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from millrace import config, local
from millrace.capture.connect import Connect
from millrace.config import Settings
from tests.command import until

STOCK = "io.debezium.connector.postgresql.PostgresConnector"
OURS = "millrace.capture.PostgresCapture"
TABLES = ("singles", "copies", "batches", "longs")
EARLY = "early"  # filled before its capture begins
COPY_ROWS = (100, 400)
LIMIT_S = 180.0
QUIET_S = 15.0


@dataclass
class Outcome:
    """What a connector made of the committed rows; each number by table."""

    committed: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    twice: Counter[str] = field(default_factory=Counter)
    phantom: Counter[str] = field(default_factory=Counter)  # never committed

    @property
    def exact(self) -> bool:
        return not (self.lost or self.twice or self.phantom)


class Workload:
    """Rows by single inserts, by COPY (rows of one WAL record share one LSN), by batches with savepoints and rollbacks,
    and by transactions that stay open across restarts while others commit."""

    def __init__(self, url: str, numbers: Iterator[int], seed: int, pace: float = 1.0) -> None:
        self._url, self._numbers, self._seed, self._pace = url, numbers, seed, pace
        self._over = threading.Event()
        works = [self._single, self._copy, self._batch, self._long, self._long]
        self._threads = [threading.Thread(target=self._run, args=(n, work)) for n, work in enumerate(works)]
        self.failure: BaseException | None = None

    def __enter__(self) -> Workload:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int, work: Callable[[psycopg.Connection, random.Random], None]) -> None:
        chance = random.Random(self._seed * 100 + number)
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                while not self._over.is_set():
                    work(connection, chance)
        except BaseException as error:
            self.failure = error

    def _pause(self, seconds: float) -> None:
        self._over.wait(seconds / self._pace)

    def _single(self, connection: psycopg.Connection, chance: random.Random) -> None:
        connection.execute("INSERT INTO singles VALUES (%s)", (next(self._numbers),))
        self._pause(chance.uniform(0.01, 0.1))

    def _copy(self, connection: psycopg.Connection, chance: random.Random) -> None:
        with connection.cursor() as cursor, cursor.copy("COPY copies (id) FROM STDIN") as copy:
            for _ in range(chance.randint(*COPY_ROWS)):
                copy.write_row((next(self._numbers),))
        self._pause(chance.uniform(1, 3))

    def _batch(self, connection: psycopg.Connection, chance: random.Random) -> None:
        with connection.transaction(force_rollback=chance.random() < 0.2):
            for _ in range(chance.randint(1, 3)):
                with connection.transaction(force_rollback=chance.random() < 0.2):
                    rows = [next(self._numbers) for _ in range(chance.randint(1, 60))]
                    connection.execute("INSERT INTO batches SELECT unnest(%s::bigint[])", (rows,))
        self._pause(chance.uniform(0.5, 2))

    def _long(self, connection: psycopg.Connection, chance: random.Random) -> None:
        with connection.transaction(force_rollback=chance.random() < 0.1):
            for _ in range(chance.randint(5, 100)):
                connection.execute("INSERT INTO longs VALUES (%s)", (next(self._numbers),))
                self._pause(chance.uniform(0.01, 0.2))
                if self._over.is_set():
                    break


class Trial:
    """Tables in a database of their own, and connectors (name to class) that capture them."""

    def __init__(
        self, settings: Settings, server: str, connectors: Mapping[str, str], early: int = 0, **options: str
    ) -> None:
        self.settings, self.connectors = settings, connectors
        self.numbers = itertools.count(1)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE DATABASE holes")
        self.url = urllib.parse.urlunsplit(urllib.parse.urlsplit(server)._replace(path="/holes"))
        with psycopg.connect(self.url, autocommit=True) as connection:
            for table in (EARLY, *TABLES):
                connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")  # type: ignore[arg-type]
            connection.execute("CREATE PUBLICATION holes FOR ALL TABLES")
            connection.execute("INSERT INTO early SELECT generate_series(1, %s)", (early,))
        self._admin = AdminClient({"bootstrap.servers": local.address(settings, "kafka"), "log_level": 0})
        topics = [NewTopic(f"{name}.public.{table}", 1, 1) for name in connectors for table in (EARLY, *TABLES)]
        for made in self._admin.create_topics(topics).values():
            made.result()
        connect = Connect(settings)
        for name, kind in connectors.items():
            connect.put(name, {**self._config(name, kind), **options})
        until(lambda: all(connect.state(name)[0] == "RUNNING" for name in connectors), "connectors run", LIMIT_S)

    def _config(self, name: str, kind: str) -> dict[str, str]:
        address = urllib.parse.urlsplit(self.url)
        return {
            "connector.class": kind,
            "tasks.max": "1",
            "exactly.once.support": "required",
            "topic.prefix": name,
            "database.hostname": str(address.hostname),
            "database.port": str(address.port),
            "database.user": str(address.username),
            "database.password": "unused",
            "database.dbname": address.path.strip("/"),
            "plugin.name": "pgoutput",
            "slot.name": name,
            "millrace.slot.own": "true",
            "slot.retry.delay.ms": "500",
            "slot.max.retries": "60",
            "publication.name": "holes",
            "publication.autocreate.mode": "disabled",
            "table.include.list": ",".join(f"public.{table}" for table in (EARLY, *TABLES)),
            "poll.interval.ms": "10",
            # Small, so that many a batch ends inside a transaction, and between rows that share an LSN.
            "max.batch.size": "32",
            # Often, so that many an offset is that of a heartbeat after a commit.
            "heartbeat.interval.ms": "200",
            # A killed task leaves its transaction open, and no worker starts before that has ended.
            "producer.override.transaction.timeout.ms": "10000",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        }

    def kill(self) -> None:
        (worker,) = (status.pid for status in local.status(self.settings) if status.server == "connect")
        assert worker is not None, "the worker runs"
        killed = psutil.Process(worker)
        killed.kill()
        killed.wait(LIMIT_S)
        local.up(self.settings, ("connect",))

    def restart(self) -> None:
        connect = Connect(self.settings)
        for name in self.connectors:
            connect.restart(name)

    def delivered(self, name: str, tables: Sequence[str] = TABLES) -> int:
        """Records in the topics of a connector, markers of transactions included."""
        topics = [TopicPartition(f"{name}.public.{table}", 0) for table in tables]
        latest = {topic: OffsetSpec.latest() for topic in topics}
        answers = self._admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        return sum(answer.result().offset for answer in answers.values())

    def flowing(self, since: Mapping[str, int]) -> None:
        """Waits until every connector has delivered something more."""
        until(lambda: all(self.delivered(name) > since[name] for name in self.connectors), "rows flow", LIMIT_S)

    def outcome(self, name: str) -> Outcome:
        """Compares the topics with the tables. A last row in each table tells when all of it has come."""
        outcome = Outcome()
        with psycopg.connect(self.url, autocommit=True) as connection:
            last = {table: -int.from_bytes(os.urandom(6), "big") for table in TABLES}
            for table, number in last.items():
                connection.execute(f"INSERT INTO {table} VALUES (%s)", (number,))  # type: ignore[arg-type]
            for table in TABLES:
                rows = connection.execute(f"SELECT id FROM {table}").fetchall()  # type: ignore[arg-type]
                committed = {row[0] for row in rows}
                seen = self._seen(f"{name}.public.{table}", last[table])
                outcome.committed[table] = len(committed)
                for kind, numbers in (
                    (outcome.lost, committed - seen.keys()),
                    (outcome.twice, {number for number, times in seen.items() if times > 1}),
                    (outcome.phantom, seen.keys() - committed),
                ):
                    if numbers:
                        kind[table] = len(numbers)
        return outcome

    def standing(self, name: str, table: str) -> set[int]:
        """The keys that a reader of the topic is left with."""
        last = -int.from_bytes(os.urandom(6), "big")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"INSERT INTO {table} VALUES (%s)", (last,))  # type: ignore[arg-type]
        standing: dict[int, bool] = {}
        for key, there in self._read(f"{name}.public.{table}", last):
            standing[key] = there
        return {key for key, there in standing.items() if there}

    def _seen(self, topic: str, last: int) -> Counter[int]:
        return Counter(key for key, there in self._read(topic, last) if there)

    def _read(self, topic: str, last: int) -> Iterator[tuple[int, bool]]:
        """Keys, and whether the row was there then, up to the last one."""
        consumer = self._consumer(f"holes-{topic}")
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        deadline, complete, read = time.monotonic() + LIMIT_S, False, False
        while not complete:
            # Read by a snapshot, the last row says nothing of changes before it, unless none follow any more.
            if read and time.monotonic() > deadline - LIMIT_S + QUIET_S:
                break
            if time.monotonic() > deadline:
                states = {name: Connect(self.settings).state(name) for name in self.connectors}
                raise AssertionError(f"the last row does not come to {topic}: {states}")
            for message in consumer.consume(1000, timeout=1):
                if message.error() is None and message.value() is not None:
                    key, envelope = json.loads(message.key())["id"], json.loads(message.value())
                    yield key, envelope["after"] is not None
                    complete |= key == last and envelope["op"] != "r"
                    read |= key == last
                    deadline = time.monotonic() + LIMIT_S
        consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": local.address(self.settings, "kafka"),
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )


def run(trial: Trial, times: int, disturb: Callable[[], None], seed: int, pace: float = 1.0) -> dict[str, Outcome]:
    chance = random.Random(seed)
    began = time.monotonic()
    with Workload(trial.url, trial.numbers, seed, pace) as workload:
        for number in range(1, times + 1):
            before = {name: trial.delivered(name) for name in trial.connectors}
            trial.flowing(before)
            time.sleep(chance.uniform(0, 2) / pace)
            disturb()
            print(f"\r{number} of {times}, {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
            assert workload.failure is None, workload.failure
    print(file=sys.stderr)
    return {name: trial.outcome(name) for name in trial.connectors}


def quiet(trial: Trial, times: int, disturb: Callable[[], None]) -> dict[str, Outcome]:
    """A transaction is open over each restart, one of its changes follows right upon the last commit, and nothing else
    happens: the stored position, that of a heartbeat after the commit, is also the position of the change."""
    with psycopg.connect(trial.url) as open_one, psycopg.connect(trial.url, autocommit=True) as other:
        for number in range(1, times + 1):
            print(f"\r{number} of {times}", end="", file=sys.stderr, flush=True)
            before = {name: trial.delivered(name) for name in trial.connectors}
            _add(open_one, "longs", trial)
            _add(other, "singles", trial)
            _add(open_one, "longs", trial)
            trial.flowing(before)
            time.sleep(1)  # heartbeats
            disturb()
            _add(open_one, "longs", trial)
            open_one.commit()
    return {name: trial.outcome(name) for name in trial.connectors}


def _add(connection: psycopg.Connection, table: str, trial: Trial) -> None:
    for _ in range(3):
        connection.execute(f"INSERT INTO {table} VALUES (%s)", (next(trial.numbers),))  # type: ignore[arg-type]


@contextlib.contextmanager
def servers() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory(prefix="millrace-holes-") as folder:
        settings = config.load(Path(folder))
        with local.held(settings, ("kafka", "connect", "postgres")):
            yield settings
            local.down(settings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="kill -9 of the worker")
    parser.add_argument("--restarts", type=int, default=0, help="restarts of the tasks, through Connect")
    parser.add_argument("--quiet", type=int, default=0, help="restarts beside one open transaction")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("stock", "ours"), help="one of the classes")
    parser.add_argument("--each", type=int, default=1, help="connectors of a class")
    wanted = parser.parse_args()
    classes = {name: kind for name, kind in (("stock", STOCK), ("ours", OURS)) if wanted.only in (None, name)}
    connectors = {f"{name}{n}": kind for name, kind in classes.items() for n in range(1, wanted.each + 1)}
    exact = True
    with servers() as settings:
        trial = Trial(settings, local.address(settings, "postgres"), connectors)
        for kind, times, disturbed in (
            ("quiet", wanted.quiet, lambda times: quiet(trial, times, trial.restart)),
            ("restarts", wanted.restarts, lambda times: run(trial, times, trial.restart, wanted.seed)),
            ("kills", wanted.kills, lambda times: run(trial, times, trial.kill, wanted.seed)),
        ):
            if times:
                outcomes = disturbed(times)
                show(kind, times, outcomes)
                exact &= all(outcome.exact for name, outcome in outcomes.items() if connectors[name] == OURS)
    return 0 if exact else 1


def show(kind: str, times: int, outcomes: Mapping[str, Outcome]) -> None:
    for name, outcome in outcomes.items():
        for table in TABLES:
            numbers = (outcome.committed[table], outcome.lost[table], outcome.twice[table], outcome.phantom[table])
            print("{:6} {:8} committed {:7}  lost {:5}  twice {:5}  phantom {:3}".format(name, table, *numbers))
    figures = {name: {kind: dict(value) for kind, value in vars(outcome).items()} for name, outcome in outcomes.items()}
    print(json.dumps({kind: times, "outcomes": figures}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
