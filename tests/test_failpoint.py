"""Fail points: nobody stops unless a test set the variable and armed the place; and each of them has its cell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import millrace
from millrace import failpoint
from millrace.failpoint import VARIABLE, FailPoint
from tests.command import until
from tests.crash.cells import CELLS
from tests.crash.supervisor import Points

JAVA = Path(millrace.__file__).parent / "kernel" / "java" / "millrace" / "kernel" / "FailPoint.java"
# Of a command, not of a run: `tests/engine/test_deploy_kills.py`.
OWN = {"DEPLOY_SWITCHING", "DEPLOY_SWITCHED"}
COME = """
from millrace.failpoint import FailPoint
for who in ("cache", "hook", "hook", "hook"):
    FailPoint.SINK_AFTER.reached(who)
    print(who, flush=True)
"""


def come(folder: Path | None) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if name != VARIABLE}
    env |= {} if folder is None else {VARIABLE: str(folder)}
    return subprocess.Popen([sys.executable, "-c", COME], stdout=subprocess.PIPE, env=env, text=True)


def test_without_the_variable_or_the_file_nobody_stops(tmp_path: Path) -> None:
    assert not failpoint.ON, f"{VARIABLE} is for processes that tests start"
    armed = Points(tmp_path / "armed")
    armed.arm("SINK_AFTER", "hook")
    for folder in (None, tmp_path / "no such folder", Points(tmp_path / "empty").folder):
        with come(folder) as process:
            assert process.communicate(timeout=60)[0].split() == ["cache", "hook", "hook", "hook"]
            assert process.returncode == 0
    assert armed.reached("SINK_AFTER") is None


def test_who_is_awaited_stops_after_so_many_and_goes_on_when_let_go(tmp_path: Path) -> None:
    points = Points(tmp_path)
    points.arm("SINK_AFTER", "hook", before=1)
    with come(tmp_path) as process:
        until(lambda: points.reached("SINK_AFTER") is not None, "the place")
        reached = points.reached("SINK_AFTER")
        assert reached is not None
        assert (reached.pid, reached.who) == (process.pid, "hook")
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["cache", "hook"]
        points.let_go("SINK_AFTER")
        assert process.communicate(timeout=60)[0].split() == ["hook", "hook"]


def test_who_stands_there_can_be_killed(tmp_path: Path) -> None:
    points = Points(tmp_path)
    points.arm("SINK_AFTER")
    with come(tmp_path) as process:
        until(lambda: points.reached("SINK_AFTER") is not None, "the place")
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_every_place_has_a_cell_and_every_cell_a_place() -> None:
    text = JAVA.read_text()
    java = set(re.findall(r"[A-Z_]{6,}", text[text.index("enum FailPoint {") : text.index(";", text.index("enum"))]))
    known = java | {point.name for point in FailPoint}
    used = {word for name in CELLS for word in name.split() if re.fullmatch(r"[A-Z_]{6,}", word)}
    assert used == known - OWN
