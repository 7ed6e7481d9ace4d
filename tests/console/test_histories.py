"""What is seen of a flow over time: rates, recoveries, the points of charts, epochs from a checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.config import Settings
from millrace.console.checkpoints import Epoch, epochs, reached
from millrace.console.histories import MOST_POINTS, Histories
from millrace.console.series import series, thinned
from millrace.engine.definition import CHECKPOINT
from tests.console.seen import BEGAN, look


@pytest.fixture
def histories(tmp_path: Path) -> Histories:
    app = mr.App("seen")
    visits = app.topic("visits", "url string")

    @app.stream(visits)
    def counts(v: Any) -> Any:
        return v

    return Histories(app.graph(), Settings(tmp_path))


def test_the_rate_is_of_one_run_and_of_lately(histories: Histories) -> None:
    history = histories.flows["counts"]
    assert history.rate() is None
    look(histories, "counts", "running", 0, rows_in=1_000_000, run={"pid": 7})
    look(histories, "counts", "running", 1, rows_in=0)
    assert history.rate() is None  # another run began at 0
    look(histories, "counts", "running", 3, rows_in=100)
    assert history.rate() == 50
    look(histories, "counts", "running", 60, rows_in=100)
    look(histories, "counts", "running", 61, rows_in=100)
    assert history.rate() == 0
    look(histories, "counts", "stopped", 62, rows_in=100)
    assert history.rate() is None
    assert len(history.recoveries) == 1


def test_a_rate_waits_for_long_epochs(histories: Histories) -> None:
    for second, rows in ((0, 0), (20, 1_000), (29, 1_000)):
        look(histories, "counts", "running", second, rows_in=rows, last={"epoch_ms": 20_000})
    assert histories.flows["counts"].rate() == pytest.approx(1_000 / 29)


def test_recoveries_are_seen_and_looks_are_bounded(histories: Histories) -> None:
    history = histories.flows["counts"]
    look(histories, "counts", "running", 0, restarts=0)
    look(histories, "counts", "running", 1, restarts=1, error="MR-X it broke")
    look(histories, "counts", "running", 2, restarts=1, error="MR-X it broke", run={"pid": 8})
    assert [(each.at - BEGAN, each.what) for each in history.recoveries] == [
        (1, "started again after a failure: MR-X it broke"),
        (2, "another run took over (it was running)"),
    ]
    for second in range(MOST_POINTS + 10):
        look(histories, "counts", "running", second)
    assert len(history.points) == MOST_POINTS


def test_the_points_of_charts(histories: Histories) -> None:
    phases = {"work": 30, "commit": 5}
    look(histories, "counts", "running", 0, rows_in=0, rows_out=0)
    last = {"epoch": 1, "state_rows": 4, "state_bytes": 900, "phases_ms": phases, "watermark_gap_s": 2.5}
    look(histories, "counts", "running", 2, rows_in=10, rows_out=4, late=1, dead=2, last=last)
    look(histories, "counts", "running", 3, rows_in=10, rows_out=4, late=1, dead=2, last=last)
    found = series(histories.flows["counts"])
    at_ms = (BEGAN + 2) * 1_000
    assert (found.rows_in[0], found.rows_out[0]) == ((at_ms, 5.0), (at_ms, 2.0))
    assert (found.late[0][1], found.dead[0][1], found.gap_s[0][1]) == (1, 2, 2.5)
    assert (found.state_rows[0][1], found.state_bytes[0][1]) == (4, 900)
    assert found.phases_ms["work"] == [(at_ms, 30)]  # once for each epoch, not for each look
    assert thinned([(n, n) for n in range(1_000)], 10)[-1] == (999, 999)
    assert len(thinned([(n, n) for n in range(1_000)], 10)) == 10


def test_epochs_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    assert (epochs(tmp_path), reached(tmp_path)) == ([], {})
    for number in range(12):
        for part in ("offsets", "commits"):
            path = tmp_path / CHECKPOINT / part / str(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = (
                "v1",
                json.dumps({"batchTimestampMs": 1_000 * (100 + number)}),
                json.dumps({"visits": {0: number}}),
            )
            path.write_text("\n".join((*lines, "-")))
            os.utime(path, (100 + number + 0.5, 100 + number + 0.5))
    (tmp_path / CHECKPOINT / "commits" / "11").unlink()
    (tmp_path / CHECKPOINT / "offsets" / ".12.tmp").write_text("")
    found = epochs(tmp_path, 2)
    assert found == [Epoch(10, 110.0, 110.5), Epoch(11, 111.0, None)]
    assert [epoch.number for epoch in epochs(tmp_path)] == list(range(12))
    assert reached(tmp_path) == {"visits": {0: 10}}  # the last that was committed
