"""Latest-by-key in Java against the same operator in Python's transformWithState, on one Spark and one Kafka.

    python -m bench.kernel [--records N] [--rounds N] [--seconds N] [--parts rows,latency,sharing]

rows: records/s of a backlog of envelopes, in epochs of a bounded size, the first one of each run left out.
latency: from a record's writing to its signed row's reading, Kafka to Kafka, across many epochs.
sharing: one state that ten readers share against ten queries with a state each.
The Python side does less (it neither fills placeholders nor tells errors apart). It needs pyarrow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pyspark
from confluent_kafka import Consumer, Producer
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.kernel_python import latest_by_key_in_python
from millrace import config, kernel, local
from millrace.engine.session import close, session
from millrace.log import Log

PARTITIONS = 2
# All tasks of a real-time query hold a slot at once: two that read, two behind the shuffle.
MASTER = "local[4]"
OPTIONS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
}
EPOCHS = 5
KEYS = 50_000
LATENCY_RATE = 200
LATEST_S = 60
REAL_TIME_EPOCH = "10 seconds"
READERS = 10

Operator: TypeAlias = Callable[[DataFrame], DataFrame]
OPERATORS: dict[str, Operator] = {"java": kernel.latest_by_key, "python": latest_by_key_in_python}

_SOURCE = (
    '"source":{"version":"3.6.1.Final","connector":"postgresql","name":"shop","ts_ms":1700000000000,"snapshot":"false",'
    '"db":"shop","sequence":"[\\"24023128\\",\\"24023128\\"]","ts_us":1700000000000123,"ts_ns":1700000000000123000,'
    '"schema":"public","table":"orders","txId":4711,"lsn":24023128,"xmin":null}'
)


def envelope(number: int, key: int, time_s: float = 0.0) -> bytes:
    """An update as Debezium writes it, about 700 bytes."""
    row = (
        f'{{"id":{key},"customer_id":{key % 977},"amount":"{number % 10_000}.95","currency":"EUR","status":"paid",'
        f'"placed_at":{1_700_000_000_000_000 + number},"note":"order {number}, to be left at the door","at":{time_s}}}'
    )
    end = '"transaction":null,"op":"u","ts_ms":1700000000001,"ts_us":1700000000001456,"ts_ns":1700000000001456000'
    return f'{{"before":null,"after":{row},{_SOURCE},{end}}}'.encode()


def key_of(number: int) -> int:
    return number * 7919 % KEYS


class Bench:
    def __init__(self, folder: Path) -> None:
        found = config.load(folder)
        self.settings = replace(found, spark=replace(found.spark, options=OPTIONS))
        self.log = Log(self.settings)
        self.bootstrap = local.address(self.settings, "kafka")
        self.folder = folder
        self.spark = session(self.settings, MASTER, "bench")
        self._count = 0

    def checkpoint(self) -> Path:
        self._count += 1
        return self.folder / f"checkpoint-{self._count}"

    def records(self, topic: str, **options: Any) -> DataFrame:
        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )

    def fill(self, topic: str, records: int) -> None:
        self.log.topics.create(topic, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, "compression.type": "lz4"})
        for number in range(records):
            key = key_of(number)
            producer.produce(topic, envelope(number, key), f'{{"id":{key}}}', partition=key % PARTITIONS)
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()


# --- rows -------------------------------------------------------------------------------------------------------------


def rows(bench: Bench, records: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Of each operator records/s, and CPU seconds a million, which neighbours disturb less. A first round warms up."""
    bench.fill("backlog", records)
    sides: dict[str, Operator] = {**OPERATORS, "read_only": lambda frame: frame.select("value")}
    found: dict[str, dict[str, list[float]]] = {name: {"per_s": [], "cpu_s": []} for name in sides}
    for number in range(rounds + 1):
        for name, operator in sides.items():
            before = cpu_s()
            rate = rate_of(bench, operator, records)
            spent = (cpu_s() - before) * 1_000_000 / records
            if number:
                found[name]["per_s"].append(rate)
                found[name]["cpu_s"].append(round(spent, 1))
    return found


def cpu_s() -> float:
    """What Spark's process and its Python workers have spent, those that have ended among them."""
    gateway: Any = SparkContext._gateway
    spark = psutil.Process(gateway.proc.pid)
    return sum(sum(process.cpu_times()[:4]) for process in [spark, *spark.children(recursive=True)])


def rate_of(bench: Bench, operator: Operator, records: int) -> int:
    return drained(
        operator(bench.records("backlog", maxOffsetsPerTrigger=records // EPOCHS)), bench.checkpoint(), "update"
    )


def drained(rows: DataFrame, checkpoint: Path, mode: str) -> int:
    """Rows a second of a query that reads what is there, without its first epoch."""
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    epochs = [progress for progress in query.recentProgress if progress.numInputRows][1:]
    spent_ms = sum(progress.durationMs["triggerExecution"] for progress in epochs)
    return round(sum(progress.numInputRows for progress in epochs) * 1_000 / spent_ms)


# --- latency ----------------------------------------------------------------------------------------------------------


def latency(bench: Bench, seconds: int) -> dict[str, dict[str, float]]:
    sides = {
        "java_realtime": (OPERATORS["java"], {"realTime": REAL_TIME_EPOCH}),
        "java_microbatch": (OPERATORS["java"], {"processingTime": "0 seconds"}),
        "python_microbatch": (OPERATORS["python"], {"processingTime": "0 seconds"}),
    }
    return {name: latency_of(bench, name, operator, trigger, seconds) for name, (operator, trigger) in sides.items()}


def latency_of(bench: Bench, name: str, operator: Operator, trigger: dict[str, str], seconds: int) -> dict[str, float]:
    source, sink = f"in-{name}", f"out-{name}"
    for topic in (source, sink):
        bench.log.topics.create(topic, partitions=PARTITIONS)
    query = (
        operator(bench.records(source))
        .where("__diff = 1")
        .select("key", F.col("row").alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", str(bench.checkpoint()))
        .outputMode("update")
        .trigger(**trigger)
        .start()
    )
    try:
        return _measured(bench, source, sink, query, seconds)
    finally:
        query.stop()


def _measured(bench: Bench, source: str, sink: str, query: StreamingQuery, seconds: int) -> dict[str, float]:
    arrived: list[tuple[float, float]] = []
    done = threading.Event()
    reader = threading.Thread(target=_arrivals, args=(bench, sink, arrived, done))
    reader.start()
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 0})
    warm_up_s = 20
    started, number = time.time(), 0
    while (now := time.time()) < started + warm_up_s + seconds:
        assert query.isActive, query.exception()
        key = number % 500
        producer.produce(source, envelope(number, key, now), f'{{"id":{key}}}', partition=key % PARTITIONS)
        producer.poll(0)
        number += 1
        time.sleep(max(0.0, started + number / LATENCY_RATE - time.time()))
    producer.flush()
    deadline = time.time() + LATEST_S
    while len(arrived) < number and time.time() < deadline:
        time.sleep(0.1)
    done.set()
    reader.join()
    assert len(arrived) >= number, f"{len(arrived)} of {number} rows came out"
    taken = sorted((came - sent) * 1_000 for sent, came in arrived if sent > started + warm_up_s)
    return {f"p{part}_ms": round(taken[len(taken) * part // 100], 1) for part in (50, 99)}


def _arrivals(bench: Bench, sink: str, arrived: list[tuple[float, float]], done: threading.Event) -> None:
    """Notes of each row when its record was written and when the row came."""
    consumer = Consumer(
        {
            "bootstrap.servers": bench.bootstrap,
            "group.id": sink,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.subscribe([sink])
    while not done.is_set():
        record = consumer.poll(0.2)
        if record and not record.error():
            arrived.append((json.loads(record.value())["at"], time.time()))
    consumer.close()


# --- sharing ----------------------------------------------------------------------------------------------------------


def sharing(bench: Bench, records: int) -> dict[str, dict[str, float]]:
    """The same table for one reader, for ten that share a state, and for ten with a state each."""
    bench.fill("shared", records)
    shared(bench, records, READERS)  # warms up
    return {
        "one": shared(bench, records, 1),
        "ten_sharing": shared(bench, records, READERS),
        "ten_apart": apart(bench, records, READERS),
    }


def shared(bench: Bench, records: int, readers: int) -> dict[str, float]:
    def write(frame: DataFrame, _: int) -> None:
        kept = frame.persist()
        for number in range(readers):
            kept.where(F.col("partition") >= F.lit(-number)).write.format("noop").mode("append").save()
        kept.unpersist()

    return _table(bench, records, [lambda writer: writer.foreachBatch(write)])


def apart(bench: Bench, records: int, readers: int) -> dict[str, float]:
    return _table(bench, records, [lambda writer: writer.format("noop")] * readers)


def _table(bench: Bench, records: int, sinks: list[Callable[[Any], Any]]) -> dict[str, float]:
    started = time.monotonic()
    checkpoints = [bench.checkpoint() for _ in sinks]
    queries = [
        sink(kernel.latest_by_key(bench.records("shared", maxOffsetsPerTrigger=records // EPOCHS)).writeStream)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
        for sink, checkpoint in zip(sinks, checkpoints, strict=True)
    ]
    for query in queries:
        query.awaitTermination()
    last = [query.lastProgress for query in queries]
    rows_held = sum(progress.stateOperators[0].numRowsTotal for progress in last if progress)
    on_disk = sum(path.stat().st_size for folder in checkpoints for path in folder.rglob("*") if path.is_file())
    return {
        "seconds": round(time.monotonic() - started, 1),
        "rows_held": rows_held,
        "checkpoint_mb": round(on_disk / 1e6, 1),
    }


# --- the report -------------------------------------------------------------------------------------------------------


def ratios(figures: dict[str, Any]) -> dict[str, float]:
    """Over 1: Java is faster, or takes less."""
    found = {}
    if "rows" in figures:
        java, python = figures["rows"]["java"], figures["rows"]["python"]
        found["rows"] = statistics.median(java["per_s"]) / statistics.median(python["per_s"])
        found["rows_cpu"] = statistics.median(python["cpu_s"]) / statistics.median(java["cpu_s"])
    if "latency" in figures:
        peer = figures["latency"]["python_microbatch"]
        for name in ("java_realtime", "java_microbatch"):
            for part, value in figures["latency"][name].items():
                found[f"{name}_{part.removesuffix('_ms')}"] = peer[part] / value
    if "sharing" in figures:
        one, other = figures["sharing"]["ten_sharing"], figures["sharing"]["ten_apart"]
        found["sharing_time"] = other["seconds"] / one["seconds"]
        found["sharing_state"] = other["rows_held"] / one["rows_held"]
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--parts", default="rows,latency,sharing")
    args = parser.parse_args()
    parts: dict[str, Callable[[Bench], Any]] = {
        "rows": lambda bench: rows(bench, args.records, args.rounds),
        "latency": lambda bench: latency(bench, args.seconds),
        "sharing": lambda bench: sharing(bench, args.records // 4),
    }
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        settings = config.load(Path(name))
        with local.held(settings, ("kafka",)):
            bench = Bench(Path(name))
            for part in args.parts.split(","):
                figures[part] = parts[part](bench)
                for side, figure in figures[part].items():
                    print(f"{part:<8} {side:<18} {figure}", flush=True)
            close(bench.spark)
            local.down(settings)
    peer = f"Python transformWithState, Spark {pyspark.__version__}"
    print(json.dumps({"bench": "kernel", "ratios": ratios(figures), "figures": figures, "peer": peer}))


if __name__ == "__main__":
    main()
