"""Millrace's windows against Spark's own, over the same backlog of one Kafka topic.

    python -m bench.windows [--records N] [--rounds N]

Events a second of whole flows: JSON of some 90 bytes is read, parsed, checked and counted by key in tumbling windows of
ten seconds, in epochs of a bounded size, the first one of each run left out; results go nowhere. `spark` is what one
would write by hand: `from_json`, `withWatermark`, `groupBy(window, key).count()`; it drops late rows uncounted.
`native` is that aggregation in a Millrace flow, which shows what reading through Millrace costs.
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
from millrace.log import Log

SCHEMA = "id long, key string, amount long, at timestamp"
PARTITIONS = 2
KEYS = 1_000
START_S = 1_790_000_000


def fill(log: Log, bootstrap: str, records: int) -> None:
    log.topics.create("events", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(records):
        second = START_S + number // 5_000
        value = f'{{"id":{number},"key":"k{number * 7919 % KEYS}","amount":{number % 977},"at":{second}}}'
        producer.produce("events", value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


class Bench:
    def __init__(self, folder: Path, records: int) -> None:
        found = config.load(folder)
        self.settings = replace(found, spark=replace(found.spark, options={"spark.sql.shuffle.partitions": "2"}))
        self.bootstrap = local.address(self.settings, "kafka")
        full_epochs_from_the_first()
        self.spark = session(self.settings, "local[2]", "bench")
        self.folder, self._count = folder, 0
        fill(Log(self.settings), self.bootstrap, records)

    def by_hand(self, spark: SparkSession) -> DataFrame:
        raw = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", "events")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", RECORDS_AN_EPOCH)
            .load()
        )
        parsed = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
        return counted(parsed.withWatermark("at", "5 seconds"))

    def native(self, spark: SparkSession) -> DataFrame:
        return counted(self._source().stream(spark))

    def millrace(self, spark: SparkSession) -> DataFrame:
        given = {"by": "key", "emit": "final", "late": mr.late.drop()}
        return mr.window(self._source().stream(spark), "10 seconds", count=mr.count(), **given)  # type: ignore[arg-type]

    def _source(self) -> Source:
        topic = mr.App("bench").topic("events", SCHEMA, time="at", lateness="5 seconds", ahead=None)
        return Source.of(topic, Log(self.settings), "bench")

    def rate(self, build: Side) -> float:
        self._count += 1
        return drained(build(self.spark.newSession()), self.folder / f"checkpoint-{self._count}", "append")


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.window("at", "10 seconds"), "key").count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = config.load(Path(folder))
        with local.held(settings, ("kafka",)):
            bench = Bench(Path(folder), args.records)
            sides = {"millrace": bench.millrace, "native": bench.native, "spark": bench.by_hand}
            rates, spent = measured(sides, bench.rate, args.records, args.rounds)
            close(bench.spark)
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {name: round(middle[name] / middle["spark"], 2) for name in ("millrace", "native")}
    figures = {"events_per_s": rates, "cpu_s_per_million": spent}
    print(json.dumps({"bench": "windows", "ratios": ratios, "figures": figures, "peer": "Spark by hand"}))


if __name__ == "__main__":
    main()
