"""`mr.dedup` against its model, epoch by epoch, with a crash and a restart in between."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import millrace as mr
from millrace.errors import OptionInvalid
from millrace.flow.late import Late
from millrace.kernel import told
from millrace.model.dedup import ByArrival, Dedup, Epoch, Row
from millrace.testing.checkpoints import forget_commit
from tests.kernel import epochs
from tests.kernel.epochs import drained, events, put, watermarks_ms, with_input
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

SCHEMA = "key string, other int, at timestamp, id long"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
TTL_S, LAG_S = 40, 10
POLICIES = {"drop": mr.late.drop(), "allow": mr.late.allow("20 seconds"), "side": mr.late.side("aside")}


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def write(folder: Path, number: int, rows: list[Row]) -> None:
    lines = []
    for row in rows:
        at = (EPOCH + timedelta(microseconds=row.time)).isoformat(timespec="microseconds")
        lines.append({"key": row.key[0], "other": row.key[1], "at": at, "id": row.value, "partition": 0})
    put(folder / "in", number, lines)


class Query:
    def __init__(self, spark: SparkSession, folder: Path, policy: Late) -> None:
        self.spark, self.folder, self.policy = spark.newSession(), folder, policy
        self.epochs: dict[int, Epoch] = {}

    def write(self, number: int, rows: list[Row]) -> None:
        write(self.folder, number, rows)

    def run(self) -> None:
        rows = events(self.spark, self.folder, SCHEMA, LAG_S)
        given: Any = {"on": ["key", "other"], "ttl": f"{TTL_S} seconds", "late": self.policy}
        shown, inner = epochs.told(lambda: mr.dedup(rows, **given))
        assert shown.schema["at"].metadata == rows.schema["at"].metadata  # the watermark is still on it
        assert inner is not None
        drained(inner, self.folder, self._keep)

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        out = self.epochs[epoch] = Epoch()
        for each in rows.collect():
            if each[told.KIND] == told.ALLOWED:
                out.allowed += 1
                continue
            found = each[told.ROW]
            row = Row((found.key, found.other), us(found["at"].replace(tzinfo=UTC)), found.id)
            if each[told.KIND] == told.RESULT:
                out.given.append(row)
            else:
                out.refused.append((row, each[told.LATE_US]))

    def watermark(self, epoch: int) -> int:
        return (watermarks_ms(self.folder)[epoch] - int(EPOCH.timestamp() * 1_000)) * 1_000


def made(draw: random.Random, number: int) -> list[Row]:
    """Rows of 200 keys, null ones among them, that move on by 15 s an epoch, some late; half of them on edges."""
    rows = []
    for example in range(200):
        key = (None if example % 50 == 0 else f"k{example}", None if example % 3 == 0 else example % 2)
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            second = number * 15 + draw.randrange(0, 21, draw.choice((1, 5))) - draw.choice((0, 0, 0, 5, 10, 30, 60))
            rows.append(Row(key, max(second, 0) * SECOND, draw.randrange(10**9)))
    # Some keys come twice: the second time just within the ttl, and late, when the watermark is past that.
    if number in (0, 5):
        later = TTL_S * SECOND - 1 if number else 0
        rows += [Row((f"s{second}", None), second * SECOND + later, draw.randrange(10**9)) for second in range(20)]
    return rows


@pytest.mark.parametrize("policy", todays(list(POLICIES), 1))
def test_rows_are_the_models_epoch_by_epoch(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    draw = seeded(f"dedup {policy}")
    parts = [made(draw, number) for number in range(9)]
    query = Query(spark, tmp_path, POLICIES[policy])
    for number, rows in enumerate(parts[:5]):
        query.write(number, rows)
    query.run()
    forget_commit(tmp_path / "checkpoint")
    for number, rows in enumerate(parts[5:], 5):
        query.write(number, rows)
    query.run()

    twin = Dedup(TTL_S * SECOND, POLICIES[policy].grace_ms * 1_000)
    todo, given, repeats = list(parts), 0, 0
    for number in sorted(query.epochs):
        rows = todo.pop(0) if number in with_input(tmp_path) else []
        expected, found = twin.epoch(rows, query.watermark(number)), query.epochs[number]
        # Of two at the same time either may be first: which one is not the model's to say.
        assert Counter(row[:2] for row in found.given) == Counter(row[:2] for row in expected.given), f"epoch {number}"
        assert set(found.given) <= set(rows)
        assert Counter(found.refused) == Counter(expected.refused)
        assert found.allowed == expected.allowed
        given += len(found.given)
        repeats += len(rows) - len(found.given) - len(found.refused)
    assert not todo
    assert given > 200
    assert repeats > 100


class TimeOfDay:
    """The clock of a query, which stands still until it is set."""

    def __init__(self, query: StreamingQuery, now_ms: int) -> None:
        java: Any = SparkContext._jvm
        self.clock, execution = java.org.apache.spark.util.ManualClock(now_ms), query._jsq.streamingQuery()
        field = execution.getClass().getSuperclass().getDeclaredField("triggerClock")
        field.setAccessible(True)
        field.set(execution, self.clock)

    def set(self, now_ms: int) -> None:
        self.clock.setTime(now_ms)


@pytest.mark.parametrize("timed", todays([False, True], 1))
def test_by_the_time_of_day_a_row_is_given_again_after_the_ttl(
    spark: SparkSession, tmp_path: Path, timed: bool
) -> None:
    """Rows with a watermark far from the time of day, and rows that have none; epochs on the edge of the ttl."""
    ttl = TTL_S * 1_000
    noon = us(datetime(2026, 5, 1, 12, tzinfo=UTC)) // 1_000 + int(EPOCH.timestamp() * 1_000)
    later = (0, 1, ttl - 1, ttl, ttl + 1, 2 * ttl, 2 * ttl + 1, 9 * ttl, -9 * ttl, -9 * ttl + 5)
    own, draw = spark.newSession(), seeded(f"arrival {timed}")
    own.conf.set("spark.sql.shuffle.partitions", "2")
    (tmp_path / "in").mkdir()
    read = own.readStream.schema(f"{SCHEMA}, partition int").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    rows = read.withWatermark("at", "0 seconds") if timed else read
    given: dict[int, list[Any]] = {}
    query = (
        mr.dedup(rows, on=["key", "other"], ttl=f"{TTL_S} seconds", clock="processing")
        .writeStream.foreachBatch(lambda frame, epoch: given.update({epoch: frame.collect()}))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        clock, twin = TimeOfDay(query, noon), ByArrival(ttl)
        for number, each in enumerate(later):
            clock.set(noon + each)
            keys = [key for key in range(40) for _ in range(draw.choice((0, 0, 0, 1, 2)))]
            came = [Row((f"k{key}", key % 2 or None), number * SECOND, key) for key in keys]
            write(tmp_path, number, came)
            query.processAllAvailable()
            found = [((row.key, row.other), row.id) for epoch in given.values() for row in epoch]
            assert set(found) <= {(row.key, row.value) for row in came}
            assert sorted(key for key, _ in found) == sorted(twin.epoch((row.key for row in came), noon + each))
            given.clear()
        # A query whose time has not come rests: an epoch without rows for each with some, at most, and no further ones.
        assert max(epochs.began_ms(tmp_path)) < 2 * len(later)
    finally:
        query.stop()


def test_a_batch_is_one_epoch_with_nothing_late(spark: SparkSession) -> None:
    draw = seeded("batch")
    rows = [row for number in range(6) for row in made(draw, number)]
    data = [(*row.key, EPOCH + timedelta(microseconds=row.time), row.value) for row in rows]
    frame = spark.createDataFrame(data, "key string, other int, at timestamp, id long")
    found = mr.dedup(frame, on=["key", "other"], ttl=f"{TTL_S} seconds").collect()
    expected = Dedup(TTL_S * SECOND, 0).epoch(rows, 0).given
    assert Counter(((row.key, row.other), us(row["at"].replace(tzinfo=UTC))) for row in found) == Counter(
        row[:2] for row in expected
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"on": "idd"}, "name columns of the rows"),
        ({"on": "id", "ttl": "0 seconds"}, "longer than nothing"),
        ({"on": "id", "clock": "wall"}, 'choose "event"'),
    ],
)
def test_options(spark: SparkSession, given: dict[str, Any], words: str) -> None:
    frame = spark.createDataFrame([], "id long, at timestamp")
    with pytest.raises(OptionInvalid, match=words):
        mr.dedup(frame, **given)
