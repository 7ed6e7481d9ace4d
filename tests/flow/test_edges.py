"""Where windows begin and end: against plain Python, over zones and changes of the clock; and the texts' examples."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.errors import OptionInvalid, Where
from millrace.flow.edges import Edges, edges

pytestmark = pytest.mark.spark

NOWHERE = Where("shop.py", 1)
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Santiago", "UTC")


def windows(spark: SparkSession, shape: Edges, times: list[datetime]) -> list[list[tuple[datetime, datetime]]]:
    rows: list[Any] = list(enumerate(times))
    frame = spark.createDataFrame(rows, "n int, at timestamp")
    placed = F.transform(
        shape.of(F.col("at")),
        lambda each: F.struct(
            F.timestamp_micros(each["start"]).alias("start"), F.timestamp_micros(each["end"]).alias("end")
        ),
    )
    found = frame.select("n", placed.alias("windows")).orderBy("n").collect()
    return [[(each.start.replace(tzinfo=UTC), each.end.replace(tzinfo=UTC)) for each in row.windows] for row in found]


def plain(time: datetime, size: timedelta, every: timedelta, offset: timedelta) -> list[tuple[datetime, datetime]]:
    """Every window that could hold it, tried one by one."""
    origin = datetime(1970, 1, 1, tzinfo=UTC) + offset
    first = origin + (time - size - origin) // every * every
    starts = (first + step * every for step in range(int(size / every) + 3))
    return [(start, start + size) for start in starts if start <= time < start + size]


def test_windows_hold_what_they_say(spark: SparkSession) -> None:
    draw = random.Random(1)
    for size_s, every_s, offset_s in ((60, 60, 0), (300, 60, 0), (50, 20, 7), (86_400, 3_600, 900), (7, 7, 3)):
        shape = Edges(size_s * 10**6, every_s * 10**6, offset_s * 10**6)
        times = [datetime(1969, 12, 31, tzinfo=UTC) + timedelta(seconds=draw.randint(0, 10**9)) for _ in range(50)]
        times += [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=draw.randint(0, 500)) for _ in range(50)]
        times += [time.replace(microsecond=999_999) for time in times[:20]]
        spans = (timedelta(seconds=each) for each in (size_s, every_s, offset_s))
        size, every, offset = spans
        expected = [plain(time, size, every, offset) for time in times]
        assert windows(spark, shape, times) == expected
        assert all(expected)


def days(zone: str, draw: random.Random) -> Iterator[datetime]:
    for day in range(366):  # with all changes of the clock
        yield datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, seconds=draw.randint(0, 86_399))
        yield datetime(2026, 1, 1, draw.randint(0, 3), tzinfo=ZoneInfo(zone)).astimezone(UTC) + timedelta(days=day)


@pytest.mark.parametrize("zone", ZONES)
def test_days_are_those_of_the_zone(spark: SparkSession, zone: str) -> None:
    times = list(days(zone, random.Random(zone)))
    found = windows(spark, edges("1 day", None, "0 s", zone, NOWHERE), times)
    lengths = set()
    for time, ((start, end),) in zip(times, found, strict=True):
        local = time.astimezone(ZoneInfo(zone)).date()
        midnight = datetime(local.year, local.month, local.day, tzinfo=ZoneInfo(zone))
        after = local + timedelta(days=1)
        assert start <= time < end
        if midnight.astimezone(UTC).astimezone(ZoneInfo(zone)) == midnight:  # some zones skip a midnight
            assert start == midnight
        assert end.astimezone(ZoneInfo(zone)).date() == after
        lengths.add(end - start)
    changes = zone not in ("UTC", "Asia/Kolkata")
    assert (len(lengths) > 1) == changes


def test_an_event_at_half_past_three_in_five_minutes_by_one(spark: SparkSession) -> None:
    half_past = datetime(2026, 1, 1, 3, 30, tzinfo=UTC)
    (found,) = windows(spark, edges("5 minutes", "1 minute", "0 s", None, NOWHERE), [half_past])
    starts = [start.strftime("%H:%M") for start, _ in found]
    # The window that ends at 3:30 does not hold it, the one that begins then does.
    assert starts == ["03:26", "03:27", "03:28", "03:29", "03:30"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("0 s", None, "0 s", None), "longer than nothing"),
        (("1 minute", "2 minutes", "0 s", None), "belong to none"),
        (("1 day", "1 ms", "0 s", None), "at most 1000 windows"),
        (("1 day", None, "0 s", "Europe/Berlni"), "Europe/Berlin"),
        (("1 day", None, "6 hours", "Europe/Berlin"), "whole days"),
        (("a while", None, "0 s", None), "a number and a unit"),
    ],
)
def test_what_is_no_window(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(OptionInvalid, match=says):
        edges(*given, NOWHERE)


def test_a_batch_is_windowed_by_spark_itself(spark: SparkSession) -> None:
    seconds = (1, 20, 40, 59)  # 20 and 40 are exactly the gap apart, which is not less than the gap
    rows: list[Any] = [("a", datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC), second) for second in seconds]
    frame = spark.createDataFrame(rows, "key string, at timestamp, n int")
    given: Any = {"by": "key", "emit": "final", "late": mr.late.drop(), "time": "at", "n": mr.sum("n")}
    whole = mr.window(frame, "30 seconds", **given).orderBy("window_start").collect()
    assert [(row.window_start.second, row.n) for row in whole] == [(0, 21), (30, 99)]
    sessions = mr.session(frame, "20 seconds", **given).orderBy("window_start").collect()
    assert [(row.window_start.second, row.n) for row in sessions] == [(1, 21), (40, 99)]
    assert [row.window_end.second for row in sessions] == [40, 19]
