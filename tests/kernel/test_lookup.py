"""Lookups on Spark are the model: random keys, changes, repeats, cuts and a restart; and windows may follow them."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import millrace as mr
from millrace.capture import CapturedTable
from millrace.capture.database import Column
from millrace.errors import OptionInvalid
from millrace.flow import lookups
from millrace.kernel import UNAVAILABLE, UNFILLED
from millrace.model.latest import Change
from millrace.model.lookup import Event, Lookup
from millrace.model.windows import Row, Windows
from tests.kernel import epochs
from tests.kernel.epochs import SECOND, drained, played, put, watermarks_ms, with_input
from tests.rotation import seeded

pytestmark = pytest.mark.spark

RECORDS = "topic string, key string, value string, partition int, offset long, timestamp timestamp"
EVENTS = "id string, shop string, item long, at timestamp, name string"
COLUMNS = (
    Column("shop", "text", "string"),
    Column("item", "integer", "int"),
    Column("name", "text", "string"),
    Column("price", "numeric(8,2)", "decimal(8,2)"),
    Column("day", "date", "date"),
)
TABLE = CapturedTable("public.items", "shop.public.items", ("shop", "item"), COLUMNS)
START = datetime(2026, 3, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAG_S = 20


def us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


class History:
    """Records of a table and events that ask for its rows, epoch by epoch."""

    def __init__(self, name: str) -> None:
        self.draw = seeded(f"lookup {name}")
        self.offsets = [0, 0]
        self.written: list[Change] = []
        self.held: set[str] = set()
        self.events = 0

    def epoch(self, number: int, changes: int, events: int) -> tuple[list[Change], list[Event]]:
        told = [self._change() for _ in range(changes)]
        # A connector that was killed writes again what it does not remember; an executor's retry reads again.
        told += [self._placed(old.key, old.value) for old in self.draw.sample(self.written, min(3, len(self.written)))]
        told += self.draw.sample(self.written, min(5, len(self.written)))
        self.written += told
        self.draw.shuffle(told)
        return told, [self._event(number) for _ in range(events)]

    def _change(self) -> Change:
        key = json.dumps({"shop": self.draw.choice("ab"), "item": self.draw.randint(0, 6)})
        known = key in self.held
        if self.draw.random() < 0.3:
            self.held.discard(key)
            return self._placed(key, self.draw.choice((None, b'{"before":null,"after":null,"op":"d"}')))
        self.held.add(key)
        row = {
            **json.loads(key),
            # What the database left out of an update is in the row that is held.
            "name": UNAVAILABLE if known and self.draw.random() < 0.2 else self.draw.choice(["é", "pen", "", None]),
            "price": self.draw.choice([None, "0.10", str(self.draw.randint(0, 99_999) / 100)]),
            "day": self.draw.choice([None, "0999-12-31", "2011-12-30"]),
        }
        value = json.dumps({"before": None, "after": row, "op": "u" if known else "c"}).encode()
        wrapped = json.dumps({"schema": {"type": "struct"}, "payload": json.loads(key)}, separators=(",", ":"))
        return self._placed(wrapped if self.draw.random() < 0.3 else key, value)

    def _placed(self, key: str | None, value: bytes | None) -> Change:
        values = json.loads(key or "{}")
        partition = values.get("payload", values)["item"] % 2
        self.offsets[partition] += self.draw.randint(1, 3)
        return Change(TABLE.topic, key, value, partition, self.offsets[partition])

    def _event(self, number: int) -> Event:
        self.events += 1
        key = (self.draw.choice(["a", "b", "b", None]), self.draw.choice([None, *range(8)]))
        second = number * 15 + self.draw.randint(0, 20) - self.draw.choice((0, 0, 0, 5, 60, 180))
        return Event(key, (f"event-{self.events}", us(START) + second * SECOND + self.draw.choice((0, 1, 999_999))))


class Query:
    """Two folders of files, one file of each an epoch."""

    def __init__(self, spark: SparkSession, folder: Path, build: Callable[[DataFrame, DataFrame], DataFrame]) -> None:
        self.spark, self.folder, self.build = spark.newSession(), folder, build
        self.runs: dict[int, list[list[Any]]] = {}
        self.watermarks: dict[int, int] = {}
        self.refused = 0

    def write(self, number: int, changes: list[Change], events: list[Event]) -> None:
        coded = [
            change._replace(value=None if change.value is None else base64.b64encode(change.value).decode())._asdict()
            for change in changes
        ]
        put(self.folder / "records", number, coded)
        told = [
            {
                "id": event.name[0],
                "shop": event.key[0],
                "item": event.key[1],
                "at": (EPOCH + timedelta(microseconds=event.name[1])).isoformat(timespec="microseconds"),
                "name": "taken",
                "partition": 0,
            }
            for event in events
        ]
        put(self.folder / "events", number, told)

    def frames(self, table: CapturedTable = TABLE) -> tuple[DataFrame, DataFrame]:
        reader = self.spark.readStream.option("maxFilesPerTrigger", 1)
        (self.folder / "records").mkdir(exist_ok=True)
        events = epochs.events(self.spark, self.folder, EVENTS, LAG_S, "events")
        records = reader.schema(RECORDS).json(str(self.folder / "records")).withColumn("value", F.unbase64("value"))
        shape = T.StructType([T.StructField(each.name, T._parse_datatype_string(each.spark)) for each in table.columns])
        rows = records.select(F.from_json("key", shape).alias("row")).select("row.*")
        return events, lookups.offer(rows, lookups.Known(table, records, understood))

    def run(self) -> None:
        for report in drained(self.build(*self.frames()), self.folder, self._keep):
            told = [each for name, each in report["observedMetrics"].items() if name.startswith("millrace.late")]
            self.refused += sum(each["refused"] for each in told)
        self.watermarks = watermarks_ms(self.folder)

    def _keep(self, rows: DataFrame, epoch: int) -> None:
        self.runs.setdefault(epoch, []).append(rows.collect())

    @property
    def rows(self) -> dict[int, list[Any]]:
        return {epoch: runs[-1] for epoch, runs in self.runs.items()}


def understood(found: DataFrame) -> DataFrame:
    """The least that an engine does: it stops, but for a row whose delete follows."""
    stops = F.col("error").isNotNull() & ~F.col("error").startswith(UNFILLED)
    fault = F.when(stops, F.raise_error(F.col("error")).cast("boolean"))
    return found.where(fault.otherwise(F.col("event").isNotNull()))


def shown(row: str | None) -> tuple[Any, ...]:
    if row is None:
        return (None, None, None)
    held = json.loads(row)
    price, day = held["price"], held["day"]
    return held["name"], price and Decimal(price).quantize(Decimal("0.01")), day and date.fromisoformat(day)


@pytest.mark.parametrize(("how", "cut"), [("left", 3), ("inner", 1)])
def test_lookups_are_the_models_epoch_by_epoch(spark: SparkSession, tmp_path: Path, how: Any, cut: int) -> None:
    history = History(how)
    query = Query(
        spark, tmp_path, lambda events, table: mr.lookup(events, table, on=["shop", "item"], how=how, prefix="its_")
    )
    query.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    parts = [history.epoch(number, 0 if number == 3 else 20, 50) for number in range(5)]
    played(query, parts, cut)
    first, again = query.runs[cut - 1]
    assert Counter(first) == Counter(again)

    model, rows, nothing = Lookup(TABLE.key, how == "inner"), 0, 0
    for number, (changes, events) in enumerate(parts):
        found, errors = model.epoch(changes, events)
        assert all((each.error or "").startswith(UNFILLED) for each in errors)
        expected = Counter((*each.event.name, *each.event.key, "taken", *shown(each.row)) for each in found)
        assert expected == Counter(
            (row.id, us(row["at"].replace(tzinfo=UTC)), row.shop, row.item, row.name, row.its_name, row.price, row.day)
            for row in query.rows[number]
        ), f"epoch {number}"
        rows += sum(each.row is not None for each in found)
        nothing += sum(each.row is None for each in found)
    assert rows > 30
    assert (nothing > 60) == (how == "left")
    held = spark.read.format("statestore").option("stateVarName", "row").load(str(tmp_path / "checkpoint"))
    assert held.count() == len(model.latest.state)


def test_a_window_may_follow_and_still_counts_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    history = History("window")

    def build(events: DataFrame, table: DataFrame) -> DataFrame:
        found = mr.lookup(events, table, on=["shop", "item"], prefix="its_")
        twice = mr.lookup(found, table, on=["shop", "item"], prefix="again_")
        assert [twice.columns[0], *twice.columns[5:]] == ["id", *COLUMNS_OF_TWO]
        given: Any = {"emit": "final", "late": mr.late.drop()}
        return mr.window(twice, "30 seconds", by=["its_name", "again_name"], rows=mr.count(), **given)

    query = Query(spark, tmp_path, build)
    parts = [history.epoch(number, 15, 60) for number in range(6)]
    played(query, parts, 3)
    lookup, todo = Lookup(TABLE.key), list(parts)
    size = 30 * SECOND
    twin = Windows(lambda time: [(time - time % size, time - time % size + size)], 0, 0, True, len)
    told, refused = 0, 0
    for number in sorted(query.rows):
        rows: list[Row] = []
        if number in with_input(tmp_path):
            found, _ = lookup.epoch(*todo.pop(0))
            rows = [Row(shown(each.row)[0], each.event.name[1], None) for each in found]
        expected = twin.epoch(rows, query.watermarks[number] * 1_000)
        assert Counter((each.key, each.start, each.values) for each in expected.results) == Counter(
            (row.its_name, us(row.window_start.replace(tzinfo=UTC)), row.rows) for row in query.rows[number]
        ), f"epoch {number}"
        assert all(row.its_name == row.again_name for row in query.rows[number])
        told += len(expected.results)
        refused += expected.late_refused
    assert not todo
    assert told > 10
    assert query.refused == refused > 10


COLUMNS_OF_TWO = ["its_name", "price", "day", "again_name", "again_price", "again_day"]


def test_a_record_that_is_not_understood_stops_it(spark: SparkSession, tmp_path: Path) -> None:
    row = b'{"before":null,"after":{"shop":"a","item":1,"name":"n","price":"1","day":null},"op":"c"}'
    key = '{"shop":"a","item":1}'
    for number, (given, value, says) in enumerate(
        [
            (key, b"{", "JSON object"),
            (None, row, "no key"),
            ('{"shop":"a"}', row, "0:7 its key has no value for shop, item"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        query = Query(spark, folder, lambda events, table: mr.lookup(events, table, on=["shop", "item"]).drop("name"))
        query.write(0, [Change(TABLE.topic, given, value, 0, 7)], [Event(("a", 1), ("event", us(START)))])
        with pytest.raises(PySparkException, match=says):
            query.run()


def test_a_table_that_does_not_stream_is_joined_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    items: list[Any] = [("a", 1, "pen"), ("b", 2, "ink")]
    table = spark.createDataFrame(items, "shop string, item int, name string")
    asked: list[Any] = [("x", "a", "1", 1.0), ("y", "b", "2", 1.5), ("z", None, "1", 2.0)]
    events = spark.createDataFrame(asked, "name string, shop string, item string, number double")

    def found(**given: Any) -> list[tuple[Any, ...]]:
        return [tuple(row)[4:] for row in mr.lookup(events, table, **given).orderBy("name").collect()]

    assert mr.lookup(events, table, on=["shop", "item"]).columns == ["name", "shop", "item", "number", "table_name"]
    assert found(on=["shop", "item"]) == [("pen",), ("ink",), (None,)]
    assert found(on=["shop", "item"], how="inner") == [("pen",), ("ink",)]
    # 1.5 is no 1.
    assert found(on="number", key="item") == [("a", "pen"), (None, None), ("b", "ink")]
    with pytest.raises(PySparkException, match="several rows with the same name"):
        mr.lookup(events, table.withColumn("name", F.lit("x")), on="name", key="name").collect()
    with pytest.raises(OptionInvalid, match="it is a binary, and the table's key a bigint"):
        mr.lookup(events.withColumn("number", F.lit(b"1")), table, on="number", key="item")
    query = Query(spark, tmp_path, lambda events, _: mr.lookup(events, table, on=["shop", "item"]).select("table_name"))
    query.write(0, [], [Event(("b", 2), ("one", us(START))), Event(("b", 3), ("two", us(START)))])
    query.run()
    assert Counter(row.table_name for row in query.rows[0]) == {"ink": 1, None: 1}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"on": "item"}, "whole primary key: name the event's columns that hold shop, item"),
        ({"on": ["shop", "items"]}, "did you mean 'item'"),
        ({"on": ["shop", "item"], "key": "item"}, "which is shop, item"),
        ({"on": ["shop", "item"], "how": "full"}, '"left"'),
        ({"on": ["shop", "item"], "prefix": ""}, "there is a column 'name' already"),
        ({"on": ["shop", "item"], "changed": True}, "as the function was given it"),
        ({"on": ["shop", "item"], "batch": True}, r"mr\.now"),
    ],
)
def test_what_cannot_be_looked_up(spark: SparkSession, tmp_path: Path, given: dict[str, Any], says: str) -> None:
    events, table = Query(spark, tmp_path, lambda events, _: events).frames()
    table = table.where("name is not null") if given.pop("changed", False) else table
    events = spark.createDataFrame([], events.schema) if given.pop("batch", False) else events
    with pytest.raises(OptionInvalid, match=says):
        mr.lookup(events, table, **given)
