"""Who is killed at a place has done nothing of what comes after it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.command import until
from tests.crash.supervisor import Points, Supervised

# A command that starts a worker, as Spark's JVM does; one of the two comes to a place, and then commits.
PROGRAM = """\
import subprocess, sys
from pathlib import Path
from millrace.failpoint import FailPoint

me, commits = sys.argv[1:]
worker = subprocess.Popen([sys.executable, __file__, "worker", commits]) if me == "driver" else None
if me == commits:
    FailPoint.SINK_BEFORE_LEDGER.reached("rows")
    Path("committed").touch()
if worker is not None:
    worker.wait()
"""


@pytest.mark.parametrize("who", ["driver", "worker"])
def test_who_stands_at_a_place_dies_there(tmp_path: Path, who: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    points = Points(tmp_path / "points")
    supervised = Supervised(tmp_path, points)
    supervised.words = (sys.executable, "program.py")
    points.arm("SINK_BEFORE_LEDGER")
    supervised.start("driver", who)
    assert supervised.await_point("SINK_BEFORE_LEDGER"), supervised.said()
    assert supervised.kill() == -9
    until(lambda: not supervised.marked(), "the end of all")
    assert not (tmp_path / "committed").exists()
