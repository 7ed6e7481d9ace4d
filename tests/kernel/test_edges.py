"""Operators where something is just met or just missed, where clocks jump, and where rows are large: as their models.

Times that operators were told (how long, how far back, how late) are met to the microsecond; events are of 1970, of a
year ahead, and of now again; texts are so long that what is kept of a key has megabytes.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from millrace.kernel import signed
from millrace.model import latest
from millrace.model import signed as bags
from tests.kernel.chains import CHAINS
from tests.kernel.parts import LAG_S, START, Event, Part, Twin, changed, us
from tests.kernel.specimens import SECOND, SPECIMENS, Specimen
from tests.rotation import todays

pytestmark = pytest.mark.spark

# What specimens were told: gaps and graces, ttl and within, how far back, and sums of them.
SPANS_S = (10, 15, 20, 30, 40, 50, 60, 80)
MICROS = (-1, 0, 1)
BASE = us(START)
YEAR = 365 * 86_400 * SECOND
ids = itertools.count(1)


def event(key: str, time: int, amount: int = 5) -> Event:
    return Event(next(ids), key, time, amount, None, "abcdef"[amount % 6])


def edges() -> list[Part]:
    """Of each span a key with two events that far apart, in one epoch and in two; then events that are a span behind
    the watermark; then a jump."""
    spans = [(span * SECOND + micro, f"{span} s {micro:+}") for span in SPANS_S for micro in MICROS]
    parts = [Part([event("1970", 0), event("1970", -1), event("1969", -SECOND)], [])]
    first = [event(f"{name}, at once", BASE) for _, name in spans]
    first += [event(f"{name}, at once", BASE + span, 7) for span, name in spans]
    first += [event(f"{name}, later", BASE) for _, name in spans]
    parts.append(Part(first, [_changed(number) for number in range(6)]))
    parts.append(Part([event(f"{name}, later", BASE + span, 7) for span, name in spans], []))
    # The watermark is then at a whole second.
    now = BASE + 200 * SECOND
    parts.append(Part([event("newest", now + LAG_S * SECOND)], []))
    parts.append(Part([event(f"{name} behind", now - span) for span, name in spans], [_changed(6)]))
    parts.append(Part([event(f"{name} behind", now - span + 100, 7) for span, name in spans], []))
    parts.append(Part([event("newest", BASE + YEAR)], []))
    behind = [event("newest", BASE + YEAR - LAG_S * SECOND + micro) for micro in MICROS]
    parts.append(Part([*behind, event("now", now), event("1970", 2)], [_changed(7)]))
    return parts


def _changed(number: int) -> latest.Change:
    return changed(random.Random(number), "abcdef"[number % 6], number + 1)


@pytest.mark.parametrize("name", todays(list(SPECIMENS), 2))
def test_what_is_just_met_and_clocks_that_jump(spark: SparkSession, tmp_path: Path, name: str) -> None:
    parts = edges()
    if name in CHAINS:  # they ask for numbers without gaps
        first = parts[0].events[0].id
        parts = [Part([e._replace(id=e.id - first + 1) for e in part.events], part.changes) for part in parts]
    SPECIMENS[name].crashed(spark, tmp_path, parts)
    assert SPECIMENS[name].faults(tmp_path, parts) == []


# So many letters: of one key several such are kept.
LONG = 700_000


def large() -> list[Part]:
    """Few events, of few keys."""
    parts = []
    for number in range(3):
        events = [
            event(key, BASE + (number * 15 + place * 4) * SECOND + 1 + (key == "b"), amount)
            for place, amount in enumerate((2, 1, 3, 9))
            for key in ("a", "b")
        ]
        parts.append(Part(events, [_changed(number)]))
    return parts


def long_texts(plain: Specimen) -> Specimen:
    def build(rows: DataFrame, records: DataFrame) -> DataFrame:
        return plain.build(rows.withColumn("item", F.repeat("item", F.lit(LONG))), records)

    return replace(plain, build=build, shown=lambda row: _short(plain.shown(row)))


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 10:
        assert value == value[0] * LONG
        return value[0]
    return [_short(each) for each in value] if isinstance(value, list | tuple) else value


def _signed(rows: DataFrame, _: DataFrame) -> DataFrame:
    told = rows.withColumn(signed.DIFF, F.lit(1)).withColumn("item", F.repeat("item", F.lit(LONG)))
    columns = {"a": ["key", "item", "id"], "b": [F.col("key").alias("k"), F.col("item").alias("i")]}
    chain = signed.begin(told, {"a": (F.col("amount") < 3, columns["a"]), "b": (F.lit(True), columns["b"])})
    chain = chain.join("a", "b", on=[("key", "k")], how="inner", into="pairs")
    measures = [
        signed.Measure("least", "min", (F.col("item"),)),
        signed.Measure("most", "max", (F.concat("item", "i"),)),
        signed.Measure("different", "distinct", (F.col("item"), F.col("i"))),
    ]
    return chain.aggregate("pairs", by=["key"], measures=measures, into="groups").table("groups")


def _signed_row(row: Row) -> Any:
    most = row.most
    assert most == most[0] * LONG + most[-1] * LONG
    return [row.key, _short(row.least), most[0] + most[-1], row.different, row[signed.DIFF]]


def _signed_twin() -> Twin:
    pairs: dict[str | None, list[list[str]]] = {}
    before: list[bags.Bag] = [bags.Bag()]

    def epoch(part: Part, _: int) -> list[Any]:
        for each in part.events:
            pairs.setdefault(each.key, [[], []])[0 if each.amount < 3 else 1].append(each.item)
        groups = bags.Bag()
        for key, (ours, theirs) in pairs.items():
            found = [(one, two) for one in ours for two in theirs]
            if found:
                most = max(one + two for one, two in found)
                groups[key, min(one for one, _ in found), most, len(set(found))] += 1
        told = [[*row, diff] for row, diff in bags.difference(before[0], groups).items()]
        before[0] = groups
        return told

    return Twin(None, epoch)


def long_rows(plain: Specimen) -> Specimen:
    """Events that are long by a column which nobody asks for: their item is what is looked for."""

    def build(rows: DataFrame, records: DataFrame) -> DataFrame:
        found = plain.build(rows.withColumn("long", F.repeat("item", F.lit(LONG))), records)
        return found.where(F.length("long") == LONG)

    return replace(plain, build=build)


def long_names(plain: Specimen) -> Specimen:
    """A table's rows that are long."""
    more = "x" * LONG

    def build(rows: DataFrame, records: DataFrame) -> DataFrame:
        text = F.regexp_replace(F.col("value").cast("string"), '("name": "[^"]*)', f"$1{more}")
        return plain.build(rows, records.withColumn("value", text.cast("binary")))

    def shown(row: Row) -> Any:
        found = plain.shown(row)
        assert all(more in each for each in found[1:] if isinstance(each, str)), "all but a key"
        return [each.replace(more, "") if isinstance(each, str) else each for each in found]

    return replace(plain, build=build, shown=shown)


LONGER = ("lookback", "match", "players", "latest", "window", "session", "slices", "sketches", "top")
LARGE = {
    **{name: long_texts(SPECIMENS[name]) for name in LONGER},
    **{name: long_rows(SPECIMENS[name]) for name in ("as_of", "versions", "join")},
    **{name: long_names(SPECIMENS[name]) for name in ("lookup", "table")},
    "signed": Specimen(_signed, _signed_row, _signed_twin),
}


@pytest.mark.parametrize("name", todays(list(LARGE), 1))
def test_state_of_megabytes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    parts = large()
    LARGE[name].crashed(spark, tmp_path, parts)
    assert LARGE[name].faults(tmp_path, parts) == []
