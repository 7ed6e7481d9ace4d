"""Ways to do the same work, measured in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from bench.kernel import cpu_s
from millrace.engine import sources

# What a flow's epochs grow to (`Pace.java`).
RECORDS_AN_EPOCH = 250_000

Side: TypeAlias = Callable[[SparkSession], DataFrame]
Figures: TypeAlias = dict[str, list[float]]


def full_epochs_from_the_first(records: int = RECORDS_AN_EPOCH) -> None:
    """As by hand."""
    sources.FIRST_RECORDS_AN_EPOCH = records


def measured(
    sides: Mapping[str, Side], rate: Callable[[Side], float], records: int, rounds: int
) -> tuple[Figures, Figures]:
    """Events a second and CPU seconds a million events of each side, round by round; they are printed too."""
    rates: Figures = {name: [] for name in sides}
    spent: Figures = {name: [] for name in sides}
    for number in range(rounds + 1):  # the first one warms up
        for name, side in sides.items():
            before = cpu_s()
            each = rate(side)
            if number:
                rates[name].append(each)
                spent[name].append(round((cpu_s() - before) * 1e6 / records, 1))
    for name in sides:
        print(f"{name:16} {rates[name]} events/s, {spent[name]} CPU s a million")
    return rates, spent
