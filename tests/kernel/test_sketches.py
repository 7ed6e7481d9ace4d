"""Sketches are near the exact answers by as much as they say, and exact where there is little to sketch: over windows
of every kind, random cuts, a crash; and built anew over the same rows by a batch."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import millrace as mr
from millrace.errors import OptionInvalid
from millrace.flow import late
from millrace.kernel import sketches
from millrace.kernel.sketches import Sketch, size_of
from millrace.model.sketches import frequent, frequent_faults, quantile, rank_error
from millrace.model.windows import Result, Row, Windows
from millrace.testing.checkpoints import forget_commit
from tests.kernel import test_windows as play
from tests.kernel.drivers import driver
from tests.kernel.epochs import with_input
from tests.kernel.test_windows import KINDS, POLICIES, SECOND, START, Query, us
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

ERROR = 0.05
# So few values are not sketched: as many are counted, and fewer than a level of a sketch has room for.
FEW = 20
RANKS = [0, 0.1, 0.9, 1]
TEXTS = [f"t{number}" for number in range(300)]
AGGREGATES = {
    "values": mr.approx_distinct("whole", error=ERROR),
    "median": mr.quantile("price", 0.5, error=ERROR),
    "ends": mr.quantiles("whole", RANKS, error=ERROR),
    "often": mr.frequent("text", 3, error=ERROR),
    "exactly": mr.distinct("whole"),
    "cents": mr.distinct("price"),
}


def made(draw: random.Random, number: int) -> list[Row]:
    """Few events of many keys, and many of one; all keys have a twin with the same events in another order."""
    found = []
    events = [(f"{example}", draw.choice((0, 1, 3))) for example in range(15)] + [("hot", 700)]
    for key, count in events:
        for _ in range(count):
            second = number * 15 + draw.randrange(0, 15) - draw.choice((0, 0, 0, 5, 30))
            value = (
                draw.choice((None, *[int(draw.paretovariate(0.5)) % 10**12] * 9)),
                draw.choice((None, *[draw.choice(TEXTS[: draw.choice((2, 5, 300))])] * 9)),
                draw.choice((None, *[Decimal(draw.randint(-99_999, 99_999)).scaleb(-2)] * 9)),
            )
            found.append(Row(key, us(START) + second * SECOND, value))
    twins = [Row(f"{row.key}'", row.time, row.value) for row in draw.sample(found, len(found))]
    return [*found, *twins]


CASES = [("sliding", "drop", "final"), ("session", "allow", "updates"), ("tumbling", "update", "final"),
         ("sliding", "side", "updates"), ("hopping", "drop", "updates")]  # fmt: skip


@pytest.mark.parametrize(("kind", "policy", "emit"), todays(CASES, 1))
def test_windows_with_sketches_are_near_the_models_epoch_by_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, policy: str, emit: str
) -> None:
    monkeypatch.setattr(play, "AGGREGATES", AGGREGATES)
    draw = seeded(f"{kind} {policy} {emit}")
    build, edges, gap = KINDS[kind]
    query = Query(spark, tmp_path, build, POLICIES[policy], emit)
    parts = [made(draw, number) for number in range(6)]
    for number, rows in enumerate(parts[:4]):
        query.write(number, rows)
    query.run()
    first = query.epochs[max(query.epochs)].results
    forget_commit(query.folder / "checkpoint")
    for number, rows in enumerate(parts[4:], 4):
        query.write(number, rows)
    again = max(query.epochs)
    query.run()
    assert by_window(query.epochs[again].results) == by_window(first)

    twin = Windows(edges, gap, POLICIES[policy].grace_ms * 1_000, emit == "final", lambda rows: (tuple(rows),))
    todo, large, told = list(parts), 0, []
    for number in sorted(query.epochs):
        rows = todo.pop(0) if number in with_input(tmp_path) else []
        expected = by_window(twin.epoch(rows, query.watermarks[number] * 1_000).results)
        found = by_window(query.epochs[number].results)
        assert found.keys() == expected.keys()
        for window, values in found.items():
            assert values == found[twin_of(window)], f"epoch {number}: {window}"
            (taken,) = expected[window]
            assert faults(taken, values) == [], f"epoch {number}: {window} of {len(taken)}"
            large += len(taken) > 500
            told.append((taken, values[0]))
    assert not todo
    assert large > 1
    # The same registers, whatever was added and merged in which order.
    assert [count for _, count in told] == built(spark, [taken for taken, _ in told])


def by_window(results: Sequence[Result]) -> dict[tuple[str, int, int], tuple[Any, ...]]:
    found = {(each.key, each.start, each.end): each.values for each in results}
    assert len(found) == len(results)
    return found


def twin_of(window: tuple[str, int, int]) -> tuple[str, int, int]:
    key = window[0]
    return (key.removesuffix("'") if key.endswith("'") else f"{key}'", *window[1:])


def faults(rows: Sequence[Row], told: tuple[Any, ...]) -> list[str]:
    wholes, texts, prices = ([row.value[place] for row in rows if row.value[place] is not None] for place in range(3))
    values, median, ends, often, exactly, cents = told
    often = [(each.value, each["count"]) for each in often]
    found = frequent_faults(texts, 3, ERROR, often)
    found += [] if (exactly, cents) == (len(set(wholes)), len(set(prices))) else ["distinct values"]
    if abs(values - exactly) > 4 * ERROR * exactly or (exactly <= FEW and values != exactly):
        found.append(f"{values} different values instead of {exactly}")
    if not prices or not wholes:
        return found + ([] if (median is None) == (not prices) and (ends is None) == (not wholes) else ["no values"])
    errors = [rank_error(prices, 0.5, median), *map(lambda rank, end: rank_error(wholes, rank, end), RANKS, ends)]
    if max(errors) > 2 * ERROR or [ends[0], ends[-1]] != [min(wholes), max(wholes)]:
        found.append(f"{median}, {ends}: {errors}")
    if len(rows) <= FEW and (median, ends, often) != (
        quantile(prices, 0.5), [quantile(wholes, rank) for rank in RANKS], frequent(texts, 3)
    ):  # fmt: skip
        found.append(f"{told} of few values")
    return found


def built(spark: SparkSession, groups: Sequence[Sequence[Row]]) -> list[int]:
    rows = [(number, row.value[0]) for number, group in enumerate(groups) for row in group]
    sketch = Sketch(size_of("approx_distinct", ERROR))
    counted = sketches.batch("approx_distinct", F.col("value"), LongType(), sketch).alias("count")
    found = spark.createDataFrame(rows, "number int, value long").groupBy("number").agg(counted).collect()
    return [row["count"] for row in sorted(found)]


def test_errors_are_what_they_are_said_to_be(spark: SparkSession) -> None:
    """Forty streams of 4,000 values, each put together from many parts: uniform, in steps, ascending and skewed."""
    error = 0.02
    rows = spark.range(160_000).selectExpr(
        "timestamp_seconds(0) AS at", "id % 40 AS stream", "(xxhash64(id) % 5000 + 5000) % 5000 AS even",
        "id DIV 40 AS ascending", "int(pow((xxhash64(id, 7) % 1000 + 1000) % 1000 / 1000.0, 8) * 400) AS skewed",
    ).repartition(32)  # fmt: skip
    ranks = [0.01, 0.25, 0.5, 0.99]
    asked: Any = {
        "values": mr.approx_distinct("even", error=error),
        "even_ranks": mr.quantiles("even", ranks, error=error),
        "ascending_ranks": mr.quantiles("ascending", ranks, error=error),
        "skewed_ranks": mr.quantiles("skewed", ranks, error=error),
        "skewed_often": mr.frequent("skewed", 10, error=error),
    }
    told = mr.window(rows, "1 hour", by="stream", time="at", emit="final", late=late.drop(), **asked)
    exact = rows.groupBy("stream").agg(*(F.collect_list(name).alias(name) for name in ("even", "ascending", "skewed")))
    joined = told.join(exact, "stream").collect()
    distinct, off = [], []
    for row in joined:
        count = len(set(row.even))
        distinct.append((row["values"] - count) / count)
        for name in ("even", "ascending", "skewed"):
            off += [rank_error(row[name], rank, each) for rank, each in zip(ranks, row[f"{name}_ranks"], strict=True)]
        often = [(each.value, each["count"]) for each in row.skewed_often]
        assert frequent_faults(row.skewed, 10, error, often) == []
        assert len(often) == 10
    assert len(joined) == 40
    assert (sum(each**2 for each in distinct) / len(distinct)) ** 0.5 < error * 1.2
    assert max(map(abs, distinct)) < error * 4
    assert sum(each <= error for each in off) / len(off) > 0.98
    assert 0 < max(off) < 2 * error


VALUES = "text string, number double, small float, flag boolean, day date, at timestamp, cents decimal(6,2), raw binary"


def test_quantiles_that_are_kept_again_and_again_stay_small_and_near(tmp_path: Path) -> None:
    done = subprocess.run(driver("KllDriver", tmp_path), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr


def test_every_type(spark: SparkSession) -> None:
    day = datetime(2026, 1, 2, tzinfo=UTC)
    values = ("é", -0.0, 1.5, True, day.date(), day, Decimal("7.00"), b"ab")
    rows = spark.createDataFrame([values, (*values[:1], 0.0, *values[2:]), (None,) * 5 + (day, None, None)], VALUES)
    names = rows.columns
    asked: Any = {f"{name}_{kind}": of(name) for name in names for kind, of in _asked(name).items()}
    (found,) = mr.window(rows, "1 day", time="at", emit="final", late=late.drop(), **asked).collect()
    for name, value in zip(names, values, strict=True):
        count = 3 if name == "at" else 2
        value = value.replace(tzinfo=None) if isinstance(value, datetime) else value
        assert found[f"{name}_distinct"] == 1
        assert [(each.value, each["count"]) for each in found[f"{name}_frequent"]] == [(value, count)]
        assert name in ("text", "raw") or (found[f"{name}_quantile"], found[f"{name}_quantiles"]) == (
            value,
            [value] * 2,
        )


def _asked(name: str) -> dict[str, Callable[[str], Any]]:
    found: dict[str, Callable[[str], Any]] = {
        "distinct": lambda column: mr.approx_distinct(column),
        "frequent": lambda column: mr.frequent(column, 2),
    }
    if name not in ("text", "raw"):
        found["quantile"] = lambda column: mr.quantile(column, 0.5)
        found["quantiles"] = lambda column: mr.quantiles(column, (0, 1))
    return found


@pytest.mark.parametrize(
    ("aggregate", "says"),
    [
        (mr.approx_distinct("n", error=0.001), r"n_'s error=0.001.*from 0.004 to 0.25"),
        (mr.quantile("n", 1.01), "n_'s ranks=1.01.*from 0 .the least value. to 1"),
        (mr.quantiles("n", []), "n_'s ranks='none'"),
        (mr.quantile("n", True), "n_'s ranks=True"),
        (mr.quantile("n", 0.5, error="1%"), "n_'s error='1%'"),  # type: ignore[arg-type]
        (mr.frequent("n", 101), "n_'s k=101.*from 1 to 100: with an error of 0.01"),
        (mr.quantile("key", 0.5), "quantile of string.*quantiles of numbers and times"),
    ],
)
def test_what_cannot_be_asked(spark: SparkSession, aggregate: Any, says: str) -> None:
    rows = spark.createDataFrame([], "key string, at timestamp, n long")
    with pytest.raises(OptionInvalid, match=says):
        mr.window(rows, "1 minute", by="key", emit="final", late=late.drop(), n_=aggregate)


def test_where_they_cannot_be_asked(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], "key string, at timestamp, n long")
    with pytest.raises(OptionInvalid, match=r"n_='mr.quantile'.*only windows and sessions have it"):
        mr.lookback(rows, by="key", late=late.drop(), n_=mr.quantile("n", 0.5))
    with pytest.raises(OptionInvalid, match=r"n_='mr.approx_distinct'.*matches have mr.count"):
        mr.match(
            rows, by="key", pattern="a", define={"a": "n > 1"}, within="1 minute", late=late.drop(),
            measures={"n_": mr.approx_distinct("n")},
        )  # fmt: skip
