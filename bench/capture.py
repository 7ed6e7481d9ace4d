"""Captures against the bare limit (`pg_recvlogical` to /dev/null) and against Debezium with its default settings.

    python -m bench.capture [--rows N] [--rounds N]

Snapshot and streaming are told by the records' own times in the topic, from the first to the last, so that the start
of a task counts for nobody. Streaming reads a backlog that was written while the connector was stopped; the drain
reads the same changes through a slot of its own. Sides alternate; a warm-up round is thrown away. Latency is from the
return of a COMMIT to a `read_committed` reader, one process, one clock.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from millrace import config, local
from millrace.capture import Captures, capture
from millrace.capture.connect import Connect
from millrace.config import Settings
from millrace.log import Log

SERVERS = ("kafka", "connect", "postgres")
LIMIT_S = 600.0
RATES = (50, 1_000)
LATENCY_S = 20.0
WRITERS = 4
TABLE = "CREATE TABLE {} (id bigint PRIMARY KEY, name text, amount numeric(12, 2), at timestamptz DEFAULT now())"
ROWS = (
    "INSERT INTO {} (id, name, amount) "
    "SELECT n, 'customer number ' || n, n / 100.0 FROM generate_series(%s::bigint, %s) n"
)


class Bench:
    def __init__(self, settings: Settings, rows: int) -> None:
        self.settings, self.rows = settings, rows
        self.log, self.captures, self.connect = Log(settings), Captures(settings), Connect(settings)
        self.url = local.address(settings, "postgres")

    def database(self, name: str) -> str:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url.rpartition("/")[0] + f"/{name}"

    def ours(self, name: str) -> str:
        """Starts a capture; gives its topic."""
        self.captures.add(capture(name, ["t"], partitions=1))
        return f"{name}.public.t"

    def default(self, name: str) -> str:
        """Debezium as its own pages start it: only what it cannot do without."""
        host, _, port = self.url.rpartition("@")[2].partition("/")[0].partition(":")
        self.connect.put(
            name,
            {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.hostname": host,
                "database.port": port,
                "database.user": "millrace",
                "database.dbname": name,
                "topic.prefix": name,
                "plugin.name": "pgoutput",
                "slot.name": f"dbz_{name}",
                "table.include.list": "public.t",
                "key.converter": "org.apache.kafka.connect.json.JsonConverter",
                "key.converter.schemas.enable": "true",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "true",
                "topic.creation.default.partitions": "1",
                "topic.creation.default.replication.factor": "1",
            },
        )
        return f"{name}.public.t"

    def snapshot(self, side: str, number: int) -> float:
        """Rows a second."""
        name = f"snap_{side}_{number}"
        with psycopg.connect(self.database(name), autocommit=True) as connection:
            connection.execute(TABLE.format("t"))
            connection.execute(ROWS.format("t"), (1, self.rows))
            connection.execute("CHECKPOINT")
        topic = self.ours(name) if side == "millrace" else self.default(name)
        took_s = self.span(topic, 0, self.rows)
        self.end(side, name)
        return self.rows / took_s

    def stream(self, number: int, per_transaction: int) -> dict[str, float]:
        """Events a second of the same changes, three ways."""
        rows = self.rows // (1 if per_transaction > 1 else 4)
        rates = {}
        order = ("millrace", "debezium") if number % 2 else ("debezium", "millrace")
        for side in order:
            name = f"s{number}_{per_transaction}_{side}"
            url = self.database(name)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(TABLE.format("t"))
                connection.execute(ROWS.format("t"), (0, 0))
                topic = self.ours(name) if side == "millrace" else self.default(name)
                self.span(topic, 0, 1)
                self.connect.stop(name)
                self.until(lambda name=name: self.connect.state(name)[0] == "STOPPED")  # type: ignore[misc]
                connection.execute("SELECT pg_create_logical_replication_slot('drain', 'pgoutput')")
                if side == "debezium":
                    connection.execute("CREATE PUBLICATION drain FOR TABLE t")
                self.write(connection, rows, per_transaction)
                publication = f"millrace_{name}" if side == "millrace" else "drain"
                drain_s = self.drain(url, connection, publication)
                rates.setdefault("drain", 0.0)
                rates["drain"] = max(rates["drain"], rows / drain_s)
                self.connect.resume(name)
                rates[side] = rows / self.span(topic, 1, rows)
                connection.execute("SELECT pg_drop_replication_slot('drain')")
            self.end(side, name)
        return rates

    def write(self, connection: psycopg.Connection[Any], rows: int, per_transaction: int) -> None:
        """A thousand transactions a trip; nobody waits for the disk."""
        connection.execute("SET synchronous_commit = off")
        connection.execute(
            "CREATE OR REPLACE PROCEDURE churn(total bigint, step bigint) LANGUAGE plpgsql AS $$ BEGIN "
            "FOR low IN 1..total BY step LOOP INSERT INTO t (id, name, amount) "
            "SELECT n, 'customer number ' || n, n / 100.0 FROM generate_series(low, low + step - 1) n; COMMIT; "
            "END LOOP; END $$"
        )
        connection.execute("CALL churn(%s, %s)", (rows, per_transaction))

    def drain(self, url: str, connection: psycopg.Connection[Any], publication: str) -> float:
        """`pg_recvlogical` from the slot's beginning to the last change."""
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        connection.execute("INSERT INTO t (id) VALUES (-1)")  # something beyond the end, so that it is reached
        command = [
            *["pg_recvlogical", "--dbname", url, "--slot", "drain", "--start", "--no-loop", "--file", "/dev/null"],
            *["--endpos", row[0], "-o", "proto_version=1", "-o", f"publication_names={publication}"],
        ]
        started = time.monotonic()
        subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
        took_s = time.monotonic() - started
        connection.execute("DELETE FROM t WHERE id = -1")
        return took_s

    def span(self, topic: str, skip: int, count: int) -> float:
        """Seconds between the first and the last of `count` records of a topic, as soon as they are there."""
        self.until(lambda: self.log.topics.exists(topic))
        times, seen = [], 0
        reader = self.log.read(topic, follow=True, lasting_s=LIMIT_S)
        with contextlib.closing(reader):
            for record in reader:
                seen += 1
                if seen > skip and record.time is not None:
                    times.append(record.time.timestamp())
                if seen == skip + count:
                    break
        assert len(times) == count, f"{topic} holds {len(times)} of {count} records after {LIMIT_S:.0f} s"
        return max(0.001, max(times) - min(times))

    def latency(self, rate: int) -> dict[str, float]:
        """Milliseconds from commit to reader, at so many changes a second."""
        name = f"lat_{rate}"
        url = self.database(name)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE.format("t"))
            connection.execute("INSERT INTO t (id) VALUES (0)")
            topic = self.ours(name)
            self.span(topic, 0, 1)
            arrived: dict[int, float] = {}
            ended = threading.Event()
            reader = threading.Thread(target=self._arrivals, args=(topic, arrived, ended), daemon=True)
            reader.start()
            committed = self._paced(url, rate)
            self.until(lambda: len(arrived) >= len(committed))
            ended.set()
            reader.join()
        self.end("millrace", name)
        waits = sorted((arrived[key] - at) * 1000 for key, at in committed.items())
        return {f"p{q}": round(waits[int(len(waits) * q / 100)], 1) for q in (50, 95, 99)} | {"events": len(waits)}

    def _paced(self, url: str, rate: int) -> dict[int, float]:
        """Commits that wait for the disk: the log is sent on only from there. Several writers share its flushes."""
        committed: dict[int, float] = {}
        started = time.monotonic()

        def write(writer: int) -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                for key in range(1 + writer, int(rate * LATENCY_S), WRITERS):
                    time.sleep(max(0.0, started + key / rate - time.monotonic()))
                    connection.execute("INSERT INTO t (id, name, amount) VALUES (%s, 'latency', 1.5)", (key,))
                    committed[key] = time.monotonic()

        writers = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        return committed

    def _arrivals(self, topic: str, arrived: dict[int, float], ended: threading.Event) -> None:
        for record in self.log.read(topic, "latest", follow=True, stop=ended):
            arrived[json.loads(record.key or b"{}")["id"]] = time.monotonic()

    def end(self, side: str, name: str) -> None:
        if side == "millrace":
            self.captures.remove(name, topics=True)
        else:
            self.connect.delete(name)
            with psycopg.connect(self.url.rpartition("/")[0] + f"/{name}", autocommit=True) as connection:
                reading = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
                self.until(lambda: not connection.execute(reading, (f"dbz_{name}",)).fetchone())
                connection.execute("SELECT pg_drop_replication_slot(%s)", (f"dbz_{name}",))
            self.log.topics.delete(f"{name}.public.t")
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def until(self, holds: Any) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3, help="of snapshots and streams; with 0 latency alone")
    args = parser.parse_args()
    if shutil.which("pg_recvlogical") is None:
        sys.exit("pg_recvlogical is not here; Debian has it in postgresql-client")
    with project() as settings:
        bench = Bench(settings, args.rows)
        snapshots: dict[str, list[float]] = {"millrace": [], "debezium": []}
        streams: dict[int, dict[str, list[float]]] = {
            size: {"millrace": [], "debezium": [], "drain": []} for size in (1, 100)
        }
        for number in range(args.rounds + 1 if args.rounds else 0):  # the first is the warm-up
            for side in snapshots if number % 2 else reversed(snapshots):
                snapshots[side].append(bench.snapshot(side, number))
            for size, sides in streams.items():
                for side, rate in bench.stream(number, size).items():
                    sides[side].append(rate)
        latency = {rate: bench.latency(rate) for rate in RATES}
    report(snapshots, streams, latency)


@contextlib.contextmanager
def project() -> Iterator[Settings]:
    with tempfile.TemporaryDirectory() as folder:
        settings = config.load(Path(folder))
        with local.held(settings, SERVERS):
            yield settings


def report(
    snapshots: dict[str, list[float]], streams: dict[int, dict[str, list[float]]], latency: dict[int, dict[str, float]]
) -> None:
    contests = {"snapshot": snapshots} | {f"stream_{size}": sides for size, sides in streams.items()}
    ratios, figures = {}, {}
    for name, sides in contests.items():
        if not sides["millrace"]:
            continue
        medians = {side: statistics.median(rates[1:]) for side, rates in sides.items()}
        figures[name] = {side: round(rate) for side, rate in medians.items()}
        ratios[f"{name}_of_debezium"] = round(medians["millrace"] / medians["debezium"], 2)
        if "drain" in medians:
            ratios[f"{name}_of_drain"] = round(medians["millrace"] / medians["drain"], 2)
        print(f"{name:<12}" + "   ".join(f"{side} {rate:,.0f}/s" for side, rate in medians.items()))
    for rate, waits in latency.items():
        print(f"latency at {rate}/s: {waits}")
    result = {"ratios": ratios, "figures": {**figures, "latency_ms": latency}}
    print(json.dumps({"bench": "capture", **result, "peer": "Debezium 3.6.1 defaults; pg_recvlogical"}))


if __name__ == "__main__":
    main()
