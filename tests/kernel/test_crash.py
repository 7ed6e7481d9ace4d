"""Kill -9 in the middle of operators' commits, some operators each day; `make crash CELLS=operators` takes all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.crash import POINTS, crash
from tests.kernel.specimens import SPECIMENS
from tests.rotation import today, todays


@pytest.mark.spark
def test_operators_whose_process_is_killed_end_as_their_models(tmp_path: Path) -> None:
    """Each in its commit, at the place that it was sent to; and on every second day all of them at a random moment."""
    names, seed = todays(list(SPECIMENS), 2), today() % 1000
    result = crash(tmp_path, names, seed, kills=seed % 2, count=5)
    assert result.faults == [], result.line()
    assert set(result.inside) == set(names)
    assert result.kills == -(-len(names) // len(POINTS)) + seed % 2
