"""A stream enriched from a table that changes: how much, at what cost, as the table grows.

    python -m bench.enrich [--rows 1000000,10000000] [--events N]

First the table is read, all of it; then a backlog of events and one change of the table for every thousand of them (a
hundred a second beside a stream of 100,000). Rows a second are of whole epochs after the first one. Memory is what
Spark's process holds at most, RocksDB's included; state is what the checkpoint's store says it keeps. The cluster is on
paper: cores for 100,000 events/s at the CPU seconds that an event took here.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr
from bench.kernel import cpu_s
from bench.lookup import COLUMNS, PARTITIONS, SCHEMA, START_S
from bench.sides import full_epochs_from_the_first
from millrace import config, local
from millrace.engine.session import close, session
from millrace.engine.sources import Source
from millrace.engine.tables import TableSource
from millrace.log import Log

WANTED_PER_S = 100_000
EVENTS_A_CHANGE = 1_000


class Bench:
    def __init__(self, folder: Path, rows: int) -> None:
        found = config.load(folder)
        options = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
        self.settings = replace(found, spark=replace(found.spark, options=options))
        full_epochs_from_the_first()
        self.spark = session(self.settings, "local[2]", "bench")
        self.log, self.rows, self.name = Log(self.settings), rows, f"{rows}"
        for topic in (f"events{self.name}", f"customers{self.name}"):
            self.log.topics.create(topic, partitions=PARTITIONS)

    def change(self, numbers: DataFrame) -> None:
        """Writes rows of the table, whose ids these are."""
        row = F.to_json(F.struct("id", F.format_string("customer %d", "id").alias("name"), self._region()))
        value = F.concat(F.lit('{"before":null,"after":'), row, F.lit(',"op":"c"}'))
        key = F.format_string('{"id":%d}', "id")
        self._write(numbers.select(key.alias("key"), value.alias("value")), f"customers{self.name}")

    def happen(self, count: int) -> None:
        at = (F.lit(START_S) + F.col("id") / 5_000).cast("long")
        customer = (F.col("id") * 7919) % self.rows
        event = F.struct("id", customer.alias("customer"), (F.col("id") % 977).alias("amount"), at.alias("at"))
        rows = self.spark.range(0, count, 1, PARTITIONS).select(F.to_json(event).alias("value"))
        self._write(rows, f"events{self.name}")

    def read(self) -> tuple[list[Any], float, float]:
        """Reports of the epochs that read what is there, CPU seconds, and the most memory in MiB."""
        app, own = mr.App("bench"), self.spark.newSession()
        topic = app.topic(f"events{self.name}", SCHEMA, time="at", lateness="5 seconds", ahead=None)
        table = app.table(f"customers{self.name}", COLUMNS, key="id")
        events = Source.of(topic, self.log, "bench").stream(own)
        found = mr.lookup(events, TableSource.of(table, self.log, "bench").stream(own), on="customer")
        spent, most, process = cpu_s(), 0.0, self._process()
        query = (
            found.writeStream.format("noop")
            .option("checkpointLocation", str(self.settings.state_folder / f"checkpoint{self.name}"))
            .trigger(availableNow=True)
            .start()
        )
        while query.isActive:
            most = max(most, process.memory_info().rss / 2**20)
            time.sleep(0.5)
        query.awaitTermination()
        return [each for each in query.recentProgress if each.numInputRows], cpu_s() - spent, most

    def _region(self) -> Any:
        return F.format_string("r%d", F.col("id") % 20).alias("region")

    def _write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format("kafka").options(**self.log.data_source.options).option("topic", topic).save()

    def _process(self) -> psutil.Process:
        gateway: Any = SparkContext._gateway
        return psutil.Process(gateway.proc.pid)


def measured(folder: Path, rows: int, events: int) -> dict[str, float]:
    bench = Bench(folder, rows)
    bench.change(bench.spark.range(0, rows, 1, PARTITIONS))
    loading, loading_cpu_s, loading_mib = bench.read()
    bench.happen(events)
    bench.change(bench.spark.range(0, events // EVENTS_A_CHANGE).select((F.col("id") * 31 % rows).alias("id")))
    reports, spent_s, most = bench.read()
    close(bench.spark)
    later = reports[1:] or reports
    per_s = (
        sum(each.numInputRows for each in later) * 1_000 / sum(each.durationMs["triggerExecution"] for each in later)
    )
    loaded_s = sum(each.durationMs["triggerExecution"] for each in loading) / 1_000
    state = sum(each.memoryUsedBytes for each in reports[-1].stateOperators)
    files = sum(each.customMetrics.get("rocksdbSstFileSize", 0) for each in reports[-1].stateOperators)
    return {
        "events_per_s": round(per_s),
        "cpu_s_per_million": round(spent_s * 1e6 / events, 1),
        "cores_for_100000_per_s": round(spent_s / events * WANTED_PER_S, 1),
        "table_rows_per_s": round(rows / loaded_s),
        "table_cpu_s_per_million": round(loading_cpu_s * 1e6 / rows, 1),
        "most_mib": round(max(loading_mib, most)),
        "state_memory_mib": round(state / 2**20),
        "state_files_mib": round(files / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000000,10000000")
    parser.add_argument("--events", type=int, default=3_000_000)
    args = parser.parse_args()
    figures = {}
    for rows in map(int, args.rows.split(",")):
        with tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name:
            settings = config.load(Path(name))
            with local.held(settings, ("kafka",)):
                figures[f"{rows:,} rows"] = found = measured(Path(name), rows, args.events)
                local.down(settings)
        print(f"{rows:12,} rows: " + ", ".join(f"{key} {value:,}" for key, value in found.items()), flush=True)
    sizes = list(figures.values())
    ratios = {"largest_to_smallest": round(sizes[-1]["events_per_s"] / sizes[0]["events_per_s"], 2)}
    print(json.dumps({"bench": "enrich", "ratios": ratios, "figures": figures, "peer": "the same with a small table"}))


if __name__ == "__main__":
    main()
