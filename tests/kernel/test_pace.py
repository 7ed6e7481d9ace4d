"""A backlog is read in epochs that grow while they are short; every record once, whatever the epochs."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace import config
from millrace.kernel import clock
from millrace.kernel.calling import operator
from millrace.testing.folder import FolderLog

pytestmark = pytest.mark.spark

RECORDS, FIRST = 2_000, 100


def epochs(spark: SparkSession, log: FolderLog, checkpoint: Path) -> list[int]:
    """Numbers of records, epoch by epoch, of a query that reads the topic and keeps nothing."""
    own = spark.newSession()
    clock.install(own)
    data = log.data_source
    options = {**data.options, "subscribe": "numbers", "maxOffsetsPerTrigger": str(FIRST)}
    rows = own.readStream.format(data.format).options(**options).load().select(F.col("offset"))
    sizes: list[int] = []

    def keep(batch: DataFrame, _: int) -> None:
        found = [row.offset for row in batch.collect()]
        assert sorted(found) == list(range(sum(sizes), sum(sizes) + len(found)))
        sizes.append(len(found))

    query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query.start().awaitTermination()
    return sizes


def test_epochs_grow_while_they_are_short(spark: SparkSession, tmp_path: Path) -> None:
    log = FolderLog(config.load(tmp_path), tmp_path / "log", "pace")
    log.topics.ensure("numbers", partitions=1)
    with log.writer("numbers") as writer:
        for number in range(RECORDS):
            writer.write({"n": number})
    sizes = epochs(spark, log, tmp_path / "checkpoint")
    assert sum(sizes) == RECORDS
    assert sizes[0] == FIRST
    # Offsets of the next epoch are chosen before the report of this one: each size is there twice at most.
    assert max(sizes) >= 4 * FIRST
    assert sizes[:-1] == sorted(sizes[:-1])


def test_sources_are_asked_in_the_order_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"topic{number}" for number in range(4)]
    log = FolderLog(config.load(tmp_path), tmp_path / "log", "pace")
    own = spark.newSession()
    clock.install(own)
    reader = own.readStream.format(log.data_source.format).options(**log.data_source.options)
    for name in names:
        log.topics.ensure(name)
    rows = functools.reduce(DataFrame.unionAll, [reader.option("subscribe", name).load() for name in names])
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for _ in range(3):
            for name in names:
                log.write(name, {"n": 1})
            query.processAllAvailable()
        asked = query._jsq.streamingQuery().uniqueSources().keys().toSeq().mkString(" ")
    finally:
        query.stop()
    assert asked.split() == [f"FolderLog[{name}]" for name in names]


@pytest.mark.parametrize(
    ("limit", "rows", "took_ms", "then"),
    [
        (50_000, 50_000, 1_000, 100_000),  # met, and soon done
        (200_000, 200_000, 1_000, 250_000),  # not more than the most
        (50_000, 50_000, 7_000, 50_000),  # as it should be
        (50_000, 100, 1_000, 50_000),  # it was not the limit that made it small
        (50_000, 50_000, 40_000, 12_500),  # too long: as many as would have taken what it should
        (50_000, 20_000, 40_000, 5_000),
        (50_000, 50_000, 9_000_000, 1_000),  # not less than the least
        (50_000, 10, 60_000, 50_000),  # what took long were not the rows
        (100, 100, 20_000, 100),
    ],
)
def test_the_next_limit(spark: SparkSession, limit: int, rows: int, took_ms: int, then: int) -> None:
    assert operator(spark, "Pace").next(limit, rows, took_ms) == then
