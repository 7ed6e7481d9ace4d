"""Kill -9 in the middle of operators' commits, some operators each day; `make crash CELLS=operators` takes all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.crash import crash
from tests.kernel.specimens import SPECIMENS
from tests.rotation import today, todays


@pytest.mark.spark
def test_operators_whose_process_is_killed_end_as_their_models(tmp_path: Path) -> None:
    seed = today() % 1000
    result = crash(tmp_path, todays(list(SPECIMENS), 2), seed, kills=1, count=5)
    assert result.faults == [], result.line()
    assert result.kills == 1
