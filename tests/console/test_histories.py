"""What is seen of a flow over time: rates, the points of charts, epochs from a checkpoint."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.config import Settings
from millrace.console.checkpoints import Epoch, epochs, reached
from millrace.console.histories import MOST_POINTS, Histories
from millrace.console.page_flow import timeline
from millrace.console.series import series, thinned
from millrace.engine import begun
from millrace.engine.definition import CHECKPOINT, folder_of, folders_of
from millrace.engine.generations import Generation
from millrace.engine.standing import Board, Standing
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


def test_a_rate_waits_for_long_epochs(histories: Histories) -> None:
    for second, rows in ((0, 0), (20, 1_000), (29, 1_000)):
        look(histories, "counts", "running", second, rows_in=rows, last={"epoch_ms": 20_000})
    assert histories.flows["counts"].rate() == pytest.approx(1_000 / 29)


def test_in_real_time_the_rate_and_the_age_do_not_wait_for_an_epochs_end(histories: Histories) -> None:
    for second in range(0, 61, 4):
        last = {"epoch_ms": 60_000, "lag_records": 0}
        look(histories, "counts", "running", second, rows_in=500, under_way=20 * min(second, 56), last=last)
        if second == 52:
            assert histories.flows["counts"].rate() == pytest.approx(20)
    history = histories.flows["counts"]
    assert history.rate() == pytest.approx(10)  # of the last 8 seconds it took records for 4
    assert history.taken_at == BEGAN + 56
    look(histories, "counts", "running", 62, rows_in=500 + 20 * 56, under_way=0, last={"epoch_ms": 60_000})
    assert history.rate() == pytest.approx(20 * 4 / 10)  # an epoch's end moves no row twice


def test_looks_are_bounded(histories: Histories) -> None:
    history = histories.flows["counts"]
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


def marked(chart: dict[str, Any]) -> list[tuple[float, str]]:
    return [(each["xAxis"], each["name"]) for each in chart["series"][0]["markLine"]["data"]]


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
    begun.note(tmp_path, datetime.fromtimestamp(50, UTC), left=None, restarts=0, error=None)  # before the first epoch
    begun.note(tmp_path, datetime.fromtimestamp(103, UTC), left="ended", restarts=0, error=None)
    begun.note(tmp_path, datetime.fromtimestamp(107, UTC), left="running", restarts=0, error=None)
    chart = timeline(tmp_path)
    assert len(chart["series"][0]["data"]) == 12
    assert marked(chart) == [(100_000, "began"), (103_000, "began"), (107_000, "recovered")]
    assert chart["xAxis"]["min"] < 100_000, "the bar of the first epoch begins later"
    assert "max" not in chart["xAxis"]
    begun.note(tmp_path, datetime.fromtimestamp(120, UTC), left="running", restarts=0, error=None)  # no epoch yet
    assert marked(timeline(tmp_path))[-1] == (120_000, "recovered")
    assert timeline(tmp_path)["xAxis"]["max"] > 120_000
    first = (tmp_path / CHECKPOINT / "offsets" / "0").rename(tmp_path / "0")  # Spark takes old ones away
    assert marked(timeline(tmp_path)) == [(103_000, "began"), (107_000, "recovered"), (120_000, "recovered")]
    first.rename(tmp_path / CHECKPOINT / "offsets" / "0")
    (tmp_path / CHECKPOINT / "commits" / "11").unlink()
    (tmp_path / CHECKPOINT / "offsets" / ".12.tmp").write_text("")
    found = epochs(tmp_path, 2)
    assert found == [Epoch(10, 110.0, 110.5), Epoch(11, 111.0, None)]
    assert [epoch.number for epoch in epochs(tmp_path)] == list(range(12))
    assert reached(tmp_path) == {"visits": {0: 10}}  # the last that was committed


def test_a_view_that_is_deployed_meanwhile_is_seen_by_its_name_with_the_epochs_that_count(tmp_path: Path) -> None:
    app = mr.App("seen")
    app.topic("visits", "url string")
    app.view("counts", key="url", sql="SELECT url, count(*) AS n FROM visits GROUP BY url")
    settings = Settings(tmp_path)
    histories, view = Histories(app.graph(), settings), folders_of(settings, "seen") / "counts"
    for epochs_there in (3, 2):  # of the first generation, and of the one that takes its place
        for number in range(epochs_there):
            for part in ("offsets", "commits"):
                path = folder_of(settings, "seen", "counts") / CHECKPOINT / part / str(number)
                path.parent.mkdir(parents=True, exist_ok=True)
                lines = ("v1", json.dumps({"batchTimestampMs": 0}), json.dumps({"visits": {0: epochs_there}}))
                path.write_text("\n".join(lines))
        assert histories.look()["counts"].reached == {"visits": {0: epochs_there}}
        Generation(2).write(view)
    standings = {"counts": Standing.new("counts").becomes("failed", "it does not go on")}
    Board(folders_of(settings, "seen")).show(standings, 0.0)
    begun.note(view, datetime.now(UTC), left=None, restarts=0, error=None)
    for told in (histories, Histories(app.graph(), settings)):
        history = told.look()["counts"]
        assert history.look is not None
        assert (history.look.facts["flow"], history.look.state) == ("counts", "failed")
        drawn = timeline(history.folder)["series"][0]
        assert len(drawn["data"]) == 2
        assert [each["name"] for each in drawn["markLine"]["data"]] == ["began"]
