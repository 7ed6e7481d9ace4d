"""A lookup in a captured table against the same flow without it, and against a broadcast join of rows that stay.

    python -m bench.lookup [--records N] [--rows N] [--rounds N]

Events a second of whole flows over the same backlog of one Kafka topic: JSON of some 90 bytes is read, parsed and
checked, in epochs of a bounded size, the first one of each run left out; results go nowhere. `lookup` keeps the table
from a topic of Debezium's envelopes, `broadcast` joins the same rows as a static DataFrame, by hand, and `plain` does
neither.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from bench.kernel import drained
from bench.sides import RECORDS_AN_EPOCH, Side, full_epochs_from_the_first, measured
from millrace import config, local
from millrace.engine.session import close, session
from millrace.engine.sources import Source
from millrace.engine.tables import TableSource
from millrace.log import Log

SCHEMA = "id long, customer long, amount long, at timestamp"
COLUMNS = "id long, name string, region string"
PARTITIONS = 2
START_S = 1_790_000_000


def fill(log: Log, bootstrap: str, records: int, rows: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})

    def put(topic: str, number: int, value: str, key: str | None = None) -> None:
        producer.produce(topic, value, key=key, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush()

    for topic in ("events", "customers"):
        log.topics.create(topic, partitions=PARTITIONS)
    for number in range(rows):
        row = f'{{"id":{number},"name":"customer {number}","region":"r{number % 20}"}}'
        put("customers", number, f'{{"before":null,"after":{row},"op":"c"}}', f'{{"id":{number}}}')
    for number in range(records):
        at, customer = START_S + number // 5_000, number * 7919 % (rows + rows // 10)  # some are not in the table
        put("events", number, f'{{"id":{number},"customer":{customer},"amount":{number % 977},"at":{at}}}')
    producer.flush()


class Bench:
    def __init__(self, folder: Path, records: int, rows: int) -> None:
        found = config.load(folder)
        self.settings = replace(found, spark=replace(found.spark, options={"spark.sql.shuffle.partitions": "2"}))
        full_epochs_from_the_first()
        self.spark = session(self.settings, "local[2]", "bench")
        self.folder, self.rows, self._count = folder, rows, 0
        fill(Log(self.settings), local.address(self.settings, "kafka"), records, rows)

    def plain(self, spark: SparkSession) -> DataFrame:
        topic = mr.App("bench").topic("events", SCHEMA, time="at", lateness="5 seconds", ahead=None)
        return Source.of(topic, Log(self.settings), "bench").stream(spark)

    def lookup(self, spark: SparkSession) -> DataFrame:
        table = mr.App("bench").table("customers", COLUMNS, key="id")
        rows = TableSource.of(table, Log(self.settings), "bench").stream(spark)
        return mr.lookup(self.plain(spark), rows, on="customer")

    def broadcast(self, spark: SparkSession) -> DataFrame:
        numbers = spark.range(self.rows)
        name, region = F.format_string("customer %d", "id"), F.format_string("r%d", F.col("id") % 20)
        rows = numbers.select(F.col("id").alias("customer"), name.alias("name"), region.alias("region"))
        return self.plain(spark).join(F.broadcast(rows), "customer", "left")

    def rate(self, build: Side) -> float:
        self._count += 1
        return drained(build(self.spark.newSession()), self.folder / f"checkpoint-{self._count}", "append")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.records <= RECORDS_AN_EPOCH:
        parser.error(f"--records must be more than one epoch takes, {RECORDS_AN_EPOCH}")
    with tempfile.TemporaryDirectory() as folder:
        settings = config.load(Path(folder))
        with local.held(settings, ("kafka",)):
            bench = Bench(Path(folder), args.records, args.rows)
            sides = {"lookup": bench.lookup, "broadcast": bench.broadcast, "plain": bench.plain}
            rates, spent = measured(sides, bench.rate, args.records, args.rounds)
            close(bench.spark)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {f"to_{name}": round(middle["lookup"] / middle[name], 2) for name in ("broadcast", "plain")}
    figures = {"events_per_s": rates, "cpu_s_per_million": spent}
    print(json.dumps({"bench": "lookup", "ratios": ratios, "figures": figures, "peer": "Spark's broadcast join"}))


if __name__ == "__main__":
    main()
