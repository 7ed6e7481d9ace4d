"""Dead letters that cannot be written: the flow goes on, it is told, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from millrace.engine import Run
from millrace.engine.deadletters import joined
from millrace.engine.progress import Span
from millrace.errors import DeadLettersOwed
from millrace.flow import App
from millrace.serve.health import health
from tests.engine.conftest import Project

LIMIT = "max.message.bytes"


@pytest.mark.spark
@pytest.mark.server
def test_letters_that_cannot_be_written_hold_up_nobody_and_are_written_later(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    app = App("shop")
    views = app.topic("views", "n long", partitions=1)
    app.stream(views, name="same")(lambda p: p)
    project.log.topics.create("views")
    project.log.topics.create("views.dead", config={LIMIT: "1"})  # the broker refuses whatever is written there

    def troubled(run: Run) -> bool:
        run.poll()
        return run.standings["same"].trouble is not None

    with Run(app, project.settings, spark=spark) as run:
        project.write("views", [b'{"n":1}', b"junk"])
        until(lambda: troubled(run), "trouble")
        assert "'views'" in health(run.standings.values(), datetime.now(UTC))["same"]
        project.write("views", [b'{"n":2}', b"more junk"])
        until(lambda: run.poll() is not None and run.standings["same"].rows_in == 4, "the flow goes on")
        assert run.standings["same"].state == "running"
        with pytest.raises(DeadLettersOwed, match="none is lost"):
            run.stop()
    assert not list(project.log.dead.list("views"))

    with Run(app, project.settings, spark=spark) as run:
        until(lambda: troubled(run), "trouble again")
        project.log.topics.alter("views.dead", reset=[LIMIT])
        until(lambda: not troubled(run), "the end of it")
    found = {letter.record.value for letter in project.log.dead.list("views")}
    assert found == {b"junk", b"more junk"}


def test_spans_that_do_not_meet_are_looked_at() -> None:
    first, then = Span("t", {"0": 0}, {"0": 5}, 0), Span("t", {"0": 5}, {"0": 9, "1": 2}, 0)
    assert joined(first, then) == Span("t", {"0": 0}, {"0": 9, "1": 2}, 0)
    assert joined(first, Span("t", {"0": 7}, {"0": 9}, 0)).dead > 0
    assert joined(then, first).end == then.end
