"""Files of a checkpoint that are not whole are named before a flow starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from millrace.engine.plan import Flow
from millrace.engine.whole import refuse_damaged, sweep
from millrace.errors import CheckpointDamaged
from millrace.flow import App

OFFSETS = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"events":{"0":12,"1":7}}\n-'
COMMITS = 'v1\n{"nextBatchWatermarkMs":0}'


def some_flow() -> Flow:
    app = App("any")

    @app.stream(app.topic("in", "id long"))
    def copied(rows: DataFrame) -> DataFrame:
        return rows

    return Flow("copied", (copied,))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for log, text in (("offsets", OFFSETS), ("commits", COMMITS)):
        (tmp_path / log).mkdir()
        for epoch in range(3):
            (tmp_path / log / str(epoch)).write_text(text)
    return tmp_path


def test_what_is_whole_is_taken_and_so_is_none(checkpoint: Path, tmp_path: Path) -> None:
    refuse_damaged(some_flow(), checkpoint)
    (checkpoint / "commits" / "2").unlink()  # as a crash leaves it
    refuse_damaged(some_flow(), checkpoint)
    refuse_damaged(some_flow(), tmp_path / "none")


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_file_that_is_cut_off_anywhere_is_named(checkpoint: Path, log: str) -> None:
    path = checkpoint / log / "2"
    whole = path.read_text()
    for length in range(len(whole.removesuffix("\n-"))):
        path.write_text(whole[:length])
        with pytest.raises(CheckpointDamaged, match=rf"{log}/2 is not whole"):
            refuse_damaged(some_flow(), checkpoint)


def test_the_epoch_before_and_one_that_is_missing(checkpoint: Path) -> None:
    before = checkpoint / "offsets" / "1"
    before.write_bytes(b"v1\n\xff")
    with pytest.raises(CheckpointDamaged, match=r"offsets/1 is not whole .it is no text"):
        refuse_damaged(some_flow(), checkpoint)
    before.write_text(OFFSETS.removesuffix("\n-"))
    with pytest.raises(CheckpointDamaged, match=r"offsets/2 .*how far each input was read"):
        refuse_damaged(some_flow(), checkpoint)
    before.write_text(OFFSETS)
    (checkpoint / "offsets" / "2").unlink()
    with pytest.raises(CheckpointDamaged, match=r"offsets/2 .*it is missing, and the epoch was committed"):
        refuse_damaged(some_flow(), checkpoint)


def test_what_a_crash_left_half_written_goes(checkpoint: Path) -> None:
    state = checkpoint / "state" / "0" / "1"
    state.mkdir(parents=True)
    half = [checkpoint / "offsets" / ".3.0c1e.tmp", state / ".4_77.changelog.9f.tmp"]
    for path in half:
        path.touch()
    kept = {path for path in checkpoint.rglob("*") if path not in half}
    sweep(checkpoint)
    assert set(checkpoint.rglob("*")) == kept
