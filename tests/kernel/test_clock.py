"""The clock on Spark is the model: random partitions, times, silences and restarts; and without it, rows are late."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.kernel import clock as kernel
from millrace.kernel import times
from millrace.model import clock as model
from millrace.model.clock import Event
from tests.rotation import seeded

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_US = 1_700_000_000_000_000
SCHEMA = "partition int, at timestamp, arrival timestamp"


class Query:
    """One file an epoch; an aggregate keeps the watermark of each epoch, which is known in the one after."""

    def __init__(self, spark: SparkSession, folder: Path, clock: kernel.Clock) -> None:
        self.spark, self.folder, self.clock = spark.newSession(), folder, clock
        self.watermarks: dict[int, int] = {}
        kernel.install(self.spark)
        (folder / "in").mkdir()

    def write(self, number: int, events: list[Event]) -> None:
        path = self.folder / "in" / f"{number:04}.json"
        lines = [
            {"partition": each.partition, "at": shown(each.time_us), "arrival": shown(each.arrival_us)}
            for each in events
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(self) -> None:
        files = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder / "in"))
        seen = self.clock.seen(F.col("partition"), F.col("at"), F.col("arrival"))
        rows = self.clock.on(files.observe("clock", seen).where("at is not null"), "at")
        query = (
            rows.groupBy(F.window("at", "1 hour"))
            .count()
            .writeStream.format("noop")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .outputMode("update")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for line in (self.folder / "checkpoint" / "offsets").iterdir():
            if line.name.isdigit():
                self.watermarks[int(line.name)] = json.loads(line.read_text().splitlines()[1])["batchWatermarkMs"]


def shown(time_us: int | None) -> str | None:
    return None if time_us is None else (EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_watermark_is_the_models_epoch_by_epoch(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw = seeded(f"clock {seed}")
    kinds = [{"lag_ms": 5_000}, {"lag_ms": 0, "quantile": 0.9, "most_ms": 60_000, "margin_ms": 500}, {"lag_ms": 0}]
    settings = {**kinds[seed % 3], "idle_ms": 20_000}
    times.set_now(spark, "model", 1)
    clock = kernel.Clock(**settings, time="model", folder=(tmp_path / "clock").as_uri())
    query = Query(spark, tmp_path, clock)
    epochs = [made(draw, number) for number in range(12)]
    for number, events in enumerate(epochs[:6]):
        query.write(number, events)
    query.run()
    for number, events in enumerate(epochs[6:], 6):
        query.write(number, events)
    query.run()

    twin = model.Clock(**settings)
    expected = [twin.epoch(events, now_ms=1) or 0 for events in epochs]
    # An epoch's watermark is told with the next one; those without data, which close windows, come in between.
    told = sorted(set(query.watermarks.values()))
    assert told == sorted({0, *expected})
    assert len(told) > 4


def made(draw: random.Random, number: int) -> list[Event]:
    """Three partitions, one far behind; now and then one is silent, or has only records that are no events."""
    events = []
    for partition, behind_s in ((0, 0), (1, 10), (2, 900)):
        if (number and draw.random() < 0.2) or (partition, number) == (
            2,
            6,
        ):  # the slowest one is silent after the restart
            continue
        for _ in range(draw.randint(1, 30)):
            arrival = START_US + (number * 60 + draw.randint(0, 59)) * 1_000_000 + draw.randint(0, 999_999)
            time = arrival - behind_s * 1_000_000 - int(draw.expovariate(1 / 2_000_000))
            events.append(Event(partition, None if draw.random() < 0.1 else time, arrival))
    return events
