"""Patterns on Spark are the model: pattern × where the next begins × order, over random keys, times, cuts, a crash and
a restart. One query has many examples in it: an example is the first part of the key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.errors import OptionInvalid, PatternInvalid, Where
from millrace.flow.places import compiled
from millrace.kernel import match as kernel
from millrace.kernel import told
from millrace.model.match import Match, Matching, Row
from millrace.testing.checkpoints import forget_commit
from tests.kernel import epochs
from tests.kernel.epochs import drained, events, put, watermarks_ms, with_input
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAG_S = 20
SECOND = 1_000_000
SCHEMA = "key string, at timestamp, whole long, text string, price decimal(8,2)"

# What a row is, by its number; "any" is none of these.
DEFINE: dict[str, Any] = {"small": "whole between 1 and 4", "large": "whole >= 7", "odd": "whole % 2 = 1"}
IS: dict[str, Callable[[int], bool]] = {
    "small": lambda whole: 1 <= whole <= 4,
    "large": lambda whole: whole >= 7,
    "odd": lambda whole: whole % 2 == 1,
    "any": lambda _: True,
}

CASES = [
    ("small{2,} large", "past last row", "time"),
    ("small !odd large", "next row", "time"),
    ("large (any small | odd){1,2} any*? large", "last large", "time"),
    ("large !small", "past last row", "time"),
    ("(odd | small)+", "first small", "time"),
    ("small+ large? (odd !large)?", "next row", "time"),
    ("small any{,2}? large", "past last row", "arrival"),
    ("odd+ !(small | large)", "next row", "arrival"),
]


def us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def measures(one: str) -> dict[str, Any]:
    """Every kind and every type, of a variable and of all rows."""
    return {
        "rows": mr.count(),
        "ones": mr.count(one),
        "priced": mr.count(f"{one}.price"),
        "dear": mr.count("price > 1"),
        "whole": mr.sum("whole"),
        "price": mr.sum(f"{one}.price"),
        "mean": mr.avg(f"{one}.whole"),
        "mean_price": mr.avg("price"),
        "least": mr.min("text"),
        "dearest": mr.max(f"{one}.price"),
        "earliest": mr.first("text"),
        "latest": mr.last(f"{one}.text"),
        "ended": mr.last("at"),
        "texts": mr.distinct(F.col("text")),
    }


def measured(match: Match, one: int) -> tuple[Any, ...]:
    def values(place: int, variable: int | None = None) -> list[Any]:
        rows = [row.values[place] for row, number in match.rows if variable in (None, number)]
        return [value for value in rows if value is not None]

    wholes, prices, texts, own = values(2), values(3), values(4), values(3, one)
    cents = Decimal("0.000001")
    return (
        len(match.rows),
        sum(number == one for _, number in match.rows),
        len(own),
        sum(price > 1 for price in prices),
        sum(wholes) if wholes else None,
        sum(own, Decimal(0)) if own else None,
        sum(values(2, one)) / len(values(2, one)) if values(2, one) else None,
        (sum(prices, Decimal(0)) / len(prices)).quantize(cents, ROUND_HALF_UP) if prices else None,
        min(texts, key=str.encode, default=None),
        max(own, default=None),
        texts[0] if texts else None,
        values(4, one)[-1] if values(4, one) else None,
        match.end,
        len(set(texts)),
    )


class Query:
    """A folder of files, one an epoch."""

    def __init__(self, spark: SparkSession, folder: Path, **given: Any) -> None:
        self.spark, self.folder, self.given = spark.newSession(), folder, given
        self.epochs: dict[int, list[Any]] = {}
        self.again: list[tuple[list[Any], list[Any]]] = []
        self.watermarks: dict[int, int] = {}

    def write(self, number: int, rows: list[Row]) -> None:
        lines = (
            {
                "key": row.key,
                "at": (EPOCH + timedelta(microseconds=row.time)).isoformat(timespec="microseconds"),
                "whole": row.values[2],
                "text": row.values[4],
                "price": None if row.values[3] is None else str(row.values[3]),
                "partition": 0,
            }
            for row in rows
        )
        put(self.folder / "in", number, lines)

    def run(self) -> None:
        frame = events(self.spark, self.folder, SCHEMA, LAG_S)
        _, inner = epochs.told(lambda: mr.match(frame, late=mr.late.side("late"), **self.given))
        assert inner is not None
        drained(inner, self.folder, self._keep)
        self.watermarks = watermarks_ms(self.folder)

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        found = rows.collect()
        if epoch in self.epochs:
            self.again.append((self.epochs[epoch], found))
        self.epochs[epoch] = found

    def held(self, name: str) -> int:
        store = self.spark.read.format("statestore").option("stateVarName", name)
        return store.load(str(self.folder / "checkpoint")).count()


def result(row: Any, names: dict[str, Any]) -> tuple[Any, ...]:
    start, end = (us(row[name].replace(tzinfo=UTC)) for name in (kernel.START, kernel.END))
    shown = [us(row[name].replace(tzinfo=UTC)) if name == "ended" else row[name] for name in names]
    return (row.key, start, end, *shown)


def row(
    key: str,
    time: int,
    variables: tuple[str, ...],
    whole: int | None = None,
    text: str | None = None,
    price: Decimal | None = None,
) -> Row:
    """Its values in the order in which the measures look at them, by which rows of the same time are taken."""
    flags = sum(1 << bit for bit, name in enumerate(variables) if name == "any" or (whole and IS[name](whole)))
    priced, dear = None if price is None else 1, 1 if price is not None and price > 1 else None
    return Row(key, time, flags, (priced, dear, whole, price, text))


def made(draw: random.Random, number: int, examples: int, variables: tuple[str, ...]) -> list[Row]:
    """Rows some of which are late by up to minutes, some at the same time; every fourth epoch on whole seconds, so that
    the watermark meets them."""
    rows = []
    for example in range(examples):
        for _ in range(draw.choice((0, 1, 3, 5))):
            second = number * 15 + draw.randint(0, 20) - draw.choice((0, 0, 0, 0, 5, 30, 180))
            time = us(START) + second * SECOND + (0 if number % 4 == 0 else draw.choice((0, 0, 1, 999_999)))
            text = draw.choice((None, "a", "b", "é", "\U0001f409", "￮"))
            price = draw.choice((None, Decimal(draw.randint(-999, 999)).scaleb(-2)))
            whole = draw.choice((None, *range(10)))
            rows.append(row(f"{example}.{draw.randint(0, 1)}", time, variables, whole, text, price))
    draw.shuffle(rows)
    return rows


@pytest.mark.parametrize(("pattern", "after", "order"), todays(CASES, 2))
def test_matches_are_the_models_epoch_by_epoch(
    spark: SparkSession, tmp_path: Path, pattern: str, after: str, order: Any
) -> None:
    draw = seeded(pattern)
    program = compiled(pattern, Where("test", 1))
    one = next(name for name in program.variables if name in [place.variable for place in program.places])
    names = measures(one)
    define = {name: DEFINE[name] for name in program.variables if name in DEFINE}
    define |= {"large": F.col("whole") >= 7} if "large" in define else {}
    given = {"pattern": pattern, "define": define, "after": after, "order": order, "within": "40 seconds"}
    query = Query(spark, tmp_path, by="key", measures=names, **given)
    parts = [made(draw, number, 200, program.variables) for number in range(7)]
    parts.append([row("flush", us(START) + 3600 * SECOND, program.variables)])
    for number, rows in enumerate(parts[:4]):
        query.write(number, rows)
    query.run()
    forget_commit(tmp_path / "checkpoint")
    for number, rows in enumerate(parts[4:], 4):
        query.write(number, rows)
    query.run()
    for first, again in query.again:
        assert Counter(map(str, first)) == Counter(map(str, again))
    assert query.again

    how, _, name = after.partition(" ")
    skip: Any = (how, program.variables.index(name)) if name in program.variables else after
    model = Matching(program.told(), 40 * SECOND, skip, order == "arrival")
    todo, matched, refused = list(parts), 0, 0
    for number in sorted(query.epochs):
        rows = todo.pop(0) if number in with_input(tmp_path) else []
        expected = model.epoch(rows, query.watermarks[number] * 1_000)
        found = query.epochs[number]
        number_of_one = program.variables.index(one)
        assert Counter(
            (each.key, each.start, each.end, *measured(each, number_of_one)) for each in expected.matches
        ) == Counter(result(each, names) for each in found if each[told.KIND] == told.RESULT), f"epoch {number}"
        assert Counter((each.row.key, each.row.time, each.late) for each in expected.refused) == Counter(
            (each[told.ROW].key, us(each[told.ROW]["at"].replace(tzinfo=UTC)), each[told.LATE_US])
            for each in found
            if each[told.KIND] == told.REFUSED
        ), f"epoch {number}"
        matched, refused = matched + len(expected.matches), refused + len(expected.refused)
    assert not todo
    assert matched > 15
    assert refused > 50
    assert (query.held("newest"), query.held("older")) == (1, 0), "what is left is the row that moved time on"


def test_what_is_told_does_not_depend_on_the_cuts_and_is_what_a_batch_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    draw = seeded("cuts")
    program = compiled("small+ !odd large", Where("test", 1))
    names = measures("small")
    given: Any = {"by": "key", "pattern": "small+ !odd large", "within": "40 seconds", "measures": names}
    given["define"] = {name: DEFINE[name] for name in program.variables}
    rows = sorted(
        (each for number in range(9) for each in made(draw, number, 60, program.variables)), key=lambda r: r.time
    )
    values = [
        (each.key, EPOCH + timedelta(microseconds=each.time), *(each.values[n] for n in (2, 4, 3))) for each in rows
    ]
    batch = spark.createDataFrame(values, "key string, at timestamp, whole long, text string, price decimal(8,2)")
    shown = mr.match(batch, late=mr.late.drop(), **given)
    assert shown.columns == ["key", "match_start", "match_end", *names]
    renamed = shown.withColumnsRenamed({"match_start": kernel.START, "match_end": kernel.END})
    expected = Counter(result(each, names) for each in renamed.collect())
    assert sum(expected.values()) > 30
    query = Query(spark, tmp_path, **given)
    third = len(rows) // 3
    for number, part in enumerate((rows[:third], rows[third : third + 1], rows[third + 1 :])):
        query.write(number, draw.sample(part, len(part)))
    query.write(3, [row("flush", us(START) + 3600 * SECOND, program.variables)])
    query.run()
    found = [each for epoch in query.epochs.values() for each in epoch]
    assert Counter(result(each, names) for each in found) == expected


def test_keys_of_every_type_and_none(spark: SparkSession, tmp_path: Path) -> None:
    """Also a key that is null, and one with a column that has a dot in its name."""
    rows: list[Any] = []
    keys: list[Any] = [(1, "x", date(1500, 1, 1), Decimal("1.50"), b"\x00"), (None,) * 5, (2, None, None, None, None)]
    for key in keys:
        rows += [(*key, START + timedelta(seconds=second), second) for second in (1, 2, 3)]
    schema = "a long, `b.c` string, d date, e decimal(5,2), f binary, at timestamp, n long"
    batch = spark.createDataFrame(rows, schema)
    batch.write.json(str(tmp_path / "in"))
    stream = spark.newSession().readStream.schema(schema).json(str(tmp_path / "in")).withWatermark("at", "0 seconds")
    given: Any = {"pattern": "one any+? three", "define": {"one": "n = 1", "three": "n = 3"}, "within": "1 minute"}
    given |= {"measures": {"n": mr.count(), "own": mr.first("one.b.c")}, "late": mr.late.drop()}
    for frame, order in ((batch, "time"), (stream, "arrival")):
        found = mr.match(frame, by=["a", F.col("`b.c`"), "d", "e", "f"], order=order, **given)
        alone = mr.match(frame, pattern="any", define={}, within="1 second", late=mr.late.drop(), order=order)
        if frame.isStreaming:
            found, alone = collected(found, tmp_path / "one"), collected(alone, tmp_path / "two")
        told_of = [tuple(each) for each in found.drop("match_start", "match_end").collect()]
        wanted = [(*key[:4], key[4] and bytearray(key[4]), 3, key[1]) for key in keys]
        assert sorted(told_of, key=str) == sorted(wanted, key=str)
        assert Counter(each.match_start.second for each in alone.collect()) == {1: 3, 2: 3, 3: 3}


def collected(rows: DataFrame, folder: Path) -> DataFrame:
    found: list[DataFrame] = []

    def keep(epoch: DataFrame, _: int) -> None:
        found.append(epoch.sparkSession.createDataFrame(epoch.collect(), epoch.schema))

    query = rows.writeStream.option("checkpointLocation", str(folder)).foreachBatch(keep)
    query.trigger(availableNow=True).start().awaitTermination()
    whole = found[0]
    for each in found[1:]:
        whole = whole.unionAll(each)
    return whole


def test_too_many_partial_matches_stop_it(spark: SparkSession) -> None:
    rows = spark.range(20).select(F.timestamp_seconds("id").alias("at"))
    settings = kernel.MatchSettings(
        compiled("a b", Where("test", 1)).told(), SECOND * 60, "past last row", -1, False, False, most_partial=5
    )
    given: Any = {"keys": {}, "time": F.col("at"), "measures": {}}
    waits = kernel.MatchSettings(
        compiled("a+ b", Where("test", 1)).told(), SECOND * 60, "past last row", -1, False, False, most_partial=5
    )
    assert kernel.matches(rows, conditions=[F.lit(True), F.lit(False)], settings=settings, **given).count() == 0
    with pytest.raises(Py4JJavaError, match="MR-MATCH-CROWDED 5"):
        kernel.matches(rows, conditions=[F.lit(True), F.lit(False)], settings=waits, **given).count()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pattern": "a ("}, "at character 4: a name is missing"),
        ({"pattern": 5}, "a text"),
        ({"within": None}, "how long a match may take"),
        ({"within": "0 seconds"}, "longer than nothing"),
        ({"late": None}, r"mr\.late\.drop\(\)"),
        ({"late": mr.late.allow("1 minute")}, "not taken back"),
        ({"late": mr.late.side("x", allow="1 minute")}, "not taken back"),
        ({"after": "last c"}, '"past last row"'),
        ({"after": "first c", "pattern": "a !c"}, '"past last row"'),
        ({"order": "random"}, '"arrival"'),
        ({"define": {"bb": "true"}}, "did you mean 'b'"),
        ({"define": {"a": "n > prev(n)"}}, "one row alone"),
        ({"define": {"a": "n + 1"}}, "is a condition"),
        ({"define": {"a": 5}}, "is a condition"),
        ({"measures": {"x": 1}}, "an aggregate"),
        ({"measures": {"x": mr.sum("a")}}, "'a' is a variable"),
        ({"measures": {"x": mr.sum("a.m")}}, "did you mean 'n'|name a column"),
        ({"measures": {"x": mr.sum("at")}}, "sums and averages are of numbers"),
        ({"measures": {"match_end": mr.count()}}, "another name"),
        ({"pattern": " ".join(f"v{n}" for n in range(63))}, "at most 62 names"),
    ],
)
def test_what_is_refused(spark: SparkSession, given: dict[str, Any], says: str) -> None:
    rows = spark.createDataFrame([], "k string, n long, at timestamp")
    usual: dict[str, Any] = {"by": "k", "pattern": "a b", "define": {}, "within": "1 minute", "late": mr.late.drop()}
    with pytest.raises((OptionInvalid, PatternInvalid), match=says):
        mr.match(rows, **(usual | given))
