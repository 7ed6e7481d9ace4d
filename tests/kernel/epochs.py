"""A streaming query over a folder of files, one an epoch: what the tests of operators share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.flow import lateness
from millrace.kernel import clock
from millrace.testing.checkpoints import forget_commit

SECOND = 1_000_000


def put(folder: Path, number: int, rows: Iterable[dict[str, Any]]) -> None:
    """What epoch `number` reads. Spark takes files by their times."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:04}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def events(spark: SparkSession, folder: Path, schema: str, lag_s: int, files: str = "in") -> DataFrame:
    """The rows of the files, with a clock on their column `at`; `partition` says whose they are."""
    clock.install(spark)
    (folder / files).mkdir(exist_ok=True)
    read = spark.readStream.schema(f"{schema}, partition int").option("maxFilesPerTrigger", 1)
    own = clock.Clock(lag_s * 1_000, 0, folder=(folder / "clock").as_uri())
    seen = own.seen(F.col("partition"), F.col("at"), F.col("at"))
    return own.on(read.json(str(folder / files)).observe(f"clock {folder.name}", seen), "at").drop("partition")


def told(build: Callable[[], DataFrame]) -> tuple[DataFrame, DataFrame | None]:
    """What an operator gives, and all that it tells, late rows too; None where it counts no late rows."""
    inner: list[DataFrame] = []
    token = lateness.side.set(lambda build, _: build())
    counted = lateness._counted
    lateness._counted = lambda rows: inner.append(counted(rows)) or inner[-1]  # type: ignore[func-returns-value]
    try:
        return build(), inner[0] if inner else None
    finally:
        lateness.side.reset(token)
        lateness._counted = counted


def drained(rows: DataFrame, folder: Path, keep: Callable[[DataFrame, int], None]) -> list[Any]:
    """Reads all files, and gives Spark's reports. Spark itself must not have dropped a row."""
    query = (
        rows.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    reports: list[Any] = list(query.recentProgress)
    for report in reports:
        assert all(state["numRowsDroppedByWatermark"] == 0 for state in report["stateOperators"])
    return reports


def watermarks_ms(folder: Path) -> dict[int, int]:
    """Of each epoch that was begun."""
    return {number: json.loads(lines[1])["batchWatermarkMs"] for number, lines in _offsets(folder)}


def began_ms(folder: Path) -> dict[int, int]:
    """The time of day of each epoch that was begun; one that is done again has the same."""
    return {number: json.loads(lines[1])["batchTimestampMs"] for number, lines in _offsets(folder)}


def reached(folder: Path) -> dict[int, list[int]]:
    """Of each epoch that was begun, up to which file each source was read; -1 for none."""
    return {
        number: [-1 if line == "-" else json.loads(line)["logOffset"] for line in lines[2:]]
        for number, lines in _offsets(folder)
    }


def with_input(folder: Path) -> set[int]:
    """The epochs that read a file: the others only move time on."""
    found, last = set(), None
    for number, lines in _offsets(folder):
        if lines[2] != last:
            found.add(number)
        last = lines[2]
    return found


def _offsets(folder: Path) -> Iterator[tuple[int, list[str]]]:
    paths = (path for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit())
    for path in sorted(paths, key=lambda path: int(path.name)):
        yield int(path.name), path.read_text().splitlines()


def played(query: Any, parts: Sequence[Iterable[Any]], cut: int) -> None:
    """With a crash after the output of the last epoch before the cut. A part is what the query's `write` takes."""
    for number, part in enumerate(parts[:cut]):
        query.write(number, *part)
    query.run()
    forget_commit(query.folder / "checkpoint")
    for number, part in enumerate(parts[cut:], cut):
        query.write(number, *part)
    query.run()


def hopping(size_s: int, every_s: int) -> Callable[[int], list[tuple[int, int]]]:
    """The windows of a time."""
    size, every = size_s * SECOND, every_s * SECOND

    def edges(time: int) -> list[tuple[int, int]]:
        last = time - time % every
        starts = [last - back * every for back in range(size // every + 1)]
        return sorted((start, start + size) for start in starts if start <= time < start + size)

    return edges
