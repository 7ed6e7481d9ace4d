"""`millrace state` as a person runs it: over a checkpoint that nobody runs, and where there is none."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace import config
from millrace.cli import main
from millrace.engine import definition
from millrace.engine.operators import kept
from millrace.engine.state import State
from millrace.errors import CheckpointEmpty, StateUnnamed
from tests.command import millrace
from tests.golden.make import HERE, unpack
from tests.golden.test_golden import VERSIONS
from tests.kernel.specimens import SPECIMENS
from tests.rotation import todays


def test_flows_that_are_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "counts"]) == 1
    assert "there is no checkpoint of a flow 'counts' here" in capsys.readouterr().err
    for app in ("one", "two"):
        definition.folder_of(config.load(folder), app, "counts").mkdir(parents=True)
    assert main(["state", "count"]) == 1
    assert "did you mean 'counts'" in capsys.readouterr().err
    assert main(["state", "counts"]) == 1
    assert "several apps have a flow 'counts' here: one, two" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.turn(0, 2)
@pytest.mark.parametrize(
    ("name", "key", "operator", "named", "last"),
    todays(
        [
            ("session", "hot", "session", "key=hot", r".* (yes|no)"),
            ("join", "b", "stream_join", "item=b", r"1 +2026-03-01T\S+ +2026-03-01T\S+ +\d+ .* b"),
        ],
        1,
    ),
)
def test_a_checkpoint_that_nobody_runs(
    folder: Path, spark: SparkSession, name: str, key: str, operator: str, named: str, last: str
) -> None:
    settings = replace(config.load(folder), folder=folder)
    flow = definition.folder_of(settings, "shop", "flow")
    with pytest.raises(CheckpointEmpty):
        State(spark, flow, "flow")
    unpack(HERE / VERSIONS[-1] / f"{name}.zip", flow)
    with pytest.raises(StateUnnamed):
        State(spark, flow, "flow").shown([key], 20)
    told = kept(SPECIMENS[name].frame(spark, flow))
    definition.remember(flow, definition.Definition((), (), 2, kept=told))
    shown = millrace("state", "flow", "--key", key, "--limit", "1000", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    first, *_, row = shown.stdout.strip().splitlines()
    assert first.startswith(f"{operator} at ")
    assert first.endswith(f", {named}")
    assert re.fullmatch(last, row.strip()), shown.stdout
