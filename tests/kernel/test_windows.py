"""Windows on Spark are the model: every kind × late policy × emission, over random keys, times, cuts and a restart.

One query has many examples in it: an example is the first part of the key. The model is given the cuts, since what is
late depends on them, and the watermark that each epoch had.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.flow import aggregates as mr
from millrace.flow import late
from millrace.flow.late import Late
from millrace.flow.windows import session, window
from millrace.kernel import told
from millrace.kernel import windows as kernel
from millrace.model.windows import Epoch, Refused, Result, Row, Windows
from millrace.testing.checkpoints import forget_commit
from tests.kernel import epochs
from tests.kernel.epochs import SECOND, drained, events, hopping, put, watermarks_ms, with_input
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAG_S = 20
SCHEMA = "key string, at timestamp, whole long, text string, price decimal(8,2)"
POLICIES = {
    "aside": late.side("aside"),
    "drop": late.drop(),
    "allow": late.allow("30 seconds"),
    "side": late.side("late", allow="10 seconds"),
    "update": late.update("2 minutes"),
}


def us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def aggregate(rows: list[Row]) -> tuple[Any, ...]:
    """count, count where, sum, avg, min, max, first, last, distinct: of a long, a text and a decimal."""
    wholes = [row.value[0] for row in rows if row.value[0] is not None]
    texts = [row.value[1] for row in rows if row.value[1] is not None]
    prices = [row.value[2] for row in rows if row.value[2] is not None]
    timed = [(row.time, row.value[1].encode(), row.value[1]) for row in rows if row.value[1] is not None]
    return (
        len(rows),
        sum(whole > 0 for whole in wholes),
        sum(wholes) if wholes else None,
        sum(prices, Decimal(0)) if prices else None,
        sum(wholes) / len(wholes) if wholes else None,
        min(texts, key=str.encode, default=None),
        max(prices, default=None),
        min(timed)[2] if timed else None,
        max(timed)[2] if timed else None,
        len(set(texts)),
    )


AGGREGATES = {
    "rows": mr.count(),
    "positive": mr.count("whole > 0"),
    "whole": mr.sum("whole"),
    "price": mr.sum("price"),
    "mean": mr.avg("whole"),
    "least": mr.min("text"),
    "dearest": mr.max("price"),
    "earliest": mr.first("text"),
    "latest": mr.last("text"),
    "texts": mr.distinct("text"),
}

KINDS: dict[str, tuple[Callable[..., DataFrame], Callable[[int], list[tuple[int, int]]] | None, int]] = {
    "tumbling": (lambda rows, /, **given: window(rows, "1 minute", **given), hopping(60, 60), 0),
    "sliding": (lambda rows, /, **given: window(rows, "1 minute", every="20 seconds", **given), hopping(60, 20), 0),
    "hopping": (lambda rows, /, **given: window(rows, "50 seconds", every="20 seconds", **given), hopping(50, 20), 0),
    "session": (lambda rows, /, **given: session(rows, "15 seconds", **given), None, 15 * SECOND),
}


class Query:
    def __init__(self, spark: SparkSession, folder: Path, build: Callable[..., DataFrame], policy: Late, emit: str):
        self.spark, self.folder = spark.newSession(), folder
        self.build, self.policy, self.emit = build, policy, emit
        self.epochs: dict[int, Epoch] = {}
        self.watermarks: dict[int, int] = {}

    def write(self, number: int, rows: list[Row]) -> None:
        lines = (
            {
                "key": row.key,
                "at": (EPOCH + timedelta(microseconds=row.time)).isoformat(timespec="microseconds"),
                "whole": row.value[0],
                "text": row.value[1],
                "price": None if row.value[2] is None else str(row.value[2]),
                "partition": 0,
            }
            for row in rows
        )
        put(self.folder / "in", number, lines)

    def run(self) -> None:
        given: Any = {"by": "key", "emit": self.emit, "late": self.policy, **AGGREGATES}
        frame = events(self.spark, self.folder, SCHEMA, LAG_S)
        _, inner = epochs.told(lambda: self.build(frame, **given))
        assert inner is not None
        drained(inner, self.folder, self._keep)
        self.watermarks = watermarks_ms(self.folder)

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        out = self.epochs[epoch] = Epoch()
        for row in rows.collect():
            start, end = us(row[kernel.START].replace(tzinfo=UTC)), us(row[kernel.END].replace(tzinfo=UTC))
            out.late_refused += row[told.KIND] == told.REFUSED
            out.late_allowed += row[told.KIND] == told.ALLOWED
            if row[told.KIND] == told.RESULT:
                replaces = sorted(
                    (us(each.start.replace(tzinfo=UTC)), us(each.end.replace(tzinfo=UTC)))
                    for each in row[kernel.REPLACES] or ()
                )
                out.results.append(
                    Result(row.key, start, end, tuple(row[name] for name in AGGREGATES), tuple(replaces))
                )
            elif row[told.KIND] != told.ALLOWED and told.ROW in row:
                value = (row[told.ROW].whole, row[told.ROW].text, row[told.ROW].price)
                whole = Row(row[told.ROW].key, us(row[told.ROW]["at"].replace(tzinfo=UTC)), value)
                out.refused.append(Refused(whole, start, end, row[told.LATE_US]))


def made(draw: random.Random, number: int, examples: int) -> list[Row]:
    """Events some of which are late by up to minutes, now and then twice; in every second epoch all on multiples of
    five seconds, so that the watermark meets edges."""
    rows = []
    for example in range(examples):
        for _ in range(draw.choice((0, 1, 1, 2, 4))):
            even = number % 2 == 0
            second = number * 15 + draw.randrange(0, 21, 5 if even else 1) - draw.choice((0, 0, 0, 5, 30, 60, 180))
            micro = 0 if even else draw.choice((0, 0, 1, 500_000, 999_999))
            time = us(START) + second * SECOND + micro
            value = (
                draw.choice((None, draw.randint(-5, 5))),
                draw.choice((None, "a", "b", "é", "\U0001f409", "\uffee")),
                draw.choice((None, Decimal(draw.randint(-999, 999)).scaleb(-2))),
            )
            rows += [Row(f"{example}.{draw.randint(0, 1)}", time, value)] * draw.choice((1, 1, 1, 2))
    draw.shuffle(rows)
    return rows


def as_told(results: list[Result], kind: str, policy: Late) -> list[Result]:
    """Windows of slices do not know what they told before: nobody is shown it where it is the window itself."""
    sliced = kind in ("tumbling", "sliding") and not policy.grace_ms
    return [result._replace(replaces=()) for result in results] if sliced else results


CASES = [(kind, policy, emit) for emit in ("final", "updates") for policy in POLICIES for kind in KINDS]


@pytest.mark.parametrize(("kind", "policy", "emit"), todays(CASES, 4))
def test_windows_are_the_models_epoch_by_epoch(
    spark: SparkSession, tmp_path: Path, kind: str, policy: str, emit: str
) -> None:
    draw = seeded(f"{kind} {policy} {emit}")
    build, edges, gap = KINDS[kind]
    query = Query(spark, tmp_path, build, POLICIES[policy], emit)
    parts = [made(draw, number, 40) for number in range(10)]
    for number, rows in enumerate(parts[:5]):
        query.write(number, rows)
    query.run()
    forget_commit(query.folder / "checkpoint")
    for number, rows in enumerate(parts[5:], 5):
        query.write(number, rows)
    query.run()

    twin = Windows(edges, gap, POLICIES[policy].grace_ms * 1_000, emit == "final", aggregate)
    todo, seen, refused, allowed = list(parts), 0, 0, 0
    for number in sorted(query.epochs):
        has_rows = number in with_input(tmp_path)
        rows = todo.pop(0) if has_rows else []
        expected = twin.epoch(rows, query.watermarks[number] * 1_000)
        found = query.epochs[number]
        assert Counter(found.results) == Counter(as_told(expected.results, kind, POLICIES[policy])), f"epoch {number}"
        assert (found.late_refused, found.late_allowed) == (expected.late_refused, expected.late_allowed)
        if POLICIES[policy].topic:
            assert Counter(found.refused) == Counter(expected.refused), f"epoch {number}"
        seen, refused, allowed = (
            seen + len(expected.results), refused + expected.late_refused, allowed + expected.late_allowed
        )  # fmt: skip
    assert not todo
    assert seen > 100
    assert refused > 0
    assert (allowed > 0) == (POLICIES[policy].grace_ms > 0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_final_does_not_depend_on_the_cuts_and_is_what_a_batch_gives(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    draw = seeded(kind)
    build, _, _ = KINDS[kind]
    rows = sorted(made(draw, 5, 100) + made(draw, 9, 100) + made(draw, 14, 100), key=lambda row: row.time)
    given: Any = {"by": "key", "emit": "final", "late": late.drop(), **AGGREGATES}
    batch = spark.createDataFrame(
        [(row.key, EPOCH + timedelta(microseconds=row.time), *row.value) for row in rows],
        "key string, at timestamp, whole long, text string, price decimal(8,2)",
    )
    expected = Counter(tuple_of(row) for row in build(batch, time="at", **given).collect())
    assert len(expected) > 200
    flush = [Row("flush", rows[-1].time + 3600 * SECOND, (None, None, None))]
    for number, cuts in enumerate((1, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        query = Query(spark, folder, build, late.drop(), "final")
        places = [0, *sorted(draw.sample(range(1, len(rows)), cuts - 1)), len(rows)]
        for epoch, (begin, end) in enumerate(itertools.pairwise(places)):
            query.write(epoch, draw.sample(rows[begin:end], end - begin))
        query.write(cuts, flush)
        query.run()
        found = [result for epoch in query.epochs.values() for result in epoch.results]
        assert not any(epoch.late_refused for epoch in query.epochs.values())
        assert Counter((each.key, each.start, each.end, each.values) for each in found) == expected


def tuple_of(row: Any) -> tuple[Any, ...]:
    start, end = us(row.window_start.replace(tzinfo=UTC)), us(row.window_end.replace(tzinfo=UTC))
    return (row.key, start, end, tuple(row[name] for name in AGGREGATES))
