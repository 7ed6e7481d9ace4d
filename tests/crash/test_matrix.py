"""Today's part of the crash matrix: a chain of deaths, of which every day has others; `make crash` takes all of them.

A mill is fed all the time, dies at each of the places, is started again, and in the end everything is there once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace.config import Settings
from tests.crash.cells import CELLS
from tests.crash.matrix import chain, chains
from tests.crash.mill import Mill
from tests.rotation import todays

FREEZE_S = 3.0
# Of those that end the process, and need a start of Spark each; and of those that it lives through.
KILLS, SURVIVED = 8, 3
_KILLS = [name for name, cell in CELLS.items() if cell.room in ("jvm", "sinks", "random")]
_OTHERS = [name for name in CELLS if name not in _KILLS]


def _spread(names: list[str]) -> list[str]:
    """Those that follow each other are far apart in the table, so that a day has a bit of everything."""
    step = next(step for step in (11, 13, 17) if len(names) % step)
    return [names[number * step % len(names)] for number in range(len(names))]


def test_a_cycle_of_days_takes_every_cell() -> None:
    assert sorted([*_spread(_KILLS), *_spread(_OTHERS)]) == sorted(CELLS)


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
    seed = datetime.now(UTC).toordinal() % 1000
    names = [*todays(_spread(_KILLS), KILLS)[:KILLS], *todays(_spread(_OTHERS), SURVIVED)[:SURVIVED]]
    mill = Mill(settings, tmp_path / "mill", "crash", seed)
    try:
        results = chain(mill, names, seed, freeze_s=FREEZE_S)
    finally:
        mill.close()
    assert [(each.cell, each.faults) for each in results if each.faults] == []
    assert [each.cell for each in results if each.missed] == []
    assert len(results) == len(names)
