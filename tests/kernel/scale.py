"""One key with a million rows, and a million keys with one: what a row then costs, and what is kept in memory.

    python -m tests.kernel.scale                  (make scale ROWS=1000000)

The time of a row of one busy key when all are there must be near that when a tenth of them was (`GROWTH` at most). All
of it must do with a heap of `HEAP`. What is kept for a key is counted as `millrace state` does; RocksDB packs it
further, into `files_mib` and what it has in memory. Prints a line for each operator, and one of JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace import config
from millrace.engine.session import close, session
from millrace.engine.state import State

HEAP = "2g"
# An epoch that takes thrice as long with ten times as many rows there: a tree is some levels higher. Quadratic is ten.
GROWTH = 3.0
EPOCHS = 40
MIB = 1 << 20

# Rows are a millisecond apart, in any order within a second. All of them stay within what is asked for.
APART, ALL = "id + pmod(xxhash64(id), 1000)", "1 hour"
# Those of many keys are at about the same time, so that none is forgotten.
CLOSE, OVER = "id / 10000", "10 minutes"


def hot() -> dict[str, Callable[[DataFrame], DataFrame]]:
    given: Any = {"by": "key", "late": mr.late.drop()}
    parts: Any = {"small": "amount < 5", "large": "amount = 9"}
    return {
        "lookback": lambda rows: mr.lookback(
            rows, **given, n=mr.count(over=ALL), total=mr.sum("amount", over=ALL), most=mr.max("id", over="1 minute")
        ),
        "window": lambda rows: mr.window(
            rows, ALL, **given, emit="final", n=mr.count(), total=mr.sum("amount"), items=mr.distinct("amount")
        ),
        "session": lambda rows: mr.session(rows, "10 seconds", **given, emit="final", n=mr.count(), last=mr.last("id")),
        "match": lambda rows: mr.match(
            rows, **given, pattern="small{3,} large", define=parts, within="1 second", measures={"n": mr.count()}
        ),
        "top": lambda rows: mr.top(rows, 10, by="key", order=["-amount", "id"], emit="updates"),
        "players": lambda rows: mr.top(
            rows, 10, by="key", of="id", order=["-amount", "id"], emit="updates", ttl=ALL, late=mr.late.drop()
        ),
        "dedup": lambda rows: mr.dedup(rows, on="key", ttl="1 millisecond", late=mr.late.allow(ALL)),
    }


def write(spark: SparkSession, folder: Path, rows: int, key: str, ms: str) -> None:
    """A file an epoch."""
    for number in range(EPOCHS):
        first, last = (rows * place // EPOCHS for place in (number, number + 1))
        spark.range(first, last, 1, 1).select(
            "id",
            F.expr(key).alias("key"),
            F.timestamp_millis(F.lit(1_770_000_000_000) + F.expr(ms).cast("long")).alias("at"),
            F.pmod(F.xxhash64("id", F.lit(1)), F.lit(10)).alias("amount"),
        ).write.mode("append").parquet(str(folder / "all"))


def run(spark: SparkSession, source: Path, build: Callable[[DataFrame], DataFrame], folder: Path) -> list[Any]:
    read = spark.readStream.schema("id long, key long, at timestamp, amount long").option("maxFilesPerTrigger", 1)
    rows = read.parquet(str(source / "all")).withWatermark("at", "10 seconds")
    query = (
        build(rows).writeStream.format("noop").outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return [report for report in query.recentProgress if report["numInputRows"]]


def per_row_us(reports: list[Any]) -> float:
    """The median epoch's, so that one that others disturbed does not count."""
    each = sorted(report["durationMs"]["addBatch"] * 1_000 / report["numInputRows"] for report in reports)
    return float(each[len(each) // 2])


def heap_mib(spark: SparkSession) -> float:
    """What is left of it after a collection."""
    java: Any = spark._jvm
    java.java.lang.System.gc()
    return float(java.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()) / MIB


def _most_heap(spark: SparkSession) -> int:
    java: Any = spark._jvm
    return int(java.java.lang.Runtime.getRuntime().maxMemory())


def one_key(spark: SparkSession, rows: int, names: list[str]) -> dict[str, Any]:
    source, found = Path(tempfile.mkdtemp(prefix="millrace-scale-")), {}
    write(spark, source, rows, "1L", APART)
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix="millrace-scale-"))
        reports = run(spark, source, hot()[name], folder)
        at_tenth, at_all = per_row_us(reports[2:7]), per_row_us(reports[-6:-1])
        found[name] = {"us_tenth": round(at_tenth, 1), "us_all": round(at_all, 1), "heap_mib": round(heap_mib(spark))}
        print(f"one key, {name}: {at_tenth:.1f} µs a row, {at_all:.1f} at {rows:,} rows", flush=True)
        shutil.rmtree(folder)
    shutil.rmtree(source)
    return found


def many_keys(spark: SparkSession, rows: int) -> dict[str, Any]:
    source, folder = (Path(tempfile.mkdtemp(prefix="millrace-scale-")) for _ in range(2))
    write(spark, source, rows, "id", CLOSE)

    def build(rows: DataFrame) -> DataFrame:
        return mr.lookback(
            rows, by="key", late=mr.late.drop(),
            n=mr.count(over=OVER), total=mr.sum("amount", over=OVER), most=mr.max("amount", over="1 minute"),
        )  # fmt: skip

    reports = run(spark, source, build, folder)
    state = reports[-1]["stateOperators"][0]
    (size,) = State(spark, folder, "lookback").sizes()
    found = {
        "keys": rows,
        "rows_kept": state["numRowsTotal"],
        "heap_mib": round(heap_mib(spark)),
        "heap_most_mib": round(_most_heap(spark) / MIB),
        "rocksdb_mib": round(state["memoryUsedBytes"] / MIB),
        "bytes_a_key": round(size.bytes / rows, 1),
        "timers": size.timers,
        "files_mib": round(state["customMetrics"]["rocksdbSstFileSize"] / MIB, 1),
        "us_tenth": round(per_row_us(reports[2:7]), 1),
        "us_all": round(per_row_us(reports[-6:-1]), 1),
    }
    print(f"many keys, lookback: {found}", flush=True)
    shutil.rmtree(source)
    shutil.rmtree(folder)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="which operators have one key; all, and many keys, if none is named")
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    settings = config.load(Path(tempfile.mkdtemp(prefix="millrace-scale-")))
    options = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": HEAP}
    spark = session(replace(settings, spark=replace(settings.spark, options=options)), "local[2]", "scale")
    try:
        found: dict[str, Any] = {} if args.names else {"many": many_keys(spark, args.rows)}
        found |= one_key(spark, args.rows, args.names or list(hot()))
    finally:
        close(spark)
        shutil.rmtree(settings.folder)
    slow = [name for name, each in found.items() if each["us_all"] > GROWTH * each["us_tenth"]]
    print(json.dumps({"scale": "kernel", "rows": args.rows, "heap": HEAP, "slower": slow, **found}))
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
