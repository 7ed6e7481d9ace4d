"""The lakehouse: what a version costs over the bare files.

    python -m bench.lake [--rows N] [--churn F] [--churn-epochs N] [--rounds N] [--formats delta,iceberg] [--appends]
    python -m bench.lake --freshness [--rate N] [--seconds N] [--every "2 seconds"]      (lake_freshness.py)

- **append**: an epoch of so many rows into a table, against Spark's own Parquet writer with the same rows, as it is and
  with the options that ours are written with; and where our time goes. One writer for all rounds, from its third epoch
  on and without compaction: what is done beside the epochs has no part in it.
- **upsert**: epochs in which a part of the rows changes, keys drawn at random, against `deltalake`'s merge with the
  same changes in memory, and against Spark writing the whole table again. With `--churn-epochs` the changes of a round
  come in so many epochs: 1 % a minute, a version every 5 seconds, is `--churn 0.01 --churn-epochs 12`. It is kept up
  with where 12 epochs take less than a minute (`upsert_…_round_s`). What is written again whole is so once a round.
- **query**: DuckDB over the table after that, against DuckDB over the same rows in plain Parquet files.

The sides take turns; the first round warms up. What each one holds is checked. Appends and queries are also told by the
CPU time that they took, of this process and its JVM: on a machine with other work the clock says little.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.lake_freshness import freshness
from bench.lake_split import Split
from millrace import config, local
from millrace.config import Settings
from millrace.engine.session import close, session
from millrace.lakehouse import Catalog
from millrace.lakehouse.asking import connected, words
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Writer, lake_files
from millrace.sinks.lake import lake

CORES = 2
# That what a writer does after its first epoch may take.
LIMIT_S = 300.0
QUERIES = (
    "SELECT region, count(*), sum(amount), max(placed) FROM {} GROUP BY region",
    "SELECT count(*), sum(amount) FROM {} WHERE id BETWEEN 1000 AND 2000",
    "SELECT sum(hash(id, region, name, amount, placed)) FROM {}",
)
# Epochs of a writer that appends: the first has work done beside it, by the second it knows its rows.
_UNTIMED = 2
_numbers = count(1)
Spent = tuple[int, float]


class Bench:
    def __init__(self, settings: Settings, folder: Path, rows: int, changed: int) -> None:
        """`changed` are the changes of an epoch."""
        self.settings, self.folder, self.rows, self.changed = settings, folder, rows, changed
        self.spark: SparkSession = session(settings, f"local[{CORES}]", "bench")

    def made(self, rows: int, seed: int = 0, *, drawn: bool = False) -> DataFrame:
        """Rows with keys from 0 on; or as many with keys drawn at random."""
        ids = self.spark.range(0, rows, 1, CORES)
        if drawn:
            ids = ids.select((F.hash(F.col("id"), F.lit(seed)) % self.rows).alias("id"))
            ids = ids.select(F.abs("id").cast("long").alias("id")).distinct().coalesce(CORES)
        return ids.selectExpr(
            "id",
            "concat('r', id % 50) AS region",
            f"concat('customer ', hash(id, {seed})) AS name",
            f"CAST(abs(hash(id, {seed}, 1)) % 1000000 / 100 AS DECIMAL(12,2)) AS amount",
            "timestamp_seconds(1767225600 + id) AS placed",
        )

    def held(self, rows: DataFrame) -> DataFrame:
        found = rows.withColumn(DIFF, F.lit(1)).withColumn(VERSION, F.lit(1).cast("long")).persist()
        found.count()
        return found

    def cpu_s(self) -> float:
        """That this process and its JVM have used."""
        jvm: Any = self.spark._jvm
        told = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat").read_text().rpartition(")")[2].split()
        return process_time() + (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")

    # ---- append: rows a second, by the clock and by CPU time

    def append_ours(self, kind: Any, split: Split) -> Generator[tuple[float, float], None, None]:
        sink = lake(f"append_{kind}", format=kind, compact=False)
        writer = sink.open(self.settings, "bench", Feed(self.made(1).schema), self.folder / sink.name)
        number = -1
        try:
            for number in count():
                rows = self.held(self.made(self.rows))
                if number < _UNTIMED:
                    self.written(writer, number, rows)
                    self.quiet(writer)
                    rows.unpersist()
                    continue
                cpu_s = self.cpu_s()
                with split.measuring():
                    spent_s = self.written(writer, number, rows)
                cpu_s = self.cpu_s() - cpu_s
                rows.unpersist()
                yield round(self.rows / spent_s), round(self.rows / cpu_s)
        finally:
            writer.close()
            with Catalog(self.settings).opened(sink.table) as table:
                assert sum(each.rows for each in table.files()) == (number + 1) * self.rows
                shutil.rmtree(table.folder)

    def quiet(self, writer: Writer) -> None:
        """Waits for what the first epoch made due beside it: older versions are let go, which Iceberg commits. Within
        the hour nothing more is."""
        deadline = monotonic() + LIMIT_S
        while "history_bytes" not in writer.figures():
            assert monotonic() < deadline, "the keeper has not come to its end"
            sleep(0.1)

    def append_bare(self, *, ours: bool = False) -> tuple[float, float]:
        """With `ours`, the options by which our own files are written."""
        rows = self.held(self.made(self.rows))
        place = self.folder / f"bare{next(_numbers)}"
        began, cpu_s = monotonic(), self.cpu_s()
        with lake_files.set_for_files(rows) if ours else contextlib.nullcontext():
            writer = rows.drop(DIFF, VERSION).write.options(**lake_files._WRITING if ours else {})
            writer.parquet(f"file://{place}")
        spent_s, cpu_s = monotonic() - began, self.cpu_s() - cpu_s
        shutil.rmtree(place)
        rows.unpersist()
        return round(self.rows / spent_s), round(self.rows / cpu_s)

    def written(self, writer: Writer, number: int, rows: DataFrame) -> float:
        ranges = f'[{{"bench":{{"0":[{number * self.rows},{(number + 1) * self.rows}]}}}}]'
        began = monotonic()
        writer.write(Epoch("bench", number, ranges), rows, lambda refused: sys.exit(f"{refused[0]} is refused"))
        return monotonic() - began

    # ---- upsert

    # Each of them gives changes and seconds, epoch by epoch: the sides take turns.

    def upsert_ours(self, kind: Any) -> Generator[Spent, None, None]:
        sink = lake(f"upsert_{kind}", format=kind, key="id")
        writer = sink.open(self.settings, "bench", Feed(self.made(1).schema, ("id",), True), self.folder / sink.name)
        first = self.held(self.made(self.rows))
        self.written(writer, 0, first)
        first.unpersist()
        self.quiet(writer)
        try:
            for number in count(1):
                rows = self.held(self.made(self.changed, number, drawn=True))
                spent = rows.count(), self.written(writer, number, rows)
                rows.unpersist()
                yield spent
        finally:
            writer.close()
            with Catalog(self.settings).opened(sink.table) as table:
                assert sum(each.rows for each in table.files()) == self.rows

    def upsert_merge(self) -> Generator[Spent, None, None]:
        """`deltalake`'s own, whose changes are in memory."""
        import pyarrow
        from deltalake import DeltaTable, write_deltalake

        place = self.folder / f"merge{next(_numbers)}"
        write_deltalake(str(place), self.arrow(self.made(self.rows)))
        try:
            for number in count(1):
                changes = self.arrow(self.made(self.changed, number, drawn=True))
                table, began = DeltaTable(str(place)), monotonic()
                merge = table.merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
                yield changes.num_rows, monotonic() - began
        finally:
            assert pyarrow.table(DeltaTable(str(place)).to_pyarrow_table()).num_rows == self.rows
            shutil.rmtree(place)

    def upsert_rewritten(self) -> Generator[Spent, None, None]:
        """Spark writes everything again."""
        place = self.folder / f"whole{next(_numbers)}"
        self.made(self.rows).write.parquet(f"file://{place}")
        for number in count(1):
            rows = self.held(self.made(self.changed, number, drawn=True))
            changed, began = rows.count(), monotonic()
            after = self.folder / f"whole{next(_numbers)}"
            new = rows.drop(DIFF, VERSION)
            old = self.spark.read.parquet(f"file://{place}").join(new.select("id"), "id", "left_anti")
            old.select(*new.columns).unionByName(new).write.parquet(f"file://{after}")
            shutil.rmtree(place)
            place = after
            spent_s = monotonic() - began
            rows.unpersist()
            yield changed, spent_s

    def arrow(self, rows: DataFrame) -> Any:
        from pyarrow import parquet

        place = self.folder / f"arrow{next(_numbers)}"
        self.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows.write.parquet(f"file://{place}")
        found = parquet.read_table(place)
        shutil.rmtree(place)
        return found

    # ---- query

    def queries(self, table: str, rounds: int) -> dict[str, tuple[float, float]]:
        """Milliseconds for all queries over the table, and over the same rows in plain files; and of CPU time."""
        with Catalog(self.settings).opened(table) as opened:
            scan = words(opened)
        plain = self.folder / f"plain{next(_numbers)}"
        plain.mkdir()
        with connected() as connection:
            files = f"(SELECT * EXCLUDE (__version) FROM {scan})"
            connection.execute(f"COPY {files} TO '{plain}' (FORMAT parquet, PER_THREAD_OUTPUT true)")
            ways = {"table": scan, "plain": f"read_parquet('{plain}/*.parquet')"}
            times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            answers: dict[str, list[Any]] = {}
            for _ in range(rounds + 1):
                for way, source in ways.items():
                    began, cpu_s = monotonic(), process_time()
                    told = [sorted(map(str, connection.sql(query.format(source)).fetchall())) for query in QUERIES[1:]]
                    connection.sql(QUERIES[0].format(source)).to_arrow_table()
                    times[way].append((1000 * (monotonic() - began), 1000 * (process_time() - cpu_s)))
                    answers[way] = told
        assert answers["table"] == answers["plain"]
        shutil.rmtree(plain)
        return {way: _medians(found[1:]) for way, found in times.items()}


def _medians(found: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(each for each, _ in found), statistics.median(each for _, each in found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--churn", type=float, default=0.01)
    parser.add_argument("--churn-epochs", type=int, default=1, help="in so many epochs the changes of a round come")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", default="delta,iceberg")
    parser.add_argument("--appends", action="store_true", help="nothing but these")
    parser.add_argument("--freshness", action="store_true")
    parser.add_argument("--every", help="of freshness: also with versions so far apart, beside the usual 5 seconds")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    formats = args.formats.split(",")
    if args.freshness:
        found = freshness(formats, args.rate, args.seconds, [None, *([args.every] if args.every else [])])
        under = {f"freshness_{kind}_under_15_s": round(15 / told["p99_s"], 2) for kind, told in found.items()}
        print(json.dumps({"bench": "lake", "ratios": under, "figures": found, "peer": "15 s"}))
        return
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        settings = config.load(Path(name))
        servers = ("postgres",) if "iceberg" in formats else ()
        with local.held(settings, servers):
            bench = Bench(settings, Path(name), args.rows, int(args.rows * args.churn / args.churn_epochs))
            _append(bench, formats, args.rounds, ratios, figures)
            if not args.appends:
                _upsert(bench, formats, args.rounds, args.churn_epochs, ratios, figures)
            close(bench.spark)
    told = {"bench": "lake", "ratios": ratios, "figures": figures, "peer": "Spark's Parquet writer, deltalake, DuckDB"}
    print(json.dumps(told))


def _append(bench: Bench, formats: list[str], rounds: int, ratios: dict[str, float], figures: dict[str, float]) -> None:
    sides: dict[str, Callable[[], tuple[float, float]]] = {"bare": bench.append_bare}
    sides["bare_our_options"] = lambda: bench.append_bare(ours=True)
    splits = {each: Split() for each in formats}
    ours = {each: bench.append_ours(each, splits[each]) for each in formats}
    sides |= {each: run.__next__ for each, run in ours.items()}
    seen: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for _ in range(rounds + 1):
        for side, run in sides.items():
            seen[side].append(run())
    for run_of in ours.values():
        run_of.close()
    for side, found in seen.items():
        figures[f"append_{side}_rows_s"], figures[f"append_{side}_rows_cpu_s"] = _medians(found[1:])
        print(f"append {side:16} {found[1:]} rows/s by the clock and by CPU time", flush=True)
    for each in formats:
        spent_ms = splits[each].medians_ms()
        figures |= {f"append_{each}_{part}_ms": part_ms for part, part_ms in spent_ms.items()}
        print(f"append {each:16} ms of an epoch: {spent_ms}", flush=True)
        for by in ("s", "cpu_s"):
            told = figures[f"append_{each}_rows_{by}"] / figures[f"append_bare_rows_{by}"]
            ratios[f"append_{each}" + ("_cpu" if by == "cpu_s" else "")] = round(told, 2)


def _upsert(
    bench: Bench, formats: list[str], rounds: int, epochs: int, ratios: dict[str, float], figures: dict[str, float]
) -> None:
    sides = {"merge": bench.upsert_merge(), "rewritten": bench.upsert_rewritten()}
    sides |= {each: bench.upsert_ours(each) for each in formats}
    seen: dict[str, list[float]] = {side: [] for side in sides}
    spent_s: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, run in sides.items():
            spent = [next(run) for _ in range(1 if side == "rewritten" else epochs)]
            if number:  # the first warms up
                seen[side].append(sum(changes for changes, _ in spent) / sum(seconds for _, seconds in spent))
                spent_s[side].append(sum(seconds for _, seconds in spent))
    for run in sides.values():
        run.close()
    for each in formats:
        told = bench.queries(f"upsert_{each}", rounds)
        (ours, ours_cpu), (plain, plain_cpu) = told["table"], told["plain"]
        figures |= {f"query_{each}_ms": round(ours), f"query_{each}_plain_ms": round(plain)}
        ratios |= {f"query_{each}": round(ours / plain, 2), f"query_{each}_cpu": round(ours_cpu / plain_cpu, 2)}
        print(f"query  {each:8} {ours:.0f} ms, plain Parquet {plain:.0f} ms; of CPU {ours_cpu:.0f}, {plain_cpu:.0f} ms")
    for side, found in seen.items():
        figures[f"upsert_{side}_rows_s"] = round(statistics.median(found))
        figures[f"upsert_{side}_round_s"] = round(statistics.median(spent_s[side]), 2)
        rounds_s = [round(each, 2) for each in spent_s[side]]
        print(f"upsert {side:9} {[round(each) for each in found]} changes/s, rounds of {rounds_s} s")
    for each in formats:
        for peer in ("merge", "rewritten"):
            ratios[f"upsert_{each}_to_{peer}"] = round(statistics.median(seen[each]) / statistics.median(seen[peer]), 2)


if __name__ == "__main__":
    main()
