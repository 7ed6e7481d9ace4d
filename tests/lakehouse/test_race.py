"""Two processes that commit on the same version at the same time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.lakehouse import LakeTable
from tests.lakehouse.filled import ON_DISK, ids
from tests.lakehouse.racing import CATALOG

ROUNDS = 8
ROOT = Path(__file__).parents[2]


class Racer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def racing(project: Settings, table: LakeTable) -> Iterator[Racer]:
    command = [sys.executable, "-m", "tests.lakehouse.racing", str(project.folder), table.name, table.format]
    catalog = project.lake.catalog
    own = dict(os.environ) | ({} if catalog is None else {CATALOG: catalog.reveal()})
    with subprocess.Popen(
        command, cwd=ROOT, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Racer(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # by which it ends


@pytest.mark.parametrize("kind", ON_DISK)
def test_of_two_processes_one_is_first_and_the_other_is_told(project: Settings, made: LakeTable) -> None:
    with racing(project, made) as one, racing(project, made) as other:
        for number in range(ROUNDS):
            assert [each.heard() for each in (one, other)] == [str(number)] * 2, "both are on the same version"
            for each in (one, other):
                each.go()
            assert sorted(each.heard() for each in (one, other)) == ["first", "second"]
        pids = {one.process.pid, other.process.pid}
    assert made.load()
    assert [each.note.epoch for each in made.versions() if each.note is not None] == list(range(ROUNDS))
    held = ids(project, made)
    assert sorted(each for each in held if each not in pids) == list(range(ROUNDS))
    assert len(held) == 2 * ROUNDS
    # What the second wrote is nobody's: its files are named in no version.
    assert len(made.files()) == ROUNDS
