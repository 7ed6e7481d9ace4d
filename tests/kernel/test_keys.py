"""Keys of every type, whole and with nulls in them: operators tell them apart as SQL does, and as their models do.

An event's key is the name of a case, from which Spark has the values: a column of each type, all of them the key. What
SQL takes for the same, the two zeros and all NaNs, is one case for the model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.engine.operators import kept
from millrace.errors import OptionInvalid
from millrace.kernel import signed
from millrace.kernel.calling import unpacked
from millrace.model import as_of, joins, latest
from millrace.model import signed as bags
from tests.kernel.beside import paired
from tests.kernel.parts import START, TABLE, Event, Part, Twin, us
from tests.kernel.specimens import SECOND, SPECIMENS, Specimen
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

STRUCTS = [(0.0, Row(c="")), (-0.0, Row(c="")), (math.nan, None), (None, Row(c=None))]
# Of each type the value that all other cases have, and those that a case has.
VALUES: list[tuple[str, list[Any]]] = [
    ("string", ["", "a", "a\0", "é", "\U0001f409"]),
    ("binary", [b"", b"\0", b"\0\xff"]),
    ("byte", [0, -128]),
    ("short", [0, 32767]),
    ("int", [0, -(2**31)]),
    ("long", [0, 2**63 - 1]),
    ("decimal(38,2)", [Decimal("0.00"), Decimal("0.10"), Decimal(f"-{'9' * 36}.99")]),
    ("decimal(9,4)", [Decimal("0.0000"), Decimal("1.2500")]),
    ("double", [0.0, -0.0, 1.5, math.nan, math.inf, 5e-324]),
    ("float", [0.0, -0.0, 0.5, math.nan]),
    ("boolean", [False, True]),
    ("date", [date(1970, 1, 1), date(1, 1, 1), date(2011, 12, 30)]),
    ("timestamp", [datetime(2026, 1, 1), datetime(1900, 1, 1, 0, 0, 0, 1), datetime(2026, 1, 1, 0, 0, 0, 1)]),
    ("timestamp_ntz", [datetime(2026, 1, 1), datetime(1, 1, 1), datetime(2026, 3, 29, 2, 30)]),
    ("struct<a: double, b: struct<c: string>>", [Row(a=a, b=b) for a, b in STRUCTS]),
]  # fmt: skip
COLUMNS = [f"t{place}" for place in range(len(VALUES))]
SCHEMA = "key string, " + ", ".join(f"t{place} {type_}" for place, (type_, _) in enumerate(VALUES))


@cache
def cases() -> dict[str, tuple[Any, ...]]:
    plain = tuple(values[0] for _, values in VALUES)
    found = {"plain": plain, "nothing": (None,) * len(VALUES)}
    for place, (type_, values) in enumerate(VALUES):
        for number, value in enumerate([None, *values[1:]]):
            found[f"{type_} {number}"] = (*plain[:place], value, *plain[place + 1 :])
    return found


def same(value: Any) -> Any:
    """What is equal where SQL takes values for the same."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, bytearray):
        return bytes(value)
    return tuple(map(same, value)) if isinstance(value, list | tuple) else value


@cache
def first_alike() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for name, values in cases().items():
        found.setdefault(same(values), name)
    return found


def label(values: Any) -> str:
    return first_alike()[same(tuple(values))]


def typed(rows: DataFrame) -> DataFrame:
    known = rows.sparkSession.createDataFrame([(name, *values) for name, values in cases().items()], SCHEMA)
    return rows.join(F.broadcast(known), "key").drop("key")


def made(draw: random.Random) -> list[Part]:
    """Each case in each epoch, so that what was kept is found again. But the zeros take turns: rows of an epoch that
    SQL takes for the same come together anyhow, under the key of one of them."""
    zeros = [name for name, values in cases().items() if label(values) == "plain"]
    parts, id_, offset = [], 0, 0
    for number in range(3):
        events, changes = [], []
        for case in draw.sample(sorted(cases()), len(cases())):
            if case in zeros and zeros.index(case) % 3 != number:
                continue
            for _ in range(draw.choice((1, 2, 3))):
                id_ += 1
                time = us(START) + (number * 15 + draw.randrange(20)) * SECOND + id_
                events.append(Event(id_, case, time, draw.randint(0, 9), None, draw.choice("ab")))
            offset += 1
            changes.append(latest.Change(TABLE.topic, case, None, 0, offset))
        parts.append(Part(events, changes))
    return parts


def alike(part: Part) -> Part:
    """As SQL has it."""
    return Part([each._replace(key=label(cases()[str(each.key)])) for each in part.events], part.changes)


def as_typed(name: str) -> Specimen:
    plain = SPECIMENS[name]

    def build(rows: DataFrame, records: DataFrame) -> DataFrame:
        return plain.build(typed(rows), records, by=COLUMNS)

    def shown(row: Row) -> Any:
        named = row.asDict()
        return plain.shown(Row(**named, key=label(named[name] for name in COLUMNS)))

    def twin() -> Twin:
        made = plain.twin()
        return Twin(made.model, lambda part, watermark: made.epoch(alike(part), watermark))

    return replace(plain, build=build, shown=shown, twin=twin)


# A table's row for each case, whose name is where its record was.
def _since(offset: int) -> int:
    return us(START) + offset * 100_000


def _changes(records: DataFrame) -> DataFrame:
    at = F.timestamp_micros(F.lit(us(START)) + F.col("offset") * 100_000)
    table = typed(records.select("key", F.col("offset").alias("name"), at.alias("since")))
    return table.withWatermark("since", "10 seconds")


def _as_of(rows: DataFrame, records: DataFrame) -> DataFrame:
    late = mr.late.allow("1 hour")
    return mr.as_of(typed(rows), _changes(records), on=COLUMNS, emit="updates", late=late)


def _as_of_twin() -> Twin:
    model = as_of.AsOf(final=False, grace=3_600 * SECOND)

    def key(case: str | None) -> tuple[str | None]:
        values = cases()[str(case)]
        return (None if None in values else label(values),)

    def epoch(part: Part, watermark: int) -> list[Any]:
        changes = [
            as_of.Change(key(each.key), _since(each.offset), each.offset)
            for each in part.changes
            if key(each.key) != (None,)
        ]
        told = model.epoch(changes, [as_of.Event(key(each.key), each.time, each.id) for each in part.events], watermark)
        return [
            [each.event.value, each.row, each.replaces is not None, each.replaces and each.replaces.row]
            for each in told.results
        ]

    return Twin(model, epoch)


# How many rows a key has; and the rows of a key with their partners, which a null has none of.
def _signed(rows: DataFrame, _: DataFrame) -> DataFrame:
    told = typed(rows).withColumn(signed.DIFF, F.lit(1))
    tables = {
        "a": (F.col("item") == "a", [*COLUMNS, F.col("id")]),
        "b": (
            F.col("item") == "b",
            [F.col(name).alias(f"other_{name}") for name in COLUMNS] + [F.col("id").alias("b")],
        ),
    }
    chain = signed.begin(told, tables).copy("a", into="a0")
    chain = chain.aggregate("a0", by=COLUMNS, measures=[signed.Measure("n", "count")], into="groups")
    on = [(name, f"other_{name}") for name in COLUMNS]
    chain = chain.join("a", "b", on=on, how="left", into="pairs")
    (groups, pairs) = (
        F.when(F.col(signed.TAG) == chain.tables[name].tag, unpacked(F.col(signed.ROW), chain.tables[name].schema))
        for name in ("groups", "pairs")
    )
    return chain.rows.select(signed.DIFF, groups.alias("groups"), pairs.alias("pairs"))


def _signed_row(row: Row) -> Any:
    if row.groups is not None:
        return ["group", label(row.groups[:-1]), row.groups.n, row[signed.DIFF]]
    return ["pair", row.pairs.id, row.pairs.b, row[signed.DIFF]]


def _signed_twin() -> Twin:
    a, b = bags.Bag(), bags.Bag()
    before: list[bags.Bag] = [bags.Bag(), bags.Bag()]

    def epoch(part: Part, _: int) -> list[Any]:
        for each in part.events:
            values = cases()[str(each.key)]
            key = None if None in values else label(values)
            (a if each.item == "a" else b)[label(values), key, each.id] += 1
        tables = {"a": bags.Table(("k", "on", "id"), a), "b": bags.Table(("l", "other", "b"), b)}
        chain = bags.Chain(tables).copy("a", into="a0")
        chain = chain.aggregate("a0", by=["k"], measures=[bags.Measure("n", "count")], into="groups")
        chain = chain.join("a", "b", on=[("on", "other")], how="left", into="pairs")
        after = [chain.table("groups"), chain.table("pairs")]
        groups, pairs = (bags.difference(*each) for each in zip(before, after, strict=True))
        before[:] = after
        return [
            *(["group", *row, diff] for row, diff in groups.items()),
            *(["pair", row[2], row[5], diff] for row, diff in pairs.items()),
        ]

    return Twin(None, epoch)


# The kernel's join takes keys whose equal values have the same bytes; by others it is Spark's own.
EXACT = [place for place, (type_, _) in enumerate(VALUES) if not type_.startswith(("double", "float", "struct"))]


def _join(rows: DataFrame, records: DataFrame) -> DataFrame:
    on = [COLUMNS[place] for place in EXACT]
    joined = mr.join(typed(rows), _changes(records), on=on, within=("-1 hour", "1 hour"))
    assert [each["operator"] for each in kept(joined)] == ["stream_join"]
    return joined


def _join_rows(part: Part) -> tuple[list[joins.Row], list[joins.Row]]:
    def row(case: str | None, time: int, name: int) -> joins.Row:
        values = tuple(same(cases()[str(case)][place]) for place in EXACT)
        return joins.Row(None if None in values else values, time, str(name))

    events = [row(each.key, each.time, each.id) for each in part.events]
    return events, [row(each.key, _since(each.offset), each.offset) for each in part.changes]


BY_KEY = {
    name: as_typed(name)
    for name in ("lookback", "match", "top", "players", "latest", "dedup", "window", "session", "sketches")
}
OF_BOTH = {
    "as_of": Specimen(
        _as_of, lambda row: [row.id, row.name, row.corrected, row.replaces and row.replaces.name], _as_of_twin
    ),
    "signed": Specimen(_signed, _signed_row, _signed_twin),
    "join": Specimen(_join, lambda row: [row.id, row.name], lambda: paired(-3_600, 3_600, _join_rows)),
}
KEYED = {**BY_KEY, **OF_BOTH}


@pytest.mark.parametrize("name", todays(list(KEYED), 2))
def test_keys_of_every_type_are_told_apart_as_sql_does(spark: SparkSession, tmp_path: Path, name: str) -> None:
    parts = made(seeded(name))
    KEYED[name].crashed(spark, tmp_path, parts)
    assert KEYED[name].faults(tmp_path, parts) == []
    assert len(first_alike()) == len(cases()) - 3


@pytest.mark.parametrize("type_", ["array<int>", "struct<a: map<string, int>>"])
def test_a_key_of_many_values_is_refused(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    rows = spark.readStream.schema(f"k {type_}, at timestamp, n int").json(str(tmp_path))
    timed, late = rows.withWatermark("at", "1 second"), mr.late.drop()
    asked: list[Callable[[], Any]] = [
        lambda: mr.lookback(timed, by="k", n=mr.count(over="1 hour"), late=late),
        lambda: mr.window(timed, "1 hour", by="k", n=mr.count(), emit="final", late=late),
        lambda: mr.match(timed, by="k", pattern="a", define={"a": "n > 1"}, within="1 hour", late=late),
        lambda: mr.latest(timed, by="k"),
        lambda: mr.dedup(timed, on="k", late=late),
        lambda: mr.as_of(timed, timed, on="k", emit="final", late=late),
    ]
    for each in asked:
        with pytest.raises(OptionInvalid, match="by which no state is kept"):
            each()
