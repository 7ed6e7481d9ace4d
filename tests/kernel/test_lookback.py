"""Lookbacks on Spark are the model: random keys, times, cuts and a restart, with parts so small that they split.

One query has many examples in it: an example is the first part of the key. Kilometres are compared to nine digits,
because Java's sine is not Python's; all else is compared as it is.
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.errors import OptionInvalid
from millrace.flow.aggregates import Aggregate
from millrace.flow.late import Late
from millrace.flow.lateness import LATE_METRIC
from millrace.kernel import lookback as kernel
from millrace.kernel import told
from millrace.model.lookback import At, Event, Lookback, Question, distance, speed
from millrace.testing.checkpoints import forget_commit
from tests.kernel import epochs
from tests.kernel.epochs import drained, put, watermarks_ms, with_input
from tests.kernel.test_windows import EPOCH, SECOND, START, us
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

LAG_S = 20
SCHEMA = (
    "id long, key string, at timestamp, whole long, text string, price decimal(8,2), number double, lat double,"
    " lon float"
)
POLICIES = {
    "drop": mr.late.drop(),
    "allow": mr.late.allow("40 seconds"),
    "side": mr.late.side("late", allow="10 seconds"),
}
PLACES = ((52.52, 13.4), (48.85, 2.35), (-33.87, 151.21), (None, 1.0))


class Value(NamedTuple):
    id: int
    whole: int | None
    text: str | None
    price: Decimal | None
    number: float | None
    lat: float | None
    lon: float


def known(events: list[Event], name: str) -> list[Any]:
    return [found for event in events if (found := getattr(event.value, name)) is not None]


def timed(events: list[Event]) -> list[tuple[int, bytes, str]]:
    return sorted((each.time, each.value.text.encode(), each.value.text) for each in events if each.value.text)


def at(event: Event) -> At | None:
    return None if event.value.lat is None else At(event.time, event.value.lat, event.value.lon)


def way(events: Iterable[Event]) -> list[At]:
    return [found for event in events if (found := at(event)) is not None]


def mean(of: list[float]) -> float | None:
    return math.fsum(of) / len(of) if of else None


# How each is asked; over how many µs; and what it is.
ASKED: dict[str, tuple[Aggregate, int, Question]] = {
    "all": (mr.count(over="15 seconds"), 15 * SECOND, lambda events, _: len(events)),
    "all_long": (mr.count(over="1 minute"), 60 * SECOND, lambda events, _: len(events)),
    "positive": (
        mr.count("whole > 0", over="1 minute"),
        60 * SECOND,
        lambda events, _: sum(whole > 0 for whole in known(events, "whole")),
    ),
    "wholes": (
        mr.sum("whole", over="4 seconds"),
        4 * SECOND,
        lambda events, _: sum(found) if (found := known(events, "whole")) else None,
    ),
    # A part of the events has a sum that no long holds, and no result has.
    "larges": (
        mr.sum("large", over="1 ms"),
        1_000,
        lambda events, _: len(events) << 60,
    ),
    "prices": (
        mr.sum("price", over="1 minute"),
        60 * SECOND,
        lambda events, _: sum(found, Decimal(0)) if (found := known(events, "price")) else None,
    ),
    "numbers": (
        mr.sum("number", over="1 minute"),
        60 * SECOND,
        lambda events, _: math.fsum(found) if (found := known(events, "number")) else None,
    ),
    "mean": (mr.avg("whole", over="1 minute"), 60 * SECOND, lambda events, _: mean(known(events, "whole"))),
    "mean_number": (mr.avg("number", over="15 seconds"), 15 * SECOND, lambda events, _: mean(known(events, "number"))),
    "mean_price": (
        mr.avg("price", over="15 seconds"),
        15 * SECOND,
        lambda events, _: rounded(known(events, "price")),
    ),
    "least": (
        mr.min("text", over="15 seconds"),
        15 * SECOND,
        lambda events, _: min(known(events, "text"), key=str.encode, default=None),
    ),
    "dearest": (
        mr.max("price", over="1 minute"),
        60 * SECOND,
        lambda events, _: max(known(events, "price"), default=None),
    ),
    "earliest": (
        mr.first("text", over="15 seconds"),
        15 * SECOND,
        lambda events, _: found[0][2] if (found := timed(events)) else None,
    ),
    "latest": (
        mr.last("text", over="1 minute"),
        60 * SECOND,
        lambda events, _: found[-1][2] if (found := timed(events)) else None,
    ),
    "texts": (mr.distinct("text", over="1 minute"), 60 * SECOND, lambda events, _: len(set(known(events, "text")))),
    # Few values are counted exactly.
    "roughly": (
        mr.approx_distinct("number", over="1 minute"),
        60 * SECOND,
        lambda events, _: len(set(known(events, "number"))),
    ),
    "lately": (
        mr.last_n("text", 3, over="1 minute"),
        60 * SECOND,
        lambda events, _: [text for _, _, text in timed(events)[-3:]],
    ),
    "way": (mr.distance("lat", "lon", over="1 minute"), 60 * SECOND, lambda events, _: distance(way(events))),
    "short_way": (mr.distance("lat", "lon", over="4 seconds"), 4 * SECOND, lambda events, _: distance(way(events))),
    "pace": (
        mr.speed("lat", "lon", over="15 seconds"),
        15 * SECOND,
        lambda events, event: speed(way(events), at(event)),
    ),
}
NEAR = ("way", "short_way", "pace")


def rounded(prices: list[Decimal]) -> Decimal | None:
    return round(sum(prices, Decimal(0)) / len(prices), 6) if prices else None


def differing(
    found: tuple[Any, ...], expected: tuple[Any, ...], near: tuple[str, ...] = NEAR
) -> dict[str, tuple[Any, Any]]:
    def same(name: str, one: Any, two: Any) -> bool:
        if name in near and one is not None and two is not None:
            return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9)
        return bool(one == two)

    pairs = zip(ASKED, found, expected, strict=True)
    return {name: (one, two) for name, one, two in pairs if not same(name, one, two)}


def model(policy: Late, correct: bool) -> Lookback:
    return Lookback([(over, question) for _, over, question in ASKED.values()], policy.grace_ms * 1_000, correct)


class Query:
    """Rows are kept by epoch: (id, corrected) and what was told; of a policy with a topic also what was refused."""

    def __init__(self, spark: SparkSession, folder: Path, policy: Late, correct: bool) -> None:
        self.spark, self.folder = spark.newSession(), folder
        self.policy, self.correct = policy, correct
        self.epochs: dict[int, list[tuple[tuple[int, bool], tuple[Any, ...]]]] = {}
        self.refused: dict[int, list[tuple[int, int]]] = {}
        self.counted: dict[int, tuple[int, int]] = {}
        self.watermarks: dict[int, int] = {}

    def write(self, number: int, events: list[Event]) -> None:
        lines = (
            {
                "key": event.key,
                "at": (EPOCH + timedelta(microseconds=event.time)).isoformat(timespec="microseconds"),
                "partition": 0,
                **event.value._asdict(),
                "price": None if event.value.price is None else str(event.value.price),
            }
            for event in events
        )
        put(self.folder / "in", number, lines)

    def run(self) -> None:
        frame = epochs.events(self.spark, self.folder, SCHEMA, LAG_S)
        _, inner = epochs.told(lambda: asked(frame, self.policy, self.correct))
        assert inner is not None
        for report in drained(inner, self.folder, self._keep):
            late = [each for name, each in report["observedMetrics"].items() if name.startswith(LATE_METRIC)]
            self.counted[report["batchId"]] = (
                sum(each["refused"] for each in late),
                sum(each["allowed"] for each in late if "allowed" in each),
            )
        self.watermarks = watermarks_ms(self.folder)

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        self.epochs[epoch], self.refused[epoch] = [], []
        for row in rows.collect():
            if row[told.KIND] in (told.REFUSED, told.REFUSED_TOO):
                self.refused[epoch].append((row[told.ROW].id, row[told.LATE_US]))
            else:
                told_before = (row[told.ROW].id, row[kernel.CORRECTED])
                self.epochs[epoch].append((told_before, tuple(row[name] for name in ASKED)))

    def state(self, name: str) -> int:
        read = self.spark.read.format("statestore").option("stateVarName", name)
        return read.load(str(self.folder / "checkpoint")).count()


def asked(rows: DataFrame, policy: Late, correct: bool) -> DataFrame:
    rows = rows.withColumn("large", F.lit(1 << 60))
    aggregates = {name: aggregate for name, (aggregate, _, _) in ASKED.items()}
    found = mr.lookback(rows, by="key", late=policy, time="at", correct=correct, **aggregates)
    assert found.columns == [*rows.columns, *ASKED, *(["corrected"] if correct else [])]
    return found


ids = itertools.count()


def made(draw: random.Random, number: int, examples: int) -> list[Event]:
    """Events some of which are late by up to minutes, or at the same time as others; in every second epoch all on whole
    seconds, so that the watermark and intervals meet them."""
    found = []
    for example in range(examples):
        for _ in range(draw.choice((0, 1, 2, 4, 9))):
            even = number % 2 == 0
            second = number * 15 + draw.randrange(0, 20) - draw.choice((0, 0, 0, 5, 30, 60, 180))
            micro = 0 if even else draw.choice((0, 0, 1, 500_000, 999_999))
            time = us(START) + second * SECOND + micro
            for _ in range(draw.choice((1, 1, 1, 2))):
                found.append(Event(f"{example}.{draw.randint(0, 1)}", time, value(draw)))
    draw.shuffle(found)
    return found


def at_the_edge(draw: random.Random, number: int, grace: int) -> list[Event]:
    """The newest event of an epoch, so that the next watermark is known; and events that are just not refused. The
    longest interval is as long as four epochs: what a key got then is just in it, and just not."""
    newest = Event("newest", us(START) + (number * 15 + LAG_S) * SECOND, value(draw))
    edge = us(START) + (number - 1) * 15 * SECOND - grace
    return [newest, *(Event(f"edge.{number % 4}", edge + micro, value(draw)) for micro in (0, 1) if number)]


def value(draw: random.Random) -> Value:
    lat, lon = draw.choice((*PLACES, (draw.uniform(-89, 89), draw.uniform(-180, 180))))
    return Value(
        next(ids),
        draw.choice((None, draw.randint(-5, 5))),
        draw.choice((None, "a", "b", "é", "\U0001f409", "\uffee")),
        draw.choice((None, Decimal(draw.randint(-999, 999)).scaleb(-2))),
        draw.choice((None, draw.uniform(-1, 1), draw.uniform(-1e16, 1e16), 0.1)),
        lat,
        struct.unpack("f", struct.pack("f", lon))[0],
    )


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_EVENTS", 4), ("MOST_PARTS", 3), ("MOST_VALUES", 3)):
        monkeypatch.setattr(kernel, name, most)


CASES = [("drop", False), ("allow", True), ("side", True), ("drop", True), ("side", False), ("allow", False)]


@pytest.mark.parametrize(("policy", "correct"), todays(CASES, 1))
@pytest.mark.usefixtures("small_parts")
def test_lookbacks_are_the_models_epoch_by_epoch(
    spark: SparkSession, tmp_path: Path, policy: str, correct: bool
) -> None:
    draw = seeded(f"{policy} {correct}")
    query = Query(spark, tmp_path, POLICIES[policy], correct)
    grace = POLICIES[policy].grace_ms * 1_000
    parts = [made(draw, number, 40) + at_the_edge(draw, number, grace) for number in range(10)]
    parts.append([Event("end", us(START) + 3_600 * SECOND, value(draw))])
    for number, events in enumerate(parts[:5]):
        query.write(number, events)
    query.run()
    forget_commit(query.folder / "checkpoint")
    for number, events in enumerate(parts[5:], 5):
        query.write(number, events)
    query.run()

    twin, todo, seen, again, refused, allowed = model(POLICIES[policy], correct), list(parts), 0, 0, 0, 0
    for number in sorted(query.epochs):
        events = todo.pop(0) if number in with_input(tmp_path) else []
        expected = twin.epoch(events, query.watermarks[number] * 1_000)
        compared(number, query.epochs[number], {(e.event.value.id, e.corrected): e.values for e in expected.results})
        assert query.counted[number] == (len(expected.refused), expected.late_allowed)
        if POLICIES[policy].topic:
            assert sorted(query.refused[number]) == sorted((e.event.value.id, e.late) for e in expected.refused)
        seen, refused, allowed = seen + len(events), refused + len(expected.refused), allowed + expected.late_allowed
        again += sum(each.corrected for each in expected.results)
    assert not todo
    assert seen > 1_000
    assert refused > 50
    assert (allowed > 50) == (policy != "drop")
    assert (again > 50) == correct
    # Only the last event's key is left.
    assert query.state("history") == 1
    assert query.state("nodes") == 0
    assert not correct or query.state("rows") == 1


def compared(number: int, told: list[Any], expected: dict[tuple[int, bool], tuple[Any, ...]]) -> None:
    found = dict(told)
    assert len(found) == len(told)
    assert found.keys() == expected.keys(), f"epoch {number}"
    for each, values in found.items():
        assert differing(values, expected[each]) == {}, f"epoch {number}: {each}"


@pytest.mark.usefixtures("small_parts")
def test_what_was_told_last_does_not_depend_on_the_cuts_and_is_what_a_batch_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    draw = seeded("batch")
    events = made(draw, 5, 40) + made(draw, 6, 40) + made(draw, 14, 40)
    events = [event._replace(value=event.value._replace(number=draw.uniform(-1, 1))) for event in events]
    batch = spark.createDataFrame(
        [(e.value.id, e.key, EPOCH + timedelta(microseconds=e.time), *e.value[1:]) for e in events],
        SCHEMA,
    )
    rows = asked(batch, mr.late.drop(), True).collect()
    expected = {row.id: tuple(row[name] for name in ASKED) for row in rows}
    assert len(expected) == len(rows) == len(events) > 300
    assert not any(row.corrected for row in rows)
    for number, cuts in enumerate((1, 6)):
        folder = tmp_path / str(number)
        folder.mkdir()
        query = Query(spark, folder, mr.late.allow("1 hour"), True)
        places = [0, *sorted(draw.sample(range(1, len(events)), cuts - 1)), len(events)]
        for epoch, (begin, end) in enumerate(itertools.pairwise(places)):
            query.write(epoch, events[begin:end])
        query.run()
        found = {each: values for epoch in sorted(query.epochs) for (each, _), values in query.epochs[epoch]}
        assert found.keys() == expected.keys()
        for each, values in found.items():
            # Spark's own sums of doubles depend on the order.
            assert differing(values, expected[each], (*NEAR, "numbers", "mean_number")) == {}, f"{cuts} cuts: {each}"


def test_one_key_with_many_events_is_put_together_from_parts(spark: SparkSession, tmp_path: Path) -> None:
    """With parts as large as they are, and state that is read and written in parts."""
    draw = seeded("hot")
    query = Query(spark, tmp_path, mr.late.drop(), False)
    expected: dict[int, int] = {}
    for number in range(6):
        events = [Event("hot", us(START) + (number * 1_500 + place) * 10_000, value(draw)) for place in range(1_500)]
        expected |= {event.value.id: min(number * 1_500 + place + 1, 6_000) for place, event in enumerate(events)}
        query.write(number, draw.sample(events, len(events)))
    query.run()
    found = {each: values for rows in query.epochs.values() for (each, _), values in rows}
    assert {each: values[1] for each, values in found.items()} == expected


def test_windows_that_have_closed_are_looked_back_over_and_none_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """Many of them close in one epoch, far behind its watermark, which is a minute further with each."""
    draw = seeded("closed")
    times = [sorted(number * 60 + draw.randrange(60) for _ in range(120)) for number in range(4)]
    parts = [[(f"{draw.randrange(40)}", each) for each in seconds] for seconds in times]
    parts += [[("end", 7_200)]]
    sums: dict[tuple[str, int], int] = {}
    for number, events in enumerate(parts):
        lines = [{"key": key, "at": f"{START + timedelta(seconds=at):%FT%TZ}", "whole": at} for key, at in events]
        put(tmp_path / "in", number, [{**line, "partition": 0} for line in lines])
        for key, at in events:
            end = at // 4 * 4 + 4
            sums[key, end] = sums.get((key, end), 0) + at
    del sums["end", 7_204]

    def told(rows: DataFrame) -> DataFrame:
        ends = mr.window(rows, "4 seconds", by="key", sum=mr.sum("whole"), emit="final", late=mr.late.drop())
        few, some = mr.last_n("sum", 3, over="80 seconds"), mr.sum("sum", over="20 seconds")
        return mr.lookback(ends, by="key", time="window_end", few=few, some=some)

    session = spark.newSession()
    found: dict[int, list[Row]] = {}

    def run() -> None:
        rows = told(epochs.events(session, tmp_path, "key string, at timestamp, whole long", LAG_S))
        drained(rows, tmp_path, lambda part, epoch: found.update({epoch: part.collect()}))

    hidden = [(tmp_path / "in" / f"{number:04}.json") for number in range(2, len(parts))]
    for path in hidden:
        path.rename(path.with_suffix(".later"))
    run()
    forget_commit(tmp_path / "checkpoint")
    for path in hidden:
        path.with_suffix(".later").rename(path)
    run()

    asked: list[tuple[int, Question]] = [
        (80, lambda events, _: [each.value for each in sorted(events)[-3:]]),
        (20, lambda events, _: sum(each.value for each in events)),
    ]
    given = [Event(key, end, value) for (key, end), value in sums.items()]
    expected = Lookback(asked, 0, False, closed=True).epoch(given, 7_200)
    assert not expected.refused
    begun = int(START.timestamp())
    rows = [
        (row.key, int(row.window_end.timestamp()) - begun, row["sum"], (row.few, row.some))
        for part in found.values()
        for row in part
    ]
    assert sorted(rows) == sorted((*each.event, each.values) for each in expected.results)
    assert sum(map(bool, found.values())) > 2


ROWS = "key string, Place string, at timestamp, lat double, n long"
TEN = "10 minutes"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "name at least one"),
        ({"n_": 5}, "an aggregate, for example"),
        ({"n_": mr.count()}, "say how far back it looks"),
        ({"n_": mr.count(over="ten")}, "a number and a unit"),
        ({"n_": mr.count(over="0 seconds")}, "longer than 0"),
        ({"n_": mr.last_n("n", 101, over=TEN)}, "from 1 to 100"),
        ({"n_": mr.last_n("n", True, over=TEN)}, "from 1 to 100"),
        ({"n_": mr.sum("key", over=TEN)}, "sums, averages and positions are of numbers"),
        ({"n_": mr.distance("lat", "key", over=TEN)}, "distance of double, string"),
        ({"place": mr.count(over=TEN)}, "another name"),
        ({"corrected": mr.count(over=TEN), "correct": True}, "another name"),
        ({"n_": mr.count(over=TEN), "late": None}, "what is done with late rows"),
        ({"n_": mr.count(over=TEN), "late": mr.late.update("1 day")}, "correct=True tells again"),
    ],
)
def test_what_cannot_be_asked(spark: SparkSession, given: dict[str, Any], says: str) -> None:
    rows = spark.createDataFrame([], ROWS)
    with pytest.raises(OptionInvalid, match=says):
        mr.lookback(rows, **{"by": "key", "late": mr.late.drop(), **given})


def test_windows_have_no_interval_of_their_own(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], ROWS)
    given: Any = {"by": "key", "emit": "final", "late": mr.late.drop()}
    with pytest.raises(OptionInvalid, match="leave its `over` out: it is over the window"):
        mr.window(rows, "1 minute", **given, n_=mr.count(over=TEN))
    with pytest.raises(OptionInvalid, match=r"only mr.lookback has mr.speed"):
        mr.session(rows, "1 minute", **given, n_=mr.speed("lat", "lat"))
