"""The lakehouse: what a version costs over the bare files.

    python -m bench.lake [--rows N] [--churn F] [--rounds N] [--formats delta,iceberg]
    python -m bench.lake --freshness [--rate N] [--seconds N]       (lake_freshness.py)

- **append**: an epoch of so many rows into a table, against Spark's own Parquet writer with the same rows.
- **upsert**: epochs in which a part of the rows changes, keys drawn at random, against `deltalake`'s merge with the
  same changes in memory, and against Spark writing the whole table again.
- **query**: DuckDB over the table after that, against DuckDB over the same rows in plain Parquet files.

The sides take turns; the first round warms up. What each one holds is checked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.lake_freshness import freshness
from millrace import config, local
from millrace.config import Settings
from millrace.engine.session import close, session
from millrace.lakehouse import Catalog
from millrace.lakehouse.asking import connected, words
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Writer
from millrace.sinks.lake import lake

CORES = 2
QUERIES = (
    "SELECT region, count(*), sum(amount), max(placed) FROM {} GROUP BY region",
    "SELECT count(*), sum(amount) FROM {} WHERE id BETWEEN 1000 AND 2000",
    "SELECT sum(hash(id, region, name, amount, placed)) FROM {}",
)
_numbers = count(1)


class Bench:
    def __init__(self, settings: Settings, folder: Path, rows: int, churn: float) -> None:
        self.settings, self.folder, self.rows, self.changed = settings, folder, rows, int(rows * churn)
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

    # ---- append

    def append_ours(self, kind: Any) -> float:
        sink = lake(f"append{next(_numbers)}", format=kind)
        rows = self.held(self.made(self.rows))
        feed = Feed(self.made(1).schema)
        writer = sink.open(self.settings, "bench", feed, self.folder / sink.name)
        self.written(writer, 0, rows)  # the first epoch of a writer counts its rows
        spent_s = self.written(writer, 1, rows)
        writer.close()
        with Catalog(self.settings).opened(sink.table) as table:
            assert sum(each.rows for each in table.files()) == 2 * self.rows
            shutil.rmtree(table.folder)
        rows.unpersist()
        return round(self.rows / spent_s)

    def append_bare(self) -> float:
        rows = self.held(self.made(self.rows))
        place = self.folder / f"bare{next(_numbers)}"
        began = monotonic()
        rows.drop(DIFF, VERSION).write.parquet(f"file://{place}")
        spent_s = monotonic() - began
        shutil.rmtree(place)
        rows.unpersist()
        return round(self.rows / spent_s)

    def written(self, writer: Writer, number: int, rows: DataFrame) -> float:
        began = monotonic()
        writer.write(Epoch("bench", number, f"[{number}]"), rows, lambda refused: sys.exit(f"{refused[0]} is refused"))
        return monotonic() - began

    # ---- upsert

    def upsert_ours(self, kind: Any, rounds: int) -> tuple[list[float], str]:
        """Changes a second of each epoch, and the table's name."""
        sink = lake(f"upsert{next(_numbers)}", format=kind, key="id")
        writer = sink.open(self.settings, "bench", Feed(self.made(1).schema, ("id",), True), self.folder / sink.name)
        self.written(writer, 0, self.held(self.made(self.rows)))
        found = []
        for number in range(1, rounds + 2):
            rows = self.held(self.made(self.changed, number, drawn=True))
            found.append(rows.count() / self.written(writer, number, rows))
            rows.unpersist()
        writer.close()
        with Catalog(self.settings).opened(sink.table) as table:
            assert sum(each.rows for each in table.files()) == self.rows
        return found[1:], sink.table

    def upsert_merge(self, rounds: int) -> list[float]:
        """`deltalake`'s own, whose changes are in memory."""
        import pyarrow
        from deltalake import DeltaTable, write_deltalake

        place = self.folder / f"merge{next(_numbers)}"
        write_deltalake(str(place), self.arrow(self.made(self.rows)))
        found = []
        for number in range(1, rounds + 2):
            changes = self.arrow(self.made(self.changed, number, drawn=True))
            table, began = DeltaTable(str(place)), monotonic()
            merge = table.merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
            found.append(changes.num_rows / (monotonic() - began))
        assert pyarrow.table(DeltaTable(str(place)).to_pyarrow_table()).num_rows == self.rows
        shutil.rmtree(place)
        return found[1:]

    def upsert_rewritten(self, rounds: int) -> list[float]:
        """Spark writes everything again."""
        place, found = self.folder / f"whole{next(_numbers)}", []
        self.made(self.rows).write.parquet(f"file://{place}")
        for number in range(1, rounds + 2):
            rows = self.held(self.made(self.changed, number, drawn=True))
            changed, began = rows.count(), monotonic()
            after = self.folder / f"whole{next(_numbers)}"
            new = rows.drop(DIFF, VERSION)
            old = self.spark.read.parquet(f"file://{place}").join(new.select("id"), "id", "left_anti")
            old.select(*new.columns).unionByName(new).write.parquet(f"file://{after}")
            shutil.rmtree(place)
            place = after
            found.append(changed / (monotonic() - began))
            rows.unpersist()
        shutil.rmtree(place)
        return found[1:]

    def arrow(self, rows: DataFrame) -> Any:
        from pyarrow import parquet

        place = self.folder / f"arrow{next(_numbers)}"
        self.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows.write.parquet(f"file://{place}")
        found = parquet.read_table(place)
        shutil.rmtree(place)
        return found

    # ---- query

    def queries(self, table: str, rounds: int) -> tuple[float, float]:
        """Milliseconds for all queries over the table, and over the same rows in plain files."""
        with Catalog(self.settings).opened(table) as opened:
            scan = words(opened)
        plain = self.folder / f"plain{next(_numbers)}"
        plain.mkdir()
        with connected() as connection:
            files = f"(SELECT * EXCLUDE (__version) FROM {scan})"
            connection.execute(f"COPY {files} TO '{plain}' (FORMAT parquet, PER_THREAD_OUTPUT true)")
            ways = {"table": scan, "plain": f"read_parquet('{plain}/*.parquet')"}
            times: dict[str, list[float]] = {way: [] for way in ways}
            answers: dict[str, list[Any]] = {}
            for _ in range(rounds + 1):
                for way, source in ways.items():
                    began = monotonic()
                    told = [sorted(map(str, connection.sql(query.format(source)).fetchall())) for query in QUERIES[1:]]
                    connection.sql(QUERIES[0].format(source)).to_arrow_table()
                    times[way].append(1000 * (monotonic() - began))
                    answers[way] = told
        assert answers["table"] == answers["plain"]
        shutil.rmtree(plain)
        return statistics.median(times["table"][1:]), statistics.median(times["plain"][1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--churn", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", default="delta,iceberg")
    parser.add_argument("--freshness", action="store_true")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    formats = args.formats.split(",")
    if args.freshness:
        found = freshness(formats, args.rate, args.seconds)
        under = {f"freshness_{kind}_under_15_s": round(15 / told["p99_s"], 2) for kind, told in found.items()}
        print(json.dumps({"bench": "lake", "ratios": under, "figures": found, "peer": "15 s"}))
        return
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        settings = config.load(Path(name))
        servers = ("postgres",) if "iceberg" in formats else ()
        with local.held(settings, servers):
            bench = Bench(settings, Path(name), args.rows, args.churn)
            _append(bench, formats, args.rounds, ratios, figures)
            _upsert(bench, formats, args.rounds, ratios, figures)
            close(bench.spark)
    told = {"bench": "lake", "ratios": ratios, "figures": figures, "peer": "Spark's Parquet writer, deltalake, DuckDB"}
    print(json.dumps(told))


def _append(bench: Bench, formats: list[str], rounds: int, ratios: dict[str, float], figures: dict[str, float]) -> None:
    sides: dict[str, Callable[[], float]] = {"bare": bench.append_bare}
    for each in formats:
        sides[each] = lambda each=each: bench.append_ours(each)  # type: ignore[misc]
    seen: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds + 1):
        for side, run in sides.items():
            seen[side].append(run())
    for side, found in seen.items():
        figures[f"append_{side}_rows_s"] = statistics.median(found[1:])
        print(f"append {side:8} {found[1:]} rows/s")
    for each in formats:
        ratios[f"append_{each}"] = round(figures[f"append_{each}_rows_s"] / figures["append_bare_rows_s"], 2)


def _upsert(bench: Bench, formats: list[str], rounds: int, ratios: dict[str, float], figures: dict[str, float]) -> None:
    seen = {"merge": bench.upsert_merge(rounds), "rewritten": bench.upsert_rewritten(rounds)}
    for each in formats:
        seen[each], table = bench.upsert_ours(each, rounds)
        ours, plain = bench.queries(table, rounds)
        figures |= {f"query_{each}_ms": round(ours), f"query_{each}_plain_ms": round(plain)}
        ratios[f"query_{each}"] = round(ours / plain, 2)
        print(f"query  {each:8} {ours:.0f} ms, plain Parquet {plain:.0f} ms")
    for side, found in seen.items():
        figures[f"upsert_{side}_rows_s"] = round(statistics.median(found))
        print(f"upsert {side:9} {[round(each) for each in found]} changes/s")
    for each in formats:
        for peer in ("merge", "rewritten"):
            ratios[f"upsert_{each}_to_{peer}"] = round(statistics.median(seen[each]) / statistics.median(seen[peer]), 2)


if __name__ == "__main__":
    main()
