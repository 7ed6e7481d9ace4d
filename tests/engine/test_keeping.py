"""Dead letters that cannot be written: the flow goes on, it is told, and none is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from millrace.engine import Run
from millrace.engine.deadletters import DeadLetters, joined
from millrace.engine.progress import Span
from millrace.errors import DeadLettersOwed
from millrace.flow import App
from millrace.serve.health import health
from tests.engine.conftest import Project

LIMIT = "max.message.bytes"
# Below a producer's batches (16 KB) Kafka's client would try a batch that was refused again and again as it is, and may
# never end (it halves a batch by its own size, not by the topic's).
LIMIT_BYTES = 20_000
JUNK = random.Random(1).randbytes(2 * LIMIT_BYTES)
MORE_JUNK = JUNK[::-1]


@pytest.mark.spark
@pytest.mark.server
def test_letters_that_cannot_be_written_hold_up_nobody_and_are_written_later(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    app = App("shop")
    views = app.topic("views", "n long", partitions=1)
    app.stream(views, name="same")(lambda p: p)
    project.log.topics.create("views")
    project.log.topics.create("views.dead", config={LIMIT: str(LIMIT_BYTES)})  # the broker refuses them

    def troubled(run: Run) -> bool:
        run.poll()
        return run.standings["same"].trouble is not None

    with Run(app, project.settings, spark=spark) as run:
        project.write("views", [b'{"n":1}', JUNK])
        until(lambda: troubled(run), "trouble")
        told = health(run.standings.values(), datetime.now(UTC))["same"]
        assert "'views'" in told
        assert "larger than the max message size the server will accept" in told
        project.write("views", [b'{"n":2}', MORE_JUNK])
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
    assert found == {JUNK, MORE_JUNK}


def test_what_an_older_version_noted_in_a_nested_folder_is_done(tmp_path: Path) -> None:
    topics = SimpleNamespace(identity=lambda _: "a/b", offsets=lambda _: {0: (0, 9)})
    source: Any = SimpleNamespace(topic=SimpleNamespace(name="views"))

    def letters() -> DeadLetters:
        return DeadLetters(source, tmp_path, cast("Any", SimpleNamespace(topics=topics)))

    def keep(end: int, dead: int) -> None:
        # Without a session: what is done is not read again.
        letters().keep(cast("Any", None), Span("views", {"0": 5}, {"0": end}, dead))

    (tmp_path / "views-a").mkdir()
    (tmp_path / "views-a" / "b.json").write_text('{"0": 5}')
    keep(5, dead=1)
    keep(6, dead=0)
    keep(6, dead=1)


def test_spans_that_do_not_meet_are_looked_at() -> None:
    first, then = Span("t", {"0": 0}, {"0": 5}, 0), Span("t", {"0": 5}, {"0": 9, "1": 2}, 0)
    assert joined(first, then) == Span("t", {"0": 0}, {"0": 9, "1": 2}, 0)
    assert joined(first, Span("t", {"0": 7}, {"0": 9}, 0)).dead > 0
    assert joined(then, first).end == then.end
