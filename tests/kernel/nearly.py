"""What specimens whose answers are about right are asked, what is exact, and whether an answer is near that."""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr
from millrace.model import lookback, sketches
from tests.kernel.parts import Event

# Windows of so many values that none of these holds all: each event of the hot key has many, all others one.
ERROR, EACH, FREQUENT = 0.05, 20, 3
RANKS = (0, 0.5, 1)
ESTIMATED: dict[str, Any] = {
    "n": mr.count(),
    "values": mr.approx_distinct("value", error=ERROR),
    "ranks": mr.quantiles("value", RANKS, error=ERROR),
    "often": mr.frequent("word", FREQUENT, error=ERROR),
}


def many(rows: DataFrame) -> DataFrame:
    """Most values come once; every second word is one of a few."""
    each = F.expr(f"explode(sequence(0, if(key = 'hot', {EACH - 1}, 0)))")
    value = F.expr(f"(id * {EACH} + place) * 7919 % 1000003")
    word = F.expr("if(place % 2 = 0, item, concat(item, value))")
    return rows.select("*", each.alias("place")).withColumn("value", value).withColumn("word", word)


def valued(event: Event) -> list[tuple[int, str]]:
    found = []
    for place in range(EACH if event.key == "hot" else 1):
        value = (event.id * EACH + place) * 7919 % 1000003
        found.append((value, event.item if place % 2 == 0 else f"{event.item}{value}"))
    return found


def estimated(rows: list[Any]) -> tuple[Any, ...]:
    """All values, of which an answer is judged."""
    return ([each for row in rows for each in valued(row.value)],)


def is_estimate(told: list[Any], exact: list[Any]) -> bool:
    """Of one window: its key and edges, then what was told, and all values."""
    if told[:3] != exact[:3]:
        return False
    n, distinct, ranks, often = told[3:]
    values, words = [value for value, _ in exact[3]], [word for _, word in exact[3]]
    if n != len(values) or abs(distinct - len(set(values))) > 4 * ERROR * n:
        return False
    if [ranks[0], ranks[-1]] != [min(values), max(values)] or not set(ranks) <= set(values):
        return False
    if max(sketches.rank_error(values, rank, each) for rank, each in zip(RANKS, ranks, strict=True)) > 2 * ERROR:
        return False
    return not sketches.frequent_faults(words, FREQUENT, ERROR, [(word, count) for word, count in often])


# Ways and doubles of the last minute. Java's sine is not Python's; sums of doubles are exact before they are rounded.
SCALES = (1.0, 1e8, 1e-9)
ROUGHLY = 0.1
TRAVELLED = ("id", "way", "pace", "kinds", "total", "mean", "corrected")


def places(rows: DataFrame) -> DataFrame:
    real = F.expr(f"amount / 7D * element_at(array({', '.join(f'{each!r}D' for each in SCALES)}), int(id % 3) + 1)")
    lat, lon = F.expr("if(amount = 0, null, 52 + amount / 10D)"), F.expr("13 + id % 10 / 10D")
    return rows.withColumns({"real": real, "lat": lat, "lon": lon})


def at(event: lookback.Event) -> lookback.At | None:
    own: Event = event.value
    return None if own.amount == 0 else lookback.At(own.time, 52 + own.amount / 10, 13 + own.id % 10 / 10)


def way(events: list[lookback.Event]) -> list[lookback.At]:
    return [found for event in events if (found := at(event)) is not None]


def reals(events: list[lookback.Event]) -> list[float]:
    return [each.value.amount / 7 * SCALES[each.value.id % 3] for each in events]


def is_travelled(told: list[Any], exact: list[Any]) -> bool:
    if [told[0], *told[4:]] != [exact[0], *exact[4:]] or abs(told[3] - exact[3]) > 4 * ROUGHLY * exact[3]:
        return False
    if exact[3] <= 5 and told[3] != exact[3]:
        return False
    return all(
        (one is None and two is None)
        or (one is not None and two is not None and math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9))
        for one, two in zip(told[1:3], exact[1:3], strict=True)
    )
