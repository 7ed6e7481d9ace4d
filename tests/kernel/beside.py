"""Specimens of events beside a table's rows, or beside another stream's: see `specimens`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr
from millrace import kernel
from millrace.flow import lookups
from millrace.kernel import join as joining
from millrace.model import as_of, joins, latest, lookup
from tests.kernel.epochs import SECOND
from tests.kernel.parts import LAG_S, START, TABLE, Part, Twin, us


# A table's rows, by themselves and beside events.
def looked_up(rows: DataFrame, records: DataFrame) -> DataFrame:
    table = records.select(F.from_json("key", "item string, name string").alias("row")).select("row.*")
    known = lookups.Known(TABLE, records, lambda found: found.where("event is not null"))
    return mr.lookup(rows, lookups.offer(table, known), on="item")


def lookup_twin() -> Twin:
    model = lookup.Lookup(("item",))

    def epoch(part: Part, _: int) -> list[Any]:
        found, errors = model.epoch(part.changes, [lookup.Event((event.item,), event.id) for event in part.events])
        assert not errors
        return [[each.event.name, each.row and json.loads(each.row)["name"]] for each in found]

    return Twin(model, epoch)


def table_rows(_: DataFrame, records: DataFrame) -> DataFrame:
    return kernel.latest_by_key(records)


def table_twin() -> Twin:
    model = latest.LatestByKey()

    def epoch(part: Part, _: int) -> list[Any]:
        return [[each.key, each.row, each.diff, each.offset] for each in model.apply(part.changes)]

    return Twin(model, epoch)


# The row of an event's time: changes are 5 s apart, some come after later ones, and events are told again.
AS_OF_GRACE = 20 * SECOND


def _change_us(offset: int) -> int:
    return us(START) + (offset * 5 - offset % 4 * 6) * SECOND


def _timed(records: DataFrame) -> DataFrame:
    seconds = F.expr("offset * 5 - offset % 4 * 6")
    return records.withColumn("timestamp", F.timestamp_seconds(F.lit(us(START) // SECOND) + seconds))


def found_as_of(rows: DataFrame, records: DataFrame) -> DataFrame:
    timed = _timed(records)
    table = timed.select(F.from_json("key", "item string, name string").alias("row")).select("row.*")
    known = lookups.Known(TABLE, timed, lambda found: found.where("error is null"), lambda _: timed)
    late = mr.late.allow("20 seconds")
    return mr.as_of(rows, lookups.offer(table, known), on="item", emit="updates", late=late, lateness="5 seconds")


def as_of_twin() -> Twin:
    model = as_of.AsOf(final=False, grace=AS_OF_GRACE)
    newest: dict[str, as_of.Change] = {}

    def versions(change: latest.Change) -> Iterator[as_of.Change]:
        """Never before the change that it follows. Nothing is gone that was not there."""
        assert change.key is not None
        item, before = json.loads(change.key)["item"], newest.get(change.key)
        row = None if change.value is None else json.loads(change.value)["after"]["name"]
        if row is None and (before is None or before.row is None):
            return
        time = max(_change_us(change.offset), before.time if before else 0)
        newest[change.key] = as_of.Change((item,), time, row, change.offset)
        yield newest[change.key]

    def epoch(part: Part, watermark: int) -> list[Any]:
        changes = [each for change in part.changes for each in versions(change)]
        told = model.epoch(changes, [as_of.Event((each.item,), each.time, each.id) for each in part.events], watermark)
        return [[each.event.value, each.row, *_replaced(each.replaces)] for each in told.results]

    return Twin(model, epoch)


# The same of a stream's rows, of which none goes.
def found_versions(rows: DataFrame, records: DataFrame) -> DataFrame:
    late = mr.late.allow("20 seconds")
    return mr.as_of(rows, _offsets(records), on="item", emit="updates", late=late)


def _offsets(records: DataFrame) -> DataFrame:
    item = F.get_json_object("key", "$.item").alias("item")
    changes = _timed(records).select(item, F.col("offset").alias("change"), F.col("timestamp").alias("since"))
    return changes.withWatermark("since", f"{LAG_S} seconds")


def versions_twin() -> Twin:
    model = as_of.AsOf(final=False, grace=AS_OF_GRACE)

    def epoch(part: Part, watermark: int) -> list[Any]:
        keys = [(json.loads(str(each.key))["item"],) for each in part.changes]
        pairs = zip(keys, part.changes, strict=True)
        changes = [as_of.Change(key, _change_us(each.offset), each.offset) for key, each in pairs]
        told = model.epoch(changes, [as_of.Event((each.item,), each.time, each.id) for each in part.events], watermark)
        return [[each.event.value, each.row, *_replaced(each.replaces)] for each in told.results]

    return Twin(model, epoch)


def _replaced(before: as_of.Answer | None) -> tuple[bool, Any]:
    return before is not None, None if before is None else before.row


# Events with the changes around them; so little is kept together that items have several parts.
AROUND_S = (-12, 18)


def joined(rows: DataFrame, records: DataFrame) -> DataFrame:
    within: Any = tuple(f"{each} seconds" for each in AROUND_S)
    with mock.patch.multiple(joining, MOST_INLINE=400, MOST_TOGETHER=600):
        return mr.join(rows, _offsets(records), on="item", within=within)


def paired(first_s: int, last_s: int, rows: Callable[[Part], tuple[list[joins.Row], list[joins.Row]]]) -> Twin:
    """`rows` gives an epoch's, of both streams; pairs are told by their names, which are numbers."""
    model, told = joins.IntervalJoin(first_s * SECOND, last_s * SECOND), set[tuple[str, str]]()

    def epoch(part: Part, watermark: int) -> list[Any]:
        model.epoch(*rows(part), watermark)
        fresh = {(one.name, two.name) for one, two in model.pairs()} - told
        told.update(fresh)
        return [[int(one), int(two)] for one, two in fresh]

    return Twin(model, epoch)


def _join_rows(part: Part) -> tuple[list[joins.Row], list[joins.Row]]:
    events = [joins.Row(each.item, each.time, str(each.id)) for each in part.events]
    items = [json.loads(str(each.key))["item"] for each in part.changes]
    changes = zip(items, part.changes, strict=True)
    return events, [joins.Row(item, _change_us(each.offset), str(each.offset)) for item, each in changes]


def join_twin() -> Twin:
    return paired(*AROUND_S, _join_rows)
