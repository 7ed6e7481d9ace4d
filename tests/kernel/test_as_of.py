"""As-of joins on Spark are the model: random histories, cuts, a crash and a restart, parts so small that they split.

The model forgets nothing, so that what the kernel cuts too early is missed. One query has many examples in it: an
example is the first part of the key.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import millrace as mr
from millrace.capture import CapturedTable
from millrace.capture.database import Column
from millrace.errors import OptionInvalid
from millrace.flow import histories, lookups
from millrace.flow.late import Late
from millrace.flow.lateness import LATE_METRIC
from millrace.kernel import UNAVAILABLE, told
from millrace.kernel import as_of as kernel
from millrace.kernel.calling import unpacked
from millrace.model import refusals
from millrace.model.as_of import AsOf, Change, Event, Result
from millrace.testing.checkpoints import forget_commit
from tests.kernel import epochs
from tests.kernel.epochs import SECOND, drained, played, put, watermarks_ms, with_input
from tests.kernel.test_windows import EPOCH, START, us
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

LAG_S = 20
EVENTS = "id long, shop string, item int, at timestamp"
TABLE = "shop string, item long, price long, at timestamp, gone boolean"
ON: Any = {"on": ["shop", "item"]}
POLICIES = {
    "drop": mr.late.drop(),
    "allow": mr.late.allow("40 seconds"),
    "side": mr.late.side("late", allow="10 seconds"),
}
ids = itertools.count()


def stamp(time: int) -> str:
    return (EPOCH + timedelta(microseconds=time)).isoformat(timespec="microseconds")


def moment(draw: random.Random, number: int) -> int:
    """Some are late by up to minutes; in every second epoch all are on whole seconds, so that versions, events and the
    watermark meet."""
    second = number * 15 + draw.randrange(0, 20) - draw.choice((0, 0, 0, 5, 30, 60, 180))
    return us(START) + second * SECOND + (0 if number % 2 == 0 else draw.choice((0, 0, 1, 500_000, 999_999)))


def made(draw: random.Random, number: int, examples: int) -> tuple[list[Change], list[Event]]:
    """Most keys have a history, some only events, some only rows."""
    changes, events = [], []
    for example in range(examples):
        for item in (0, 1, 2):
            key = (f"{example}", item)
            if item != 1 and draw.random() < 0.6:
                for _ in range(draw.choice((1, 1, 2, 6))):
                    price = None if draw.random() < 0.25 else next(ids)
                    changes.append(Change(key, moment(draw, number), price))
            if item != 2 and draw.random() < 0.7:
                asked = (f"{example}", None) if draw.random() < 0.05 else key
                events += [Event(asked, moment(draw, number), next(ids)) for _ in range(draw.choice((1, 1, 2, 7)))]
    draw.shuffle(changes)
    draw.shuffle(events)
    return changes, events


def at_the_edge(number: int, grace: int) -> tuple[list[Change], list[Event]]:
    """The newest event of an epoch, so that the next watermark is known; and what is just not over."""
    newest = Event(("newest", 0), us(START) + (number * 15 + LAG_S) * SECOND, next(ids))
    edge = us(START) + (number - 1) * 15 * SECOND
    key = ("edge", number % 4)
    times = [time + micro for time in (edge, edge - grace) for micro in (-1, 0, 1)] if number else []
    # An older version, which is only found if it is kept; and one at the very time of an event.
    changes = [Change(key, time, next(ids)) for time in (edge - 300 * SECOND, edge - grace, edge + 5)] if number else []
    return changes, [newest, *(Event(key, time, next(ids)) for time in times)]


class Query:
    """What was told, by epoch: results, refused events, and how many were counted as refused and allowed."""

    def __init__(self, spark: SparkSession, folder: Path, policy: Late, options: dict[str, Any]) -> None:
        self.spark, self.folder, self.policy, self.options = spark.newSession(), folder, policy, options
        self.kept = histories.EVERYTHING
        self.results: dict[int, Counter[Any]] = {}
        self.refused: dict[int, Counter[Any]] = {}
        self.counted: dict[int, tuple[int, int]] = {}
        self.watermarks: dict[int, int] = {}
        for name in ("events", "table"):
            (folder / name / "in").mkdir(parents=True)

    def write(self, number: int, changes: list[Change], events: list[Event]) -> None:
        rows = (
            {
                "shop": each.key[0],
                "item": each.key[1],
                "price": each.row,
                "gone": each.row is None,
                "at": stamp(each.time),
            }
            for each in changes
        )
        put(self.folder / "table" / "in", number, ({**row, "partition": 0} for row in rows))
        self.write_events(number, events)

    def write_events(self, number: int, events: list[Event]) -> None:
        asked = (
            {"id": each.value, "shop": each.key[0], "item": each.key[1], "at": stamp(each.time), "partition": 0}
            for each in events
        )
        put(self.folder / "events" / "in", number, asked)

    def frames(self) -> tuple[DataFrame, DataFrame]:
        events = epochs.events(self.spark, self.folder / "events", EVENTS, LAG_S)
        return events, epochs.events(self.spark, self.folder / "table", TABLE, LAG_S).drop("name")

    def asked(self, events: DataFrame, table: DataFrame) -> DataFrame:
        return mr.as_of(events, table, **ON, late=self.policy, deleted="gone", **self.options)

    def run(self) -> None:
        events, table = self.frames()
        token = histories.kept.set(lambda _: self.kept)
        try:
            _, inner = epochs.told(lambda: self.asked(events, self.named(table)))
        finally:
            histories.kept.reset(token)
        assert inner is not None
        for report in drained(self.shown(inner, table), self.folder, self._keep):
            late = [each for name, each in report["observedMetrics"].items() if name.startswith(LATE_METRIC)]
            self.counted[report["batchId"]] = (
                sum(each["refused"] for each in late),
                sum(each["allowed"] for each in late if "allowed" in each),
            )
        self.watermarks = watermarks_ms(self.folder)

    def named(self, table: DataFrame) -> DataFrame:
        """As the engine names the topic of a time."""
        at = F.col("at").alias("at", metadata={**table.schema["at"].metadata, histories.TOPIC: "prices"})
        return table.withColumn("at", at)

    def shown(self, inner: DataFrame, table: DataFrame) -> DataFrame:
        price = {
            new: unpacked(F.col(old), kernel.plain(table.schema))["price"]
            for new, old in (("price", kernel.FOUND), ("old", kernel.REPLACES))
        }
        return inner.withColumns(price)

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        self.results[epoch], self.refused[epoch] = Counter(), Counter()
        for row in rows.collect():
            if row[told.KIND] == told.RESULT:
                self.results[epoch][row[told.ROW].id, row.price, row[kernel.CORRECTED], row.old] += 1
            elif row[told.KIND] == told.REFUSED:
                self.refused[epoch][row[told.ROW].id, row[told.LATE_US]] += 1

    def state(self) -> dict[str, int]:
        names = ("history", "versionNodes", "rows", "eventNodes", "events")
        read = self.spark.read.format("statestore")
        checkpoint = str(self.folder / "checkpoint")
        return {name: read.option("stateVarName", name).load(checkpoint).count() for name in names}


def shown(result: Result) -> tuple[Any, ...]:
    replaced = result.replaces
    return result.event.value, result.row, replaced is not None, None if replaced is None else replaced.row


def compared(query: Query, twin: AsOf, parts: list[Any]) -> Counter[str]:
    """Epoch by epoch; how much there was of each kind."""
    seen: Counter[str] = Counter()
    todo = list(parts)
    for number in sorted(query.results):
        changes, events = todo.pop(0) if number in with_input(query.folder) else ([], [])
        expected = twin.epoch(changes, events, query.watermarks[number] * 1_000)
        assert query.results[number] == Counter(map(shown, expected.results)), f"epoch {number}"
        refused = Counter((each.event.value, each.late) for each in expected.refused)
        assert query.refused[number] == refused, f"epoch {number}"
        counted = (len(expected.refused) + expected.changes_refused, expected.late_allowed)
        assert query.counted[number] == counted, f"epoch {number}"
        seen["told"] += len(expected.results)
        seen["none"] += sum(each.row is None for each in expected.results)
        seen["corrected"] += sum(each.replaces is not None for each in expected.results)
        seen["late"] += sum(each.late is not None for each in expected.refused)
        seen["unknown"] += sum(each.late is None for each in expected.refused)
        seen["allowed"] += expected.late_allowed
        seen["changes"] += expected.changes_refused
    assert not todo
    return seen


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_EVENTS", 4), ("MOST_PARTS", 3), ("GONE_KEPT_US", 600 * SECOND)):
        monkeypatch.setattr(kernel, name, most)


def tied(spark: SparkSession, parts: list[Any], *, begins: bool = True) -> list[Any]:
    """With the ties that the operator gives to rows: of two at the same time, which one counts is not said."""
    every = [each for changes, _ in parts for each in changes]
    rows = [(*each.key, each.row, EPOCH + timedelta(microseconds=each.time), each.row is None) for each in every]
    frame = spark.createDataFrame(rows, T._parse_datatype_string(TABLE))
    packed = kernel.packed(F.struct(*frame.columns), kernel.plain(frame.schema))
    ties = iter(frame.select(F.xxhash64(packed).alias("tie")).collect())
    return [
        ([each._replace(tie=next(ties).tie, begins=begins) for each in changes], events) for changes, events in parts
    ]


CASES = [
    ("updates", "side", {}),
    ("final", "allow", {}),
    ("updates", "drop", {"whole": False}),
    ("final", "drop", {"how": "inner"}),
    ("updates", "allow", {"since": 40}),
    ("final", "side", {"whole": False, "since": 20}),
]


@pytest.mark.parametrize(("emit", "policy", "more"), todays(CASES, 1))
@pytest.mark.usefixtures("small_parts")
def test_as_of_joins_are_the_models_epoch_by_epoch(
    spark: SparkSession, tmp_path: Path, emit: Any, policy: str, more: dict[str, Any]
) -> None:
    draw = seeded(f"{emit} {policy} {more}")
    given, how = POLICIES[policy], more.get("how", "left")
    query = Query(spark, tmp_path, given, {"emit": emit, "how": how})
    since = us(START) + more["since"] * SECOND if "since" in more else None
    query.kept = histories.Kept(since, more.get("whole", True))
    grace = given.grace_ms * 1_000
    parts: list[Any] = []
    for number in range(7):
        some, edge = made(draw, number, 50), at_the_edge(number, grace)
        parts.append((some[0] + edge[0], some[1] + edge[1]))
    end = us(START) + 3_600 * SECOND
    parts.append(([Change(("end", 0), end, 1)], [Event(("end", 0), end, next(ids))]))
    played(query, parts, 4)
    twin = AsOf(emit == "final", grace, how == "inner", query.kept.whole, since)
    seen = compared(query, twin, tied(spark, parts, begins=query.kept.whole))
    assert seen["told"] > 250
    kinds = {"none": how == "left", "allowed": grace > 0, "corrected": emit == "updates" or grace > 0}
    kinds |= {"unknown": not query.kept.whole or since is not None, "told": True, "late": True, "changes": True}
    assert {kind: seen[kind] > 0 for kind in kinds} == kinds
    # One version of each key that has a row, and the last event. Where absence is not known, deletes are remembered.
    held = query.state()
    newest = {key: versions[max(versions)].row for key, versions in twin.versions.items()}
    rows = sum(row is not None for row in newest.values())
    assert held["rows"] == rows
    assert held["events"] == 1
    assert held["history"] == (rows if query.kept.whole else len(newest))
    assert held["versionNodes"] == held["eventNodes"] == 0


@pytest.mark.usefixtures("small_parts")
def test_a_batch_is_the_model_and_what_a_stream_told_last(spark: SparkSession, tmp_path: Path) -> None:
    draw = seeded("batch")
    some = [made(draw, number, 25) for number in (4, 5, 6, 14)]
    changes, events = ([each for part in some for each in part[side]] for side in (0, 1))
    query = Query(spark, tmp_path, mr.late.allow("1 hour"), {"emit": "updates"})
    table = spark.createDataFrame(
        [(*each.key, each.row, EPOCH + timedelta(microseconds=each.time), each.row is None) for each in changes],
        T._parse_datatype_string(TABLE),
    )
    asked = spark.createDataFrame(
        [(each.value, *each.key, EPOCH + timedelta(microseconds=each.time)) for each in events],
        T._parse_datatype_string(EVENTS),
    )
    found = query.asked(asked, table)
    assert found.columns == ["id", "shop", "item", "at", "price", "table_at", "gone", "corrected", "replaces"]
    rows = found.collect()
    told_last = {row.id: row.price for row in rows}
    twin = AsOf(final=False, grace=0)
    expected = twin.epoch(*tied(spark, [(changes, events)])[0], 0)
    assert told_last == {each.event.value: each.row for each in expected.results}
    assert len(rows) == len(events) > 200
    assert not any(row.corrected or row.replaces for row in rows)
    inner = mr.as_of(asked, table, **ON, emit="final", late=mr.late.drop(), how="inner", deleted=F.col("gone"))
    assert {row.id: row.price for row in inner.collect()} == {
        each: price for each, price in told_last.items() if price is not None
    }
    since = EPOCH + timedelta(microseconds=us(START) + 70 * SECOND)
    known = mr.as_of(asked, table, **ON, emit="final", late=mr.late.drop(), since=since).select("id").collect()
    assert {row.id for row in known} == {each.value for each in events if each.time >= us(since)}

    cuts = [sorted(draw.sample(range(len(rows)), 4)) for rows in (changes, events)]
    for number in range(5):
        parts = (
            rows[([0, *places])[number] : [*places, len(rows)][number]]
            for rows, places in zip((changes, events), cuts, strict=True)
        )
        query.write(number, *parts)  # type: ignore[arg-type]
    query.run()
    told_by_stream = {}
    for number in sorted(query.results):
        told_by_stream |= {each[0]: each[1] for each in sorted(query.results[number], key=lambda each: each[2])}
    assert told_by_stream == told_last


ITEMS = CapturedTable(
    "public.items",
    "shop.public.items",
    ("shop", "item"),
    (Column("shop", "text", "string"), Column("item", "integer", "int"), Column("price", "bigint", "bigint")),
)
RECORDS = "topic string, key string, value string, partition int, offset long, timestamp timestamp"


class Captured(Query):
    """The same with records of a captured table."""

    def __init__(self, spark: SparkSession, folder: Path, policy: Late, options: dict[str, Any]) -> None:
        super().__init__(spark, folder, policy, options)
        self.offsets = [0, 0]
        self.held: dict[Any, tuple[int, int | None]] = {}  # the time of the newest version, and its row
        self.expected: dict[int, list[Change]] = {}

    def write_records(self, draw: random.Random, number: int, examples: int) -> list[Change]:
        """Changes in the order of the log, of which some say times before the last; repeats; and gaps, which are filled
        from the row before."""
        lines, changes = [], []
        keys = [(f"{example}", item) for example in range(examples) for item in (0, 2)]
        for key in draw.choices(keys, k=examples * 3):
            line, change = self._record(draw, key, moment(draw, number))
            lines += [line] * draw.choice((1, 1, 1, 2))
            changes += [change] if change else []
        draw.shuffle(lines)
        put(self.folder / "table" / "in", number, lines)
        return changes

    def _record(self, draw: random.Random, key: Any, time: int) -> tuple[dict[str, Any], Change | None]:
        before_us, row = self.held.get(key, (None, None))
        partition = key[1] // 2
        self.offsets[partition] += draw.randint(1, 3)
        line = {
            "topic": ITEMS.topic,
            "key": json.dumps({"shop": key[0], "item": key[1]}),
            "partition": partition,
            "offset": self.offsets[partition],
            "timestamp": stamp(time),
        }
        op = draw.choice(("u", "u", "d", "tombstone")) if row is not None else draw.choice("cccr")
        price = next(ids)
        if op == "tombstone":  # it has no other time than its record's
            line["value"], new = None, None
        else:
            new = None if op == "d" else price
            after = None if op == "d" else {"shop": key[0], "item": key[1], "price": price}
            if op == "u" and draw.random() < 0.2:
                after, new = {**after, "shop": UNAVAILABLE}, price  # type: ignore[dict-item]
            source = {"ts_ms": time // 1_000, **({"ts_us": time} if draw.random() < 0.7 else {})}
            time = time if "ts_us" in source else time // 1_000 * 1_000
            line["value"] = json.dumps({"before": None, "after": after, "op": op, "source": source})
        time = time if before_us is None else max(time, before_us)
        self.held[key] = (time, new)
        return line, Change(key, time, new, int(str(line["offset"])), op == "c")

    def frames(self) -> tuple[DataFrame, DataFrame]:
        events = epochs.events(self.spark, self.folder / "events", EVENTS, LAG_S)
        reader = self.spark.readStream.option("maxFilesPerTrigger", 1).schema(RECORDS)
        records = reader.json(str(self.folder / "table" / "in"))
        shape = T.StructType([T.StructField(each.name, T._parse_datatype_string(each.spark)) for each in ITEMS.columns])
        rows = records.select(F.from_json("key", shape).alias("row")).select("row.*")
        known = lookups.Known(ITEMS, records, lambda found: found.where("error is null"), lambda _: records)
        return events, lookups.offer(rows, known)

    def named(self, table: DataFrame) -> DataFrame:
        return table

    def asked(self, events: DataFrame, table: DataFrame) -> DataFrame:
        found = mr.as_of(events, table, **ON, late=self.policy, lateness="5 seconds", **self.options)
        assert found.columns == ["id", "shop", "item", "at", "price", "corrected", "replaces"]
        assert found.schema["replaces"].dataType.simpleString() == "struct<price:bigint>"
        return found

    def shown(self, inner: DataFrame, _: DataFrame) -> DataFrame:
        texts = {"price": F.col(kernel.FOUND).cast("string"), "old": F.col(kernel.REPLACES).cast("string")}
        return inner.withColumns(
            {name: F.get_json_object(text, "$.price").cast("long") for name, text in texts.items()}
        )


@pytest.mark.parametrize("emit", todays(["updates", "final"], 1))
@pytest.mark.usefixtures("small_parts")
def test_a_captured_table_has_the_times_of_its_commits(spark: SparkSession, tmp_path: Path, emit: Any) -> None:
    draw = seeded(emit)
    query = Captured(spark, tmp_path, mr.late.allow("20 seconds"), {"emit": emit})
    parts: list[Any] = []
    for number in range(8):
        changes = query.write_records(draw, number, 30)
        parts.append((changes, [*made(draw, number, 30)[1], *at_the_edge(number, 20 * SECOND)[1]]))
        query.write_events(number, parts[-1][1])
        if number == 4:
            query.run()
            forget_commit(query.folder / "checkpoint")
    query.run()
    twin = AsOf(emit == "final", 20 * SECOND, logged=True)
    seen = compared(query, twin, parts)
    kinds = ("told", "none", "late", "unknown", "allowed", "changes")
    assert min(seen[kind] for kind in kinds) > 0
    # What is told once is hardly ever corrected here: the times of a log only go up.
    assert seen["corrected"] > 0 or emit == "final"


def test_a_record_that_is_not_understood_is_told(spark: SparkSession, tmp_path: Path) -> None:
    query = Captured(spark, tmp_path, mr.late.drop(), {"emit": "updates"})
    line = {"topic": ITEMS.topic, "partition": 0, "timestamp": stamp(us(START))}
    row = '{"before":null,"after":{"shop":"a","item":0,"price":1},"op":"c"}'
    keyed = {**line, "key": json.dumps({"shop": "a", "item": 0})}
    put(tmp_path / "table" / "in", 0, [{**line, "value": row, "offset": 1}, {**keyed, "value": "{", "offset": 2}])
    query.write_events(0, [])
    events, table = query.frames()
    known = lookups.known_of(table)
    assert known is not None
    lookups.offer(table, replace(known, understood=lambda found: found.where("error is not null")))
    errors: list[str] = []
    _, inner = epochs.told(lambda: query.asked(events, table))
    assert inner is not None
    drained(inner, tmp_path, lambda rows, _: errors.extend(row.error for row in rows.collect()))
    assert sorted(errors) == [refusals.NO_KEY, refusals.NOT_JSON]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"emit": None}, '"final" .once'),
        ({"late": None}, "what is done with late rows"),
        ({"late": mr.late.update("1 day")}, "corrections name what they replace"),
        ({"how": "full"}, '"left"'),
        ({"how": "inner"}, "may lose its row"),
        ({"on": "nothing"}, "the table's columns"),
        ({"on": ["shop", "nothing"], "key": ["shop", "item"]}, "columns of the events"),
        ({"key": "shop"}, "as many columns as `on` has: 2"),
        ({"lateness": "1 second"}, "the table's topic says it"),
        ({"since": "soon"}, "a time, for example"),
        ({"prefix": ""}, "there is a column 'at' already"),
        ({"captured": True}, "how long after its commit"),
        ({"captured": True, "lateness": "1 second", "deleted": "gone"}, "the capture says"),
        ({"captured": True, "lateness": "1 second", "on": "item"}, "whole primary key"),
        ({"now": True}, "this one has no past"),
        ({"batch": True}, "events that stream too"),
        ({"order": "nothing"}, "a column of the table"),
        ({"order": "at"}, "a whole number, which a timestamp is not"),
        ({"captured": True, "lateness": "1 second", "order": "price"}, "a log has an order"),
        ({"renamed": "corrected"}, "rename that column"),
        ({"captured": True, "changed": True, "lateness": "1 second"}, "as the function was given it"),
        ({"captured": True, "changed": True}, "'a stream whose rows have no time'"),
    ],
)
def test_what_cannot_be_asked(spark: SparkSession, tmp_path: Path, given: dict[str, Any], says: str) -> None:
    kind = Captured if given.pop("captured", False) else Query
    events, table = kind(spark, tmp_path, mr.late.drop(), {}).frames()
    if given.pop("batch", False):
        events = spark.createDataFrame([], events.schema)
    if given.pop("now", False):
        table = lookups.offer(spark.createDataFrame([], table.schema), lookups.Known(ITEMS))
    if given.pop("changed", False):
        table = table.drop("__diff").where("price > 0")
    if "renamed" in given:
        events = events.withColumn(given.pop("renamed"), F.lit(1))
    with pytest.raises(OptionInvalid, match=says):
        mr.as_of(events, table, **{**ON, "emit": "updates", "late": mr.late.drop(), **given})
