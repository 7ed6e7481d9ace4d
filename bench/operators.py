"""What each operator of the kernel costs, beside the same flow without it, Python and RocksDB itself.

    python -m bench.operators [--records N] [--keys N] [--rounds N] [--only lookback,match]

Whole flows over the same backlog of one Kafka topic, in epochs of a bounded size, the first one of each run left out;
results go nowhere. `plain` reads, parses and checks; what an operator takes beside that is its own, in CPU seconds a
million rows, and rows a second of one core. `python` is a keyed counter in Python's `transformWithState`, `count` the
least that one can do here: `mr.lookback` with a count. The bare limit is a get and a put in RocksDB for each row, on
one core, in a process of its own. Python's side needs pandas and pyarrow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import millrace as mr
from bench.kernel import drained
from bench.sides import RECORDS_AN_EPOCH, Side, full_epochs_from_the_first, measured
from millrace import config, local
from millrace.engine.session import close, session
from millrace.engine.sources import Source
from millrace.local import java
from millrace.log import Log

SCHEMA = "id long, k long, n long, at timestamp"
PARTITIONS = 2
START_S = 1_790_000_000
STATE_BYTES = 24  # of a counter, as RocksLimit has it

DROP = mr.late.drop()
OPERATORS = {
    "count": lambda rows: mr.lookback(rows, by="k", c=mr.count(over="1 minute"), late=DROP),
    "lookback": lambda rows: mr.lookback(
        rows, by="k", c=mr.count(over="1 minute"), s=mr.sum("n", over="10 seconds"), m=mr.max("n", over="1 minute"),
        late=DROP,
    ),
    "window": lambda rows: mr.window(rows, "10 seconds", by="k", c=mr.count(), emit="final", late=DROP),
    "hopping": lambda rows: mr.window(
        rows, "10 seconds", every="2 seconds", by="k", c=mr.count(), emit="final", late=DROP
    ),
    "session": lambda rows: mr.session(rows, "5 seconds", by="k", c=mr.count(), emit="final", late=DROP),
    "match": lambda rows: mr.match(
        rows, by="k", pattern="low{2,} high", define={"low": "n < 500", "high": "n >= 500"}, within="1 minute",
        measures={"c": mr.count("low")}, late=DROP,
    ),
    "top": lambda rows: mr.top(rows, 3, by="k", order="-n", emit="updates"),
    "latest": lambda rows: mr.latest(rows, by="k", order="at"),
    "dedup": lambda rows: mr.dedup(rows, on="id", ttl="1 minute", late=DROP),
}  # fmt: skip


class PythonCount(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("n", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        found: Any = self.state.get()
        count = found[0] if found else 0
        for row in rows:
            count += 1
            yield Row(id=row.id, k=key[0], c=count)
        self.state.update((count,))

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, folder: Path, records: int, keys: int) -> None:
        found = config.load(folder)
        options = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "3g"}
        self.settings = replace(found, spark=replace(found.spark, options=options))
        full_epochs_from_the_first()
        self.spark = session(self.settings, "local[2]", "bench")
        self.folder, self.count = folder, 0
        log = Log(self.settings)
        log.topics.create("events", partitions=PARTITIONS)
        at = (F.lit(START_S) + F.col("id") / 5_000).cast("long")
        event = F.struct("id", (F.col("id") * 7919 % keys).alias("k"), (F.col("id") % 977).alias("n"), at.alias("at"))
        rows = self.spark.range(0, records, 1, 1).select(F.to_json(event).alias("value"))
        # In order: each of the partitions has every second event.
        placed = rows.withColumn("partition", (F.monotonically_increasing_id() % PARTITIONS).cast("int"))
        placed.write.format("kafka").options(**log.data_source.options).option("topic", "events").save()

    def plain(self, spark: SparkSession) -> DataFrame:
        topic = mr.App("bench").topic("events", SCHEMA, time="at", lateness="5 seconds", ahead=None)
        return Source.of(topic, Log(self.settings), "bench").stream(spark)

    def side(self, name: str) -> Side:
        return lambda spark: OPERATORS[name](self.plain(spark))

    def python(self, spark: SparkSession) -> DataFrame:
        rows = self.plain(spark).select("id", "k")
        return rows.groupBy("k").transformWithState(PythonCount(), "id long, k long, c long", "Append", "None")

    def rate(self, build: Side) -> float:
        self.count += 1
        return drained(build(self.spark.newSession()), self.folder / f"checkpoint-{self.count}", "append")


def limit(folder: Path, rows: int, keys: int) -> int:
    """Gets and puts a second of RocksDB alone."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("rocksdbjni-*.jar")
    source = Path(__file__).parent / "RocksLimit.java"
    command = [str(java.find()), "-cp", str(jar), str(source), str(rows), str(keys), str(STATE_BYTES), str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default=",".join(OPERATORS))
    parser.add_argument("--no-python", action="store_true")
    args = parser.parse_args()
    if args.records <= RECORDS_AN_EPOCH:
        parser.error(f"--records must be more than one epoch takes, {RECORDS_AN_EPOCH}")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name:
        settings = config.load(Path(name))
        with local.held(settings, ("kafka",)):
            bare = limit(Path(name), args.records, args.keys)
            print(f"RocksDB alone: {bare:,} gets and puts a second on one core", flush=True)
            bench = Bench(Path(name), args.records, args.keys)
            sides = {"plain": bench.plain} | {each: bench.side(each) for each in args.only.split(",")}
            if not args.no_python:
                sides["python"] = bench.python
            rates, spent = measured(sides, bench.rate, args.records, args.rounds)
            close(bench.spark)
            local.down(settings)
    middle = {side: statistics.median(values) for side, values in spent.items()}
    own = {side: max(value - middle["plain"], 0.1) for side, value in middle.items() if side != "plain"}
    per_core = {side: round(1e6 / value) for side, value in own.items()}
    for side, value in per_core.items():
        print(
            f"{side:10} {own[side]:6.1f} CPU s a million of its own, {value:9,} rows/s a core, "
            f"{value / bare:.2f} of RocksDB"
        )
    ratios = {f"{side}_to_rocksdb": round(value / bare, 2) for side, value in per_core.items()}
    if "python" in per_core and "count" in per_core:
        ratios["count_to_python"] = round(per_core["count"] / per_core["python"], 1)
    figures = {"events_per_s": rates, "cpu_s_per_million": spent, "rocksdb_per_s": bare}
    print(json.dumps({"bench": "operators", "ratios": ratios, "figures": figures, "peer": "RocksDB, Python"}))


if __name__ == "__main__":
    main()
