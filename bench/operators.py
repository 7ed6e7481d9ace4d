"""What each operator of the kernel costs, beside the same flow without it, Python and RocksDB itself.

    python -m bench.operators [--records N] [--keys N] [--rounds N] [--only lookback,match]

Whole flows over the same backlog of one Kafka topic, in epochs of a bounded size, the first one of each run left out;
results go nowhere. `plain` reads, parses and checks; what an operator takes beside that is its own, in CPU seconds a
million events, and events a second of one core. `as_of` and `join` also read a second topic, a tenth as long, which
counts as theirs. `python` is a keyed counter in Python's `transformWithState`, `count` the least that one can do here:
`mr.lookback` with a count. The bare limit is a get and a put in RocksDB for each row, on one core, in a process of its
own. What is kept at the end is weighed as `millrace state` does. Python's side needs pandas and pyarrow.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import millrace as mr
from bench.kernel import drained
from bench.sides import RECORDS_AN_EPOCH, Side, full_epochs_from_the_first, measured
from millrace import config, local
from millrace.engine.operators import kept
from millrace.engine.session import close, session
from millrace.engine.sources import Source
from millrace.engine.state import State
from millrace.kernel import signed
from millrace.kernel.tallies import Measure
from millrace.local import java
from millrace.log import Log

SCHEMA = "id long, k long, n long, at timestamp"
CHANGES = "k long, price long, since timestamp"
PARTITIONS = 2
EVENTS_A_CHANGE = 10
START_S = 1_790_000_000
STATE_BYTES = 24  # of a counter, as RocksLimit has it

DROP = mr.late.drop()


def signed_aggregate(rows: DataFrame) -> DataFrame:
    came = rows.withColumn(signed.DIFF, F.lit(1))
    measures = [Measure("c", "count"), Measure("s", "sum", (F.col("n"),)), Measure("m", "max", (F.col("n"),))]
    chain = signed.begin(came, {"events": (F.lit(True), ["k", "n"])})
    return chain.aggregate("events", by=["k"], measures=measures, into="groups").table("groups")


def signed_join(rows: DataFrame, keys: int) -> DataFrame:
    """The first events are those of a table, with one for each key; all others find theirs."""
    named = {
        "table": (F.col("id") < keys, [F.col("k").alias("key"), F.col("id").alias("first")]),
        "events": (F.lit(True), ["id", "k", "n"]),
    }
    chain = signed.begin(rows.withColumn(signed.DIFF, F.lit(1)), named)
    return chain.join("events", "table", on=[("k", "key")], how="inner", into="pairs").table("pairs")


# By the topic's events alone.
OPERATORS: dict[str, Callable[[DataFrame], DataFrame]] = {
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
    "sketch": lambda rows: mr.window(
        rows, "10 seconds", by=(), u=mr.approx_distinct("k"), q=mr.quantile("n", 0.99), emit="final", late=DROP
    ),
    "signed_aggregate": signed_aggregate,
}  # fmt: skip
# And by changes of a table.
OF_TWO: dict[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "as_of": lambda rows, changes: mr.as_of(rows, changes, on="k", emit="updates", late=DROP),
    "join": lambda rows, changes: mr.join(changes, rows, on="k", within=("0 seconds", "10 seconds")),
}


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
    def __init__(self, folder: Path, records: int, keys: int, epoch: int) -> None:
        found = config.load(folder)
        options = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "3g"}
        self.settings = replace(found, spark=replace(found.spark, options=options))
        full_epochs_from_the_first(epoch)
        self.spark = session(self.settings, "local[2]", "bench")
        self.folder, self.count = folder, 0
        self.operators = {**OPERATORS, "signed_join": partial(signed_join, keys=keys)}
        self.kept: dict[Side, tuple[Path, tuple[dict[str, Any], ...]]] = {}
        at = (F.lit(START_S) + F.col("id") / 5_000).cast("long")
        key, number = (F.col("id") * 7919 % keys).alias("k"), F.col("id") % 977
        self._write("events", 0, records, 1, F.struct("id", key, number.alias("n"), at.alias("at")))
        change = F.struct(key, number.alias("price"), at.alias("since"))
        self._write("changes", 0, records, EVENTS_A_CHANGE, change)

    def _write(self, topic: str, first: int, last: int, step: int, row: Column) -> None:
        log = Log(self.settings)
        log.topics.create(topic, partitions=PARTITIONS)
        rows = self.spark.range(first, last, step, 1).select(F.to_json(row).alias("value"))
        # In order: each of the partitions has every second one.
        placed = rows.withColumn("partition", (F.monotonically_increasing_id() % PARTITIONS).cast("int"))
        placed.write.format("kafka").options(**log.data_source.options).option("topic", topic).save()

    def _read(self, spark: SparkSession, name: str, schema: str, time: str) -> DataFrame:
        topic = mr.App("bench").topic(name, schema, time=time, lateness="5 seconds", ahead=None)
        return Source.of(topic, Log(self.settings), f"bench.{name}").stream(spark)

    def plain(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, "events", SCHEMA, "at")

    def side(self, name: str) -> Side:
        if name in self.operators:
            return lambda spark: self.operators[name](self.plain(spark))
        return lambda spark: OF_TWO[name](self.plain(spark), self._read(spark, "changes", CHANGES, "since"))

    def python(self, spark: SparkSession) -> DataFrame:
        rows = self.plain(spark).select("id", "k")
        return rows.groupBy("k").transformWithState(PythonCount(), "id long, k long, c long", "Append", "None")

    def rate(self, build: Side) -> float:
        self.count += 1
        folder = self.folder / f"run-{self.count}"
        rows = build(self.spark.newSession())
        rate = drained(rows, folder / "checkpoint", "append")
        if build in self.kept:
            shutil.rmtree(self.kept[build][0])
        self.kept[build] = folder, kept(rows)
        return rate

    def weighed(self, build: Side) -> dict[str, float] | None:
        """How much the last run of an operator kept at its end."""
        folder, told = self.kept[build]
        sizes = list(State(self.spark, folder, "bench", told).sizes())
        if not sizes:
            return None
        (size,) = sizes
        return {"keys": size.keys, "bytes_a_key": round(size.bytes / max(size.keys, 1), 1), "timers": size.timers}


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
    parser.add_argument("--epoch", type=int, default=RECORDS_AN_EPOCH, help="records that the first epochs read")
    parser.add_argument("--only", default=",".join([*OPERATORS, "signed_join", *OF_TWO]))
    parser.add_argument("--no-python", action="store_true")
    args = parser.parse_args()
    if args.records <= args.epoch:
        parser.error(f"--records must be more than one epoch takes, {args.epoch}")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name:
        settings = config.load(Path(name))
        with local.held(settings, ("kafka",)):
            bare = limit(Path(name), args.records, args.keys)
            print(f"RocksDB alone: {bare:,} gets and puts a second on one core", flush=True)
            bench = Bench(Path(name), args.records, args.keys, args.epoch)
            sides = {"plain": bench.plain} | {each: bench.side(each) for each in args.only.split(",")}
            if not args.no_python:
                sides["python"] = bench.python
            rates, spent = measured(sides, bench.rate, args.records, args.rounds)
            held = {side: found for side, build in sides.items() if (found := bench.weighed(build))}
            close(bench.spark)
            local.down(settings)
    middle = {side: statistics.median(values) for side, values in spent.items()}
    own = {side: max(value - middle["plain"], 0.1) for side, value in middle.items() if side != "plain"}
    per_core = {side: round(1e6 / value) for side, value in own.items()}
    for side, value in per_core.items():
        size = held.get(side, {"keys": 0, "bytes_a_key": 0.0})
        print(
            f"{side:16} {own[side]:6.1f} CPU s a million of its own, {value:9,} events/s a core, "
            f"{value / bare:.2f} of RocksDB; {size['keys']:9,} keys of {size['bytes_a_key']:7.1f} bytes"
        )
    ratios = {f"{side}_to_rocksdb": round(value / bare, 2) for side, value in per_core.items()}
    if "python" in per_core and "count" in per_core:
        ratios["count_to_python"] = round(per_core["count"] / per_core["python"], 1)
    figures = {"events_per_s": rates, "cpu_s_per_million": spent, "rocksdb_per_s": bare, "kept": held}
    print(json.dumps({"bench": "operators", "ratios": ratios, "figures": figures, "peer": "RocksDB, Python"}))


if __name__ == "__main__":
    main()
