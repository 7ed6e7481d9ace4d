"""The operators in a job without an app: in a session of one's own they answer as in a flow, and what only a flow has
is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.errors import LateSideOutside
from millrace.local import java
from tests.command import environ
from tests.kernel.chains import CHAINS
from tests.kernel.parts import made, write
from tests.kernel.plain_job import DROPPED
from tests.kernel.specimens import SPECIMENS
from tests.rotation import seeded, todays

pytestmark = pytest.mark.spark

# Captured tables, and what views are made of, are a flow's; `versions` is `mr.as_of` with a stream's rows.
OWN = [name for name in SPECIMENS if name not in ("lookup", "table", "as_of", *CHAINS)]


def test_operators_in_a_session_of_ones_own_end_as_their_models(tmp_path: Path) -> None:
    names, parts = todays(OWN, 3), made(seeded("a job of one's own"), 4)
    for name in names:
        (tmp_path / name).mkdir()
        for number, part in enumerate(parts):
            write(tmp_path / name, number, part)
    quiet = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel.plain_job", str(tmp_path), *names],
        env=environ({"JAVA_HOME": str(java.find().resolve().parent.parent), "TZ": "UTC", **quiet}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Late rows reach the operators, which are told about them: Spark leaves none out.
    assert json.loads((tmp_path / DROPPED).read_text()) == dict.fromkeys(names, 0)
    assert {name: SPECIMENS[name].faults(tmp_path / name, parts) for name in names} == {name: [] for name in names}


OPERATORS: dict[str, Callable[..., DataFrame]] = {
    "window": lambda rows, late: mr.window(rows, "1 minute", by="key", n=mr.count(), emit="final", late=late),
    "session": lambda rows, late: mr.session(rows, "1 minute", by="key", n=mr.count(), emit="final", late=late),
    "lookback": lambda rows, late: mr.lookback(rows, by="key", n=mr.count(over="1 minute"), late=late),
    "match": lambda rows, late: mr.match(
        rows, by="key", pattern="a b", define={"a": "id = 1", "b": "id = 2"}, within="1 minute", late=late,
        measures={"n": mr.count()},
    ),
    "top": lambda rows, late: mr.top(rows, 1, by="key", of="id", order="at", emit="updates", ttl="1 day", late=late),
    "latest": lambda rows, late: mr.latest(rows, by="key", ttl="1 day", late=late),
    "dedup": lambda rows, late: mr.dedup(rows, on="key", ttl="1 day", late=late),
    "as_of": lambda rows, late: mr.as_of(rows, rows, on="key", emit="updates", late=late),
}  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
def test_late_rows_go_to_a_topic_in_a_flow_only(spark: SparkSession, tmp_path: Path, operator: str) -> None:
    own = spark.readStream.schema("id long, key string, at timestamp").json(str(tmp_path))
    rows = own.withWatermark("at", "10 seconds")
    with pytest.raises(LateSideOutside) as refused:
        OPERATORS[operator](rows, mr.late.side("too_late"))
    facts: Any = refused.value.facts
    assert (facts["operator"], facts["topic"]) == (operator, "too_late")
    assert refused.value.where is not None
    assert refused.value.where.file.endswith(Path(__file__).name)
    OPERATORS[operator](rows, mr.late.drop())
