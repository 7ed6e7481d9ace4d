"""Topics written exactly once, beside Spark's own Kafka sink and Kafka's ProducerPerformance, in one run.

    python -m bench.sinks.kafka [--records N] [--rounds N]

- **epochs**: a topic is copied to another in epochs of about a second, by the transactional sink and by Spark's, with
  the same batches; and by Spark's as it is. A ratio is rows/s of ours over theirs.
- **writing**: rows that cost nothing to make, one epoch of all of them, against ProducerPerformance's own figure.
- **small**: epochs of ten rows, one after the other: what an epoch's end costs in milliseconds.
- **fence**: how long a start takes to end what killed tasks left open, which holds back every reader until then.

The sides take turns; the first round warms up. Readers are checked to find every record once.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from bench.log import SAME_BATCHES, SIZE_BYTES, kafka_tool
from millrace import config, local
from millrace.config import Settings
from millrace.engine.session import close, session
from millrace.kernel import delivering
from millrace.log import Log

PARTITIONS = 2
SMALL_EPOCHS, SMALL_ROWS = 60, 10
LEFT_OPEN = 8
# As the transactional sink has them unless told otherwise.
BATCHES = {"kafka.batch.size": "131072", "kafka.linger.ms": "20"}
VALUE = f"lpad(cast(id as string), {SIZE_BYTES}, 'x') as value"


class Bench:
    def __init__(self, settings: Settings, folder: Path, records: int) -> None:
        self.log, self.folder, self.records = Log(settings), folder, records
        self.spark: SparkSession = session(settings, f"local[{PARTITIONS}]", "bench")
        self._number = 0

    def fresh(self) -> tuple[str, Path]:
        self._number += 1
        topic = f"out-{self._number}"
        self.log.topics.create(topic, partitions=PARTITIONS)
        return topic, self.folder / "checkpoints" / topic

    def to(self, side: str, topic: str, checkpoint: Path) -> tuple[str, dict[str, str]]:
        options = {**self.log.data_source.options, "topic": topic}
        if side == "transactional":
            return delivering.FORMAT, {**options, "flow": f"bench.{topic}", "checkpoint": str(checkpoint)}
        return "kafka", {**options, **(BATCHES if side == "plain" else {})}

    def source(self, topic: str, limit: int) -> DataFrame:
        options = {**self.log.data_source.options, "subscribe": topic, "startingOffsets": "earliest"}
        reading = self.spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=str(limit))
        return reading.load().select("value")

    def streamed(self, side: str, source: str, limit: int) -> list[dict[str, Any]]:
        """Copies a topic in epochs of so many records; gives Spark's report of each."""
        topic, checkpoint = self.fresh()
        kind, options = self.to(side, topic, checkpoint)
        writing = self.source(source, limit).writeStream.format(kind).options(**options)
        self.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        query = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        reports = [json.loads(report.json) for report in query.recentProgress]
        self.finish(topic, checkpoint, sum(report["numInputRows"] for report in reports))
        return [report for report in reports if report["numInputRows"]]

    def finish(self, topic: str, checkpoint: Path, records: int) -> None:
        delivering.end(checkpoint)
        options = {**self.log.data_source.options, "subscribe": topic, "kafka.isolation.level": "read_committed"}
        found = self.spark.read.format("kafka").options(**options).load().count()
        assert found == records, f"{topic} holds {found} of {records} records"
        self.log.topics.delete(topic)

    def epochs(self, side: str, limit: int) -> float:
        """Rows a second over all epochs but the first, which makes producers."""
        reports = self.streamed(side, "in", limit)[1:]
        spent_ms = sum(report["durationMs"]["triggerExecution"] for report in reports)
        return round(sum(report["numInputRows"] for report in reports) * 1000 / spent_ms)

    def small(self, side: str) -> float:
        """The median time of an epoch."""
        reports = self.streamed(side, "small", SMALL_ROWS)[5:]
        return statistics.median(report["durationMs"]["triggerExecution"] for report in reports)

    def written(self, side: str) -> float:
        """Rows a second of one epoch, whose rows cost nothing to make."""
        topic, checkpoint = self.fresh()
        kind, options = self.to(side, topic, checkpoint)
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "offsets" / "0").write_text("v1\n{}\n{}")
        (checkpoint / "metadata").write_text('{"id":"bench"}')
        rows = self.spark.range(0, self.records, 1, PARTITIONS).selectExpr(VALUE)
        began = monotonic()
        rows.write.format(kind).options(**options, epoch="0").mode("append").save()
        spent_s = monotonic() - began
        self.finish(topic, checkpoint, self.records)
        return round(self.records / spent_s)

    def fence(self) -> float:
        """Milliseconds from a start to the moment when nothing is held back."""
        topic, checkpoint = self.fresh()
        left = []
        for partition in range(LEFT_OPEN):
            options = {"bootstrap.servers": self.log.address, "transactional.id": f"bench.{topic}.{partition}.0"}
            producer = Producer(options)
            producer.init_transactions()
            producer.begin_transaction()
            producer.produce(topic, b"left", partition=partition % PARTITIONS)
            producer.flush()
            left.append(producer)
        assert not any(last for _, last in self.log.topics.offsets(topic).values())
        began = monotonic()
        delivering.begin(self.spark, self.to("transactional", topic, checkpoint)[1])
        while self.log.topics.offsets(topic) != self.log.topics.offsets(topic, committed=False):
            pass
        spent_s = monotonic() - began
        delivering.end(checkpoint)
        self.log.topics.delete(topic)
        return round(spent_s * 1000, 1)

    def producer(self) -> float:
        """What Kafka's own tool says of itself, without its start."""
        topic, _ = self.fresh()
        command = [
            *kafka_tool("ProducerPerformance", "--topic", topic, "--num-records", str(self.records)),
            *["--record-size", str(SIZE_BYTES), "--throughput", "-1"],
            *["--producer-props", f"bootstrap.servers={self.log.address}", "acks=all", *SAME_BATCHES],
        ]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.log.topics.delete(topic)
        return float(re.findall(r"([\d.]+) records/sec", said)[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        settings = config.load(Path(name))
        with local.held(settings, ("kafka",)):
            bench = Bench(settings, Path(name), args.records)
            try:
                run(bench, args.rounds)
            finally:
                close(bench.spark)


def run(bench: Bench, rounds: int) -> None:
    for topic, records in (("in", bench.records), ("small", SMALL_EPOCHS * SMALL_ROWS)):
        bench.log.topics.create(topic, partitions=PARTITIONS)
        rows = bench.spark.range(0, records, 1, PARTITIONS).selectExpr(VALUE)
        rows.write.format("kafka").options(**bench.log.data_source.options, **BATCHES, topic=topic).save()
    limit = round(bench.epochs("plain", bench.records // 10))  # so many come through in a second
    limit = round(bench.epochs("plain", limit))
    sides: dict[str, dict[str, Callable[[], float]]] = {
        "epochs": {
            "transactional": lambda: bench.epochs("transactional", limit),
            "plain": lambda: bench.epochs("plain", limit),
            "plain, default batches": lambda: bench.epochs("default", limit),
        },
        "writing": {
            "transactional": lambda: bench.written("transactional"),
            "plain": lambda: bench.written("plain"),
            "ProducerPerformance": bench.producer,
        },
        "small": {
            "transactional": lambda: bench.small("transactional"),
            "plain": lambda: bench.small("plain"),
        },
        "fence": {f"{LEFT_OPEN} open transactions": bench.fence},
    }
    figures: dict[str, Any] = {"rows_an_epoch": limit}
    for contest, contenders in sides.items():
        found: dict[str, list[float]] = {side: [] for side in contenders}
        for number in range(rounds + 1):
            for side in list(contenders) if number % 2 else reversed(contenders):
                each = contenders[side]()
                if number:
                    found[side].append(each)
        figures[contest] = found
        for side, values in found.items():
            print(f"{contest:8} {side:24} {values} {'ms' if contest in ('small', 'fence') else 'rows/s'}")
    report(figures)


def report(figures: dict[str, Any]) -> None:
    middle = {
        contest: {side: statistics.median(values) for side, values in figures[contest].items()}
        for contest in ("epochs", "writing", "small")
    }
    ratios = {
        "kafka_epochs_of_plain": middle["epochs"]["transactional"] / middle["epochs"]["plain"],
        "kafka_epochs_of_default": middle["epochs"]["transactional"] / middle["epochs"]["plain, default batches"],
        "kafka_writing_of_plain": middle["writing"]["transactional"] / middle["writing"]["plain"],
        "kafka_writing_of_producer": middle["writing"]["transactional"] / middle["writing"]["ProducerPerformance"],
    }
    figures["small_epoch_costs_ms"] = round(middle["small"]["transactional"] - middle["small"]["plain"], 1)
    rounded = {name: round(ratio, 2) for name, ratio in ratios.items()}
    peer = "Spark's Kafka sink and Kafka's ProducerPerformance"
    print(json.dumps({"bench": "sinks", "ratios": rounded, "figures": figures, "peer": peer}))


if __name__ == "__main__":
    main()
