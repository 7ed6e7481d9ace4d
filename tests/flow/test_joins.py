"""Streams joined within an interval are what the model says, over random times, cuts and a restart."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.errors import OptionInvalid
from millrace.flow.columns import WATERMARK
from millrace.flow.lateness import LATE_METRIC
from millrace.kernel import clock
from millrace.kernel import join as kernel
from millrace.model.joins import IntervalJoin, Row
from millrace.testing.checkpoints import forget_commit

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = int(datetime(2026, 3, 1, 14, tzinfo=UTC).timestamp())
SECOND = 1_000_000
SCHEMA = "key string, at timestamp, name string, partition int"


class Query:
    """Two or three folders of files, one file of each an epoch."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        third: tuple[str, str] | None = None,
        counts: bool = False,
        **given: Any,
    ) -> None:
        self.spark, self.folder, self.given, self.third = spark.newSession(), folder, given, third
        self.counts = counts
        self.told: dict[int, list[tuple[str | None, ...]]] = {}
        self.late: dict[int, int] = {}
        clock.install(self.spark)
        for side in ("left", "right", "third"):
            (folder / side).mkdir()

    def write(self, side: str, number: int, rows: list[Row]) -> None:
        path = self.folder / side / f"{number:04}.json"
        lines = [
            {
                "key": row.key,
                "at": (EPOCH + timedelta(microseconds=row.time)).isoformat(),
                "name": row.name,
                "partition": 0,
            }
            for row in rows
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def _frame(self, side: str) -> DataFrame:
        files = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.folder / side))
        own = clock.Clock(10_000, 0, folder=(self.folder / "clock" / side).as_uri())
        seen = own.seen(F.col("partition"), F.col("at"), F.col("at"))
        return own.on(files.observe(side, seen), "at").drop("partition")

    def run(self) -> None:
        joined = mr.join(self._frame("left"), self._frame("right"), on="key", **self.given)
        assert joined.columns == ["key", "at", "name", "right_at", "right_name"]
        if self.third:
            others = self._frame("third").withColumnsRenamed({"name": "third_name"})
            joined = mr.join(joined, others, on="key", within=self.third, times=("at", None), prefix="third_")
        if self.counts:
            counted: Any = {"emit": "final", "late": mr.late.drop(), "n": mr.count()}
            windows = mr.window(joined, "10 seconds", by="key", time="at", **counted)
            joined = windows.select("key", F.col("window_start").cast("long").cast("string"), F.col("n").cast("string"))
        query = (
            joined.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
            .foreachBatch(self._keep)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for report in query.recentProgress:
            dropped = sum(state["numRowsDroppedByWatermark"] for state in report["stateOperators"])
            told = report["observedMetrics"].items()
            refused = sum(row["refused"] for name, row in told if name.startswith(LATE_METRIC))
            self.late[report["batchId"]] = dropped + refused

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        names = ["name", "right_name", *(["third_name"] if self.third else [])]
        self.told[epoch] = [tuple(row) for row in (rows if self.counts else rows.select(names)).collect()]

    def watermarks(self) -> dict[int, int]:
        found = {}
        for path in (self.folder / "checkpoint" / "offsets").iterdir():
            if path.name.isdigit():
                found[int(path.name)] = json.loads(path.read_text().splitlines()[1])["batchWatermarkMs"] * 1_000
        return found


def made(draw: random.Random, number: int, side: str, late: bool) -> list[Row]:
    rows = []
    for place in range(60):
        behind = draw.choice((0, 0, 0, 4, 9, 200 if late else 9))
        time = (START + number * 20 + draw.randint(0, 19) - behind) * SECOND + draw.choice((0, 0, 1, 999_999))
        # Rows without a key join nothing, and Spark leaves them out before it counts late ones.
        key = draw.choice(["a" if late else None, *"abcdefgh"]) if draw.random() < 0.9 else f"{side}{place}"
        rows.append(Row(key, time, f"{side}-{number}-{place}"))
    return rows


@pytest.mark.parametrize(
    ("how", "within", "late"),
    [
        ("inner", ("0 s", "15 s"), True),
        ("inner", ("-12 s", "-2 s"), False),
        ("left", ("-5 s", "5 s"), True),
        ("full", ("2 s", "12 s"), False),
    ],
)
def test_pairs_and_rows_without_one(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    within: tuple[str, str],
    late: bool,
) -> None:
    # So little that some keys have several parts.
    monkeypatch.setattr(kernel, "MOST_INLINE", 200)
    monkeypatch.setattr(kernel, "MOST_TOGETHER", 300)
    draw = random.Random(how)
    query = Query(spark, tmp_path, within=within, how=how)
    parts = [(made(draw, number, "left", late), made(draw, number, "right", late)) for number in range(6)]
    last = [Row("end", (START + 3600) * SECOND, "end-left")], [Row("fin", (START + 3600) * SECOND, "end-right")]
    for begin, end in ((0, 3), (3, 7)):  # with a restart between
        for number, (left, right) in enumerate([*parts, last][begin:end], begin):
            query.write("left", number, left)
            query.write("right", number, right)
        query.run()
        if begin == 0:  # as if it had ended after the results and before the commit
            forget_commit(tmp_path / "checkpoint")

    first_us, last_us = (int(each.split()[0]) * SECOND for each in within)
    model, watermarks, before, todo = IntervalJoin(first_us, last_us), query.watermarks(), 0, [*parts, last]
    found: list[tuple[str | None, ...]] = []
    for epoch in sorted(query.told):
        found += query.told[epoch]
        if todo:
            # Spark's own looks at the watermark of the epoch before, and whether it has reached a row.
            model.epoch(*todo.pop(0), late_before=watermarks[epoch] if how == "inner" else before and before + 1)
        before = watermarks[epoch]
    expected: list[tuple[str | None, ...]] = [(one.name, two.name) for one, two in model.pairs()]
    left, right = model.alone(before)
    expected += [(row.name, None) for row in left] if how != "inner" else []
    expected += [(None, row.name) for row in right] if how == "full" else []
    assert Counter(found) == Counter(expected)
    assert len(expected) > 50
    assert (model.late > 0) == late
    assert sum(query.late.values()) == model.late


def test_a_row_is_kept_while_the_watermark_is_at_its_last_moment(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, within=("0 s", "15 s"))
    at = [(START + second) * SECOND for second in (0, 15, 25)]
    parts = [
        ([Row("a", at[0], "first")], []),
        ([Row("b", at[2], "newest")], [Row("b", at[2], "newest")]),  # the watermark is 10 s behind them
        ([Row("a", at[1], "touched")], []),
        ([], [Row("a", at[1], "met")]),
    ]
    for number, (left, right) in enumerate(parts):
        query.write("left", number, left)
        query.write("right", number, right)
    query.run()
    found = Counter(row for rows in query.told.values() for row in rows)
    assert found == Counter([("newest", "newest"), ("first", "met"), ("touched", "met")])
    assert sum(query.late.values()) == 0


def test_three_streams_around_one_of_them(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MOST_INLINE", 200)
    monkeypatch.setattr(kernel, "MOST_TOGETHER", 300)
    draw = random.Random("three")
    # So long after the first stream that rows of the third are kept for rows of the second that come after them.
    query = Query(spark, tmp_path, within=("-3 s", "9 s"), third=("-12 s", "2 s"))
    sides = ("left", "right", "third")
    parts = [[made(draw, number, side, True)[:30] for side in sides] for number in range(5)]
    for begin, end in ((0, 3), (3, 5)):
        for number in range(begin, end):
            for side, rows in zip(sides, parts[number], strict=True):
                query.write(side, number, rows)
        query.run()
        if begin == 0:
            forget_commit(tmp_path / "checkpoint")

    two, three = IntervalJoin(-3 * SECOND, 9 * SECOND), IntervalJoin(-12 * SECOND, 2 * SECOND)
    watermarks, todo, found = query.watermarks(), list(parts), []
    for epoch in sorted(query.told):
        found += query.told[epoch]
        if todo:
            left, right, third = todo.pop(0)
            two.epoch(left, right, watermarks[epoch])
            three.epoch(left, third, watermarks[epoch])
    expected = [(a.name, b.name, d.name) for a, b in two.pairs() for c, d in three.pairs() if a is c]
    assert Counter(found) == Counter(expected)
    assert len(expected) > 50
    assert two.late > 0


def test_what_stands_behind_a_join_waits_for_pairs_that_are_older_than_the_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    draw = random.Random("behind")
    query = Query(spark, tmp_path, within=("0 s", "30 s"), counts=True)
    last = [Row("end", (START + 3600) * SECOND, "end")]
    parts = [*((made(draw, n, "left", False), made(draw, n, "right", False)) for n in range(6)), (last, last)]
    for begin, end in ((0, 4), (4, 7)):
        for number, (left, right) in enumerate(parts[begin:end], begin):
            query.write("left", number, left)
            query.write("right", number, right)
        query.run()
        if begin == 0:
            forget_commit(tmp_path / "checkpoint")

    model = IntervalJoin(0, 30 * SECOND)
    for left, right in parts:
        model.epoch(left, right, 0)
    counts = Counter((one.key, one.time // (10 * SECOND) * 10) for one, _ in model.pairs() if one.key != "end")
    expected = [(key, str(window), str(n)) for (key, window), n in counts.items()]
    assert Counter(row for rows in query.told.values() for row in rows) == Counter(expected)
    assert sum(query.late.values()) == 0
    assert len(expected) > 50


def test_the_impression_and_the_click(spark: SparkSession) -> None:
    at = datetime(2026, 1, 1, 14, 0, 5, tzinfo=UTC)
    rows: list[Any] = [("ad-1", at)]
    clicked: list[Any] = [("ad-1", at.replace(minute=7, second=33)), ("ad-1", at.replace(hour=15))]
    impressions = spark.createDataFrame(rows, "ad string, shown timestamp")
    clicks = spark.createDataFrame(clicked, "ad string, clicked timestamp")
    (pair,) = mr.join(impressions, clicks, on="ad", within=("0 s", "30 minutes")).collect()
    assert pair.clicked - pair.shown == timedelta(minutes=7, seconds=28)


def test_behind_a_join_one_of_its_times_counts_because_spark_takes_one_a_side(spark: SparkSession) -> None:
    def rows(time: str) -> DataFrame:
        ticks = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
        return ticks.select(F.col("value").alias("ad"), F.col("timestamp").alias(time))

    within = ("0 s", "1 s")
    pairs = mr.join(rows("shown"), rows("clicked"), on="ad", within=within)
    three = mr.join(pairs, rows("bought"), on="ad", within=within, times=("clicked", None))
    assert [field.name for field in three.schema if WATERMARK in field.metadata] == ["clicked", "bought"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"within": None}, "for ever"),
        ({"within": ("5 s", "1 s")}, "earlier one first"),
        ({"within": ("0 s", "1 s"), "how": "outer"}, '"full"'),
        ({"within": ("0 s", "1 s"), "on": "user"}, "both streams"),
        ({"within": ("0 s", "1 s"), "prefix": "my_"}, "another one"),
        ({"within": ("0 s", "1 s"), "late": mr.late.side("late")}, "gives them to nobody"),
    ],
)
def test_what_cannot_be_joined(spark: SparkSession, given: dict[str, Any], says: str) -> None:
    rows: list[Any] = [("a", EPOCH)]
    frame = spark.createDataFrame(rows, "ad string, at timestamp").withColumn("my_at", F.lit(1))
    with pytest.raises(OptionInvalid, match=says):
        mr.join(frame, frame, **{"on": "ad", **given})
