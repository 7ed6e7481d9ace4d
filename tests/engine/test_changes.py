"""What a change of code means for a checkpoint: `plan` says it, and a run obeys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace.engine import Run
from millrace.engine.changes import Answer, answers
from millrace.errors import StateChanged
from millrace.flow import App
from tests.engine.conftest import Project
from tests.engine.test_time import once, views_at, windowed

pytestmark = [pytest.mark.spark, pytest.mark.server]

SCHEMA = "user string, at timestamp, n long"


def shop(
    schema: str = SCHEMA, lateness: str = "10 seconds", size: str = "1 minute", above: int = 0, **given: Any
) -> App:
    app = App("shop")
    views = app.topic("views", schema, time="at", lateness=lateness, partitions=1)
    given = {"by": "user", "n": mr.count(), "emit": "final", "late": mr.late.drop(), **given}

    @app.stream(views)
    def counts(p: DataFrame) -> DataFrame:
        return mr.window(p.where(f"coalesce(n, 1) > {above}"), size, **given)

    @app.stream(views)
    def natively(p: DataFrame) -> DataFrame:
        return p.dropDuplicates(["user", "at"] if above < 10 else ["at"])

    @app.stream(views)
    def plainly(p: DataFrame) -> DataFrame:
        return p.select("user")

    return app


def asked(spark: SparkSession, project: Project, app: App) -> dict[str, Answer]:
    return {answer.flow: answer for answer in answers(app.graph(), project.settings, spark)}


@pytest.mark.turn(0, 2)
def test_every_answer_and_what_a_run_does(spark: SparkSession, project: Project) -> None:
    project.log.topics.create("views", partitions=1)
    assert {each.verdict for each in asked(spark, project, shop()).values()} == {"new"}
    project.write("views", [json.dumps(row).encode() for row in views_at(1, 2)])
    once(spark, project, shop())

    changes = {
        "same": shop(),
        "safe": shop(above=5),
        "compatible": shop(lateness="20 seconds"),
        "compatible ": shop(late=mr.late.side("aside")),
        "compatible  ": shop(emit="updates"),
        "needs a new checkpoint": shop(size="2 minutes"),
        "needs a new checkpoint ": shop(total=mr.sum("n")),
        "needs a new checkpoint  ": shop(n=mr.distinct("n")),
        "needs a new checkpoint   ": shop(by=[]),
        "needs a new checkpoint     ": shop(late=mr.late.allow("1 minute")),
        "needs a new checkpoint    ": shop(schema="user long, at timestamp, n long"),
    }
    for verdict, app in changes.items():
        answer = asked(spark, project, app)["counts"]
        assert answer.verdict == verdict.strip(), (verdict, answer)
        assert bool(answer.reason) == (answer.verdict != "same"), answer
    assert "up to 10 seconds late" in asked(spark, project, changes["compatible"])["counts"].reason
    assert asked(spark, project, shop(above=10))["natively"].verdict == "needs a new checkpoint"
    now_with_state = App("shop")
    views = now_with_state.topic("views", SCHEMA, time="at", lateness="10 seconds", partitions=1)
    now_with_state.stream(views, name="plainly")(lambda p: windowed(p))
    assert asked(spark, project, now_with_state)["plainly"].verdict == "needs a new checkpoint"

    with pytest.raises(StateChanged, match="it held windows of 1 minute by user string: count"):
        once(spark, project, changes["needs a new checkpoint"])
    for verdict in ("safe", "compatible ", "compatible  "):
        once(spark, project, changes[verdict])
    with Run(changes["needs a new checkpoint"], project.settings, once=True, fresh=["counts"], spark=spark) as run:
        while not run.done:
            run.poll()
    assert asked(spark, project, changes["needs a new checkpoint"])["counts"].verdict == "same"

    project.log.topics.delete("views")
    project.log.topics.create("views", partitions=1)
    assert asked(spark, project, shop())["counts"].verdict == "refused"
