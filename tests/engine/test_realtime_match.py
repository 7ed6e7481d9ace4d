"""Patterns in real time: a match is told with the row that decides it, over an epoch's end and a restart."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run
from tests.command import millrace, until
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.usefixtures("whole_epochs")]

SMALL_THEN_LARGE = {"small": "amount < 2", "large": "amount > 500"}


@pytest.mark.turn(1, 3)
def test_a_match_leaves_with_the_row_that_decides_it(project: Project, spark: SparkSession) -> None:
    app = mr.App("now")
    payments = app.topic(
        "payments", "card string, amount double, at timestamp", time="at", lateness="0 seconds", ahead=None
    )

    @app.stream(payments, key="card", mode="realtime", epoch="10 minutes")
    def tested(p: DataFrame) -> DataFrame:
        return mr.match(
            p, by="card", pattern="small{2,} large", define=SMALL_THEN_LARGE, within="10 minutes", order="arrival",
            measures={"tries": mr.count("small")}, late=mr.late.drop(),
        )  # fmt: skip

    def pay(*amounts: float, second: int) -> None:
        rows = [
            {"card": "c", "amount": amount, "at": f"2026-01-01T00:00:{second + n:02}Z"}
            for n, amount in enumerate(amounts)
        ]
        project.write("payments", [json.dumps(row).encode() for row in rows], 0)

    def told() -> list[int]:
        there = project.log.topics.exists("tested")
        return [record.json()["tries"] for record in project.log.read("tested")] if there else []

    def come(run: Run, tries: list[int]) -> None:
        def there() -> bool:
            run.poll()
            return told() == tries

        until(there, f"matches of {tries}", 120)

    (project.settings.folder / "millrace.toml").write_text(f'prefix = "{project.settings.prefix}"\n')
    project.log.topics.create("payments", partitions=1)
    with Run(app, project.settings, spark=spark) as run:
        pay(1, 1, 900, 1, second=0)
        come(run, [2])
        pay(1, 1, 900, 1, 1, second=4)  # what came first is held while the epoch goes on
        come(run, [2, 3])
        # Of two small payments either may begin the next match.
        assert [each.partial_matches for each in run.stop()] == [2]
    with Run(app, project.settings, spark=spark) as run:
        # While it runs, another process sees what was committed.
        shown = millrace("state", "tested", "--key", "c", "--json", cwd=project.settings.folder)
        assert shown.returncode == 0, shown.stderr
        (kept,) = json.loads(shown.stdout)
        assert kept["facts"]["partial_matches"] == len(kept["entries"]) == 2
        pay(900, second=9)
        come(run, [2, 3, 2])
        assert [each.partial_matches for each in run.stop()] == [0]
