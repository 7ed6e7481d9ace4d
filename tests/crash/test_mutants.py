"""What the matrix is for: with a protection taken out, an oracle says so. One mutant a day; `make test-all` all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millrace.config import Settings
from tests.crash.cells import CELLS
from tests.crash.matrix import chain
from tests.crash.mill import Mill, servers_of
from tests.crash.mutants import MUTANTS, Mutant
from tests.rotation import todays


def test_each_mutant_fits_the_source_and_is_another(tmp_path: Path) -> None:
    for number, mutant in enumerate(MUTANTS):
        made = mutant.made(tmp_path / str(number)) / "millrace" / mutant.file
        assert mutant.new in made.read_text()
        assert mutant.cell in CELLS


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.parametrize("mutant", todays(MUTANTS, 1), ids=lambda mutant: mutant.name)
def test_a_protection_that_is_taken_out_is_missed(
    settings: Settings, tmp_path: Path, mutant: Mutant, request: pytest.FixtureRequest
) -> None:
    flow = CELLS[mutant.cell].flow
    for server in servers_of([flow])[1:]:
        request.getfixturevalue(server)
    copy = mutant.made(tmp_path / "source")
    env = {"PYTHONPATH": os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])}
    number = MUTANTS.index(mutant)
    mill = Mill(settings, tmp_path / "mill", f"mutant{number}", only=(flow,), env=env)
    try:
        (result,) = chain(mill, [mutant.cell], seed=mutant.seed)
    finally:
        mill.close()
    assert not result.missed
    assert any(mutant.says in fault for fault in result.faults), result
