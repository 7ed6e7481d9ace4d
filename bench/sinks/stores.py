"""Stores and receivers as sinks, each beside the bare client of its system, in one run.

    python -m bench.sinks.stores [--sides postgres,again,files,redis,opensearch,rabbitmq,webhook] [--records N]
                                 [--rounds N]

- **postgres**: an epoch of so many new rows, against COPY by psycopg into a table with the same primary key.
- **again**: the same keys with other values into a table that has them, against COPY into a temporary table and MERGE.
- **files**: an epoch as Parquet, against Spark's own writer of the same rows, which are held by Spark on both sides.
- **redis**: an epoch of so many rows as hashes, against redis-py's pipelines of HSET, a thousand at a time.
- **opensearch**: the same as documents, against `_bulk` by two threads with bodies of the same size, made before.
- **rabbitmq**: the same as messages of a quorum queue, against pika's own loop in two processes, each with as many
  messages waiting for their confirmation, made before.
- **webhook**: a twentieth of them, against POST by as many threads with kept connections.

Ours has the rows as a flow does: computed and held by Spark. The bare clients have theirs in memory, and compare no
versions. The sides take turns; the first round warms up. Both targets are checked to hold every row.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

import pika
import redis
from pyspark.sql import DataFrame, SparkSession

from bench.sinks import tables
from bench.sinks.publisher import published
from bench.sinks.rows import ROW, row_of
from millrace import config, local
from millrace.config import Settings
from millrace.engine.session import close, session
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Sink
from millrace.sinks.keys import CONCURRENCY
from millrace.sinks.opensearch import opensearch
from millrace.sinks.rabbitmq import QUORUM, rabbitmq
from millrace.sinks.redis import redis as redis_sink
from millrace.sinks.webhook import webhook

PARTITIONS, THREADS = 2, 2
COMMANDS_A_PIPELINE = 1_000
HOOK = "hook"
SERVERS = {
    "postgres": "postgres",
    "again": "postgres",
    "redis": "valkey",
    "opensearch": "opensearch",
    "rabbitmq": "rabbitmq",
}
# About as large as ours.
BULK_ROWS = 10_000

_numbers = count(1)


class Bench:
    def __init__(self, settings: Settings, folder: Path, records: int) -> None:
        self.settings, self.folder, self.records = settings, folder, records
        self.spark: SparkSession = session(settings, f"local[{PARTITIONS}]", "bench")

    @contextmanager
    def rows(self, records: int) -> Iterator[DataFrame]:
        """As a flow has them: computed and held by Spark."""
        columns = self.spark.range(0, records, 1, PARTITIONS).selectExpr(*ROW)
        rows = columns.selectExpr("*", f"1 {DIFF}", f"id {VERSION}").persist()
        rows.count()
        yield rows
        rows.unpersist()

    def ours(self, sink: Sink, records: int, *, epochs: int = 1) -> float:
        """Rows a second of the last of so many epochs of the same rows."""
        with self.rows(records) as rows:
            feed = Feed(rows.drop(DIFF, VERSION).schema, () if sink.wants == "rows" else ("id",))
            writer = sink.open(self.settings, "bench", feed, self.folder / sink.name)
            for number in range(epochs):
                began = monotonic()
                writer.write(Epoch("bench", number, "[]"), rows, lambda refused: sys.exit(f"{refused[0]} is refused"))
                spent_s = monotonic() - began
            writer.close()
        return round(records / spent_s)

    # ---- redis

    def redis_ours(self) -> float:
        prefix = f"ours{next(_numbers)}"
        found = self.ours(redis_sink(prefix, key="id"), self.records)
        self._redis_emptied(self.records + 1)  # the ledger
        return found

    def redis_bare(self) -> float:
        rows = [{name: str(value) for name, value in row_of(number).items()} for number in range(self.records)]
        client = redis.Redis.from_url(local.address(self.settings, "valkey"))
        began = monotonic()
        for first in range(0, self.records, COMMANDS_A_PIPELINE):
            pipeline = client.pipeline(transaction=False)
            for row in rows[first : first + COMMANDS_A_PIPELINE]:
                pipeline.hset(f"bare:{row['id']}", mapping=row)
            pipeline.execute()
        spent_s = monotonic() - began
        client.close()
        self._redis_emptied(self.records)
        return round(self.records / spent_s)

    def _redis_emptied(self, wanted: int) -> None:
        with redis.Redis.from_url(local.address(self.settings, "valkey")) as client:
            assert client.dbsize() == wanted
            client.flushall()

    # ---- opensearch

    def opensearch_ours(self) -> float:
        index = f"ours{next(_numbers)}"
        found = self.ours(opensearch(index, key="id"), self.records)
        self._index_deleted(index, f"{index}-000001")
        return found

    def opensearch_bare(self) -> float:
        index = f"bare{next(_numbers)}"
        kinds = {"id": "long", "score": "double", "seen": "boolean", "at": "date"}
        properties: dict[str, Any] = {name: {"type": kind} for name, kind in kinds.items()}
        properties["name"] = {"type": "text", "fields": {"keyword": {"type": "keyword"}}}
        self._ask("PUT", f"/{index}", {"mappings": {"properties": properties}})
        starts = range(0, self.records, BULK_ROWS)
        bodies = [_bulk(range(first, min(first + BULK_ROWS, self.records))) for first in starts]
        began = monotonic()
        with ThreadPoolExecutor(THREADS) as pool:
            for answer in pool.map(lambda body: self._ask("POST", f"/{index}/_bulk", body), bodies):
                assert not answer["errors"]
        spent_s = monotonic() - began
        self._index_deleted(index, index)
        return round(self.records / spent_s)

    def _index_deleted(self, index: str, physical: str) -> None:
        self._ask("POST", f"/{index}/_refresh")
        assert self._ask("GET", f"/{index}/_count")["count"] == self.records
        self._ask("DELETE", f"/{physical}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        address = urlsplit(local.address(self.settings, "opensearch"))
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        assert answer.status < 300, told
        return told

    # ---- rabbitmq

    def rabbitmq_ours(self) -> float:
        queue = f"ours{next(_numbers)}"
        found = self.ours(rabbitmq(queue, key="id", concurrency=PARTITIONS), self.records)
        self._queue_deleted(queue)
        return found

    def rabbitmq_bare(self) -> float:
        queue, url = f"bare{next(_numbers)}", local.address(self.settings, "rabbitmq")
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            connection.channel().queue_declare(queue, durable=True, arguments=dict(QUORUM))
        spent_s = published(url, queue, range(self.records), THREADS)
        self._queue_deleted(queue)
        return round(self.records / spent_s)

    def _queue_deleted(self, queue: str) -> None:
        url = local.address(self.settings, "rabbitmq")
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            assert channel.queue_declare(queue, passive=True).method.message_count == self.records
            channel.queue_delete(queue)

    # ---- webhook

    @property
    def posts(self) -> int:
        return self.records // 20

    def webhook_ours(self) -> float:
        return self.ours(webhook(HOOK, key="id", name=f"hook{next(_numbers)}"), self.posts)

    def webhook_bare(self) -> float:
        address = urlsplit(self.settings.sink(HOOK).reveal())
        bodies = [json.dumps({"id": f"{n:064d}", "row": row_of(n)}).encode() for n in range(self.posts)]

        def posted(mine: list[bytes]) -> None:
            connection = http.client.HTTPConnection(address.hostname or "", address.port)
            for body in mine:
                connection.request("POST", "/", body, {"Content-Type": "application/json", "Idempotency-Key": "1"})
                answer = connection.getresponse()
                answer.read()
                assert answer.status < 300
            connection.close()

        began = monotonic()
        with ThreadPoolExecutor(CONCURRENCY) as pool:
            list(pool.map(posted, [bodies[first::CONCURRENCY] for first in range(CONCURRENCY)]))
        return round(self.posts / (monotonic() - began))


def _bulk(numbers: range) -> bytes:
    lines = [f'{{"index":{{"_id":"{n}"}}}}\n{json.dumps(row_of(n))}\n' for n in numbers]
    return "".join(lines).encode()


@contextmanager
def receiver(folder: Path) -> Iterator[str]:
    """The address of one that takes every post, for as long as this lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tests.sinks.receiver", str(port), str(folder / "posts")])
    try:
        while _closed(port):
            sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _closed(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) != 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sides", default="postgres,again,files,redis,opensearch,rabbitmq,webhook")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    chosen = args.sides.split(",")
    servers = {server for side, server in SERVERS.items() if side in chosen}
    with tempfile.TemporaryDirectory() as name, receiver(Path(name)) as url:
        settings = config.load(Path(name), {f"MILLRACE_SINKS_{HOOK.upper()}_URL": url})
        with local.held(settings, tuple(servers)):
            bench = Bench(settings, Path(name), args.records)
            try:
                run(bench, chosen, args.rounds)
            finally:
                close(bench.spark)


def run(bench: Bench, chosen: list[str], rounds: int) -> None:
    figures: dict[str, dict[str, list[float]]] = {}
    for side in chosen:
        sides: dict[str, Callable[[], float]] = (
            {
                "millrace": partial(getattr(tables, f"{side}_ours"), bench),
                "bare": partial(getattr(tables, f"{side}_bare"), bench),
            }
            if side in tables.SIDES
            else {
                "millrace": getattr(bench, f"{side}_ours"),
                "bare": getattr(bench, f"{side}_bare"),
            }
        )
        found: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds + 1):
            for name in list(sides) if number % 2 else reversed(sides):
                each = sides[name]()
                if number:
                    found[name].append(each)
        figures[side] = found
        for name, values in found.items():
            print(f"{side:11} {name:9} {values} rows/s")
    ratios = {
        side: round(statistics.median(found["millrace"]) / statistics.median(found["bare"]), 2)
        for side, found in figures.items()
    }
    peer = "COPY, COPY and MERGE, Spark's Parquet, redis-py's pipelines, _bulk by threads, pika, http.client by threads"
    print(json.dumps({"bench": "sinks", "ratios": ratios, "figures": figures, "peer": peer}))


if __name__ == "__main__":
    main()
