"""Today's part of the crash matrix: a chain of deaths of one flow, every day others; `make crash` takes all of them.

A mill is fed all the time, dies at each of the places, is started again, and in the end everything is there once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import Settings
from tests.crash.cells import CELLS
from tests.crash.matrix import chain, chains
from tests.crash.mill import FLOWS, Mill
from tests.rotation import today

FREEZE_S = 3.0
# Of those that end the process, and need a start of Spark each; and of those that it lives through.
KILLS, SURVIVED = 4, 1
_ROOMS = ("jvm", "sinks")


def _of_day(day: int) -> tuple[str, list[str]]:
    """The flow whose turn it is, and so many of its cells; the next ones come at its next turn."""
    turn, number = divmod(day, len(FLOWS))
    flow = FLOWS[number]
    return flow, [*_turn(_cells(flow, kills=True), turn, KILLS), *_turn(_cells(flow, kills=False), turn, SURVIVED)]


def _turn(names: list[str], turn: int, count: int) -> list[str]:
    return [names[(turn * count + number) % len(names)] for number in range(count)]


def _cells(flow: str, *, kills: bool) -> list[str]:
    of = (flow,) if kills else (flow, "all")
    return _spread([name for name, cell in CELLS.items() if cell.flow in of and (cell.room in _ROOMS) == kills])


def _spread(names: list[str]) -> list[str]:
    """Those that follow each other are far apart in the table, so that a day has a bit of everything."""
    step = next(step for step in (5, 7, 11) if len(names) % step or len(names) < step)
    return [names[number * step % len(names)] for number in range(len(names))]


def test_a_cycle_of_days_takes_every_cell() -> None:
    first, days = today(), len(FLOWS) * len(CELLS)
    assert {name for day in range(first, first + days) for name in _of_day(day)[1]} == set(CELLS)


def test_chains_take_everything_once_and_what_failed_alone() -> None:
    wanted = [(name, seed) for seed in (1, 2) for name in "abcde"]
    made = list(chains(wanted, {("b", 2)}, 3))
    assert sorted((name, seed) for seed, names in made for name in names) == sorted(wanted)
    assert (2, ["b"]) in made
    assert all(len(names) <= 3 for _, names in made)


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.usefixtures("postgres", "valkey", "opensearch")
def test_todays_deaths(settings: Settings, tmp_path: Path) -> None:
    seed = today() % 1000
    flow, names = _of_day(today())
    mill = Mill(settings, tmp_path / "mill", "crash", seed, only=(flow,))
    try:
        results = chain(mill, names, seed, freeze_s=FREEZE_S)
    finally:
        mill.close()
    assert [(each.cell, each.faults) for each in results if each.faults] == []
    assert [each.cell for each in results if each.missed] == []
    assert len(results) == len(names)
