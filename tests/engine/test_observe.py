"""Flows that fail and flows that go on beside them, on a real Kafka; and what one sees of both."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace import errors
from millrace.engine import Progress, Run, sources
from millrace.engine.flows import flows
from millrace.engine.progress import PHASES
from millrace.flow import App
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

FIRST, MORE = set(range(10)), set(range(20, 2000))


def write(project: Project, *numbers: int) -> None:
    project.write("numbers", [json.dumps({"n": n}).encode() for n in numbers])


def out(project: Project, topic: str) -> set[int]:
    return {record.json()["n"] for record in project.log.read(topic)}


def three() -> App:
    """One flow that only reads, one whose function does not like 13, and one that the second feeds."""
    app = App("watched")
    given = app.topic("numbers", "n long", partitions=1)
    app.stream(given, name="calm")(lambda p: p)
    bad = F.when(F.col("n") == 13, F.raise_error(F.lit("13 is bad"))).otherwise(F.col("n")).alias("n")
    picky = app.stream(given, name="picky", schema="n long")(lambda p: p.select(bad))
    app.stream(picky, name="fed")(lambda p: p)
    return app


def test_a_failing_flow_comes_back_or_ends_and_the_others_go_on(
    spark: SparkSession, project: Project, until: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Progress] = []
    run = Run(three(), project.settings, spark=spark)

    def polled(found: bool) -> bool:
        heard.extend(run.poll())
        return found

    def said(event: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == event]

    def watched() -> None:
        with run:
            write(project, *FIRST)
            until(lambda: polled(out(project, "calm") == out(project, "fed") == FIRST), "all flows at work")
            it_comes_back()
            it_ends()

    def it_comes_back() -> None:
        """Somebody cancels the job of an epoch, which is a failure that passes."""
        query = run.flows["calm"].query

        def failed() -> bool:
            spark.sparkContext.cancelJobGroup(str(query.runId))
            return query.exception() is not None

        write(project, *MORE)
        until(failed, "its failure")
        until(lambda: polled(run.standings["calm"].state == "restarting"), "it is let go")
        assert "SPARK_JOB_CANCELLED" in str(run.standings["calm"].error)
        (sentence,) = said("restart")
        assert sentence.startswith("calm is started again in 1 s: MR-FLOW-FAILED")
        until(lambda: polled(out(project, "calm") == FIRST | MORE), "nothing is lost")
        assert (run.standings["calm"].state, run.standings["calm"].restarts) == ("running", 1)

    def it_ends() -> None:
        write(project, 13, 14)
        until(lambda: polled("picky" in run.failed), "the end of one flow")
        (sentence,) = said("failure")
        assert "13 is bad" in sentence
        until(lambda: polled({13, 14} <= out(project, "calm")), "the others go on")
        until(lambda: polled(shown("calm")["state"] == "running"), "others see it")
        assert (shown("picky")["state"], shown("picky")["error"]) == ("failed", str(run.failed["picky"]))
        assert shown("fed")["pid"] is not None

    def shown(flow: str) -> dict[str, object]:
        (found,) = [each for each in flows(project.settings) if each["flow"] == flow]
        return found

    with caplog.at_level(logging.WARNING, "millrace.engine"), pytest.raises(errors.BodyFailed, match="13 is bad"):
        watched()

    assert {name: found.state for name, found in run.standings.items()} == {
        "calm": "ended", "picky": "failed", "fed": "ended",
    }  # fmt: skip
    assert run.standings["calm"].rows_in >= sum(progress.rows_in for progress in heard if progress.flow == "calm")
    assert [shown(flow)["state"] for flow in ("calm", "picky")] == ["stopped", "failed"]
    for progress in heard:
        assert set(progress.phases_ms) == {*PHASES, "other"}
        assert sum(progress.phases_ms.values()) == progress.epoch_ms
        # Of an epoch that is done again, Spark does not ask how far the topics go.
        assert (progress.lag_records, progress.lag_s) in ((0, 0.0), (None, None))

    # Every tool for Kafka sees how far they are.
    assert {"watched.calm", "watched.picky"} <= {group.name for group in project.log.groups.list()}
    (calm,), (picky,) = project.log.groups.lag("watched.calm"), project.log.groups.lag("watched.picky")
    assert (calm.topic, calm.committed, calm.records) == ("numbers", 1992, 0)
    assert (picky.committed, picky.records) == (1990, 2)
    assert picky.seconds > 0


def test_once_ends_with_the_error_after_the_others_are_done(
    spark: SparkSession, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FIRST_RECORDS_AN_EPOCH", 60)
    run = Run(three(), project.settings, once=True, spark=spark)
    project.log.topics.create("numbers", partitions=1)
    write(project, *range(100))
    heard: list[Progress] = []

    def to_the_end() -> None:
        with run:
            while not run.done:
                heard.extend(run.poll())
            heard.extend(run.stop())

    with pytest.raises(errors.BodyFailed, match="13 is bad"):
        to_the_end()
    assert out(project, "calm") == set(range(100))
    assert run.standings["fed"].epochs == 0
    assert run.standings["fed"].error == "it was not started, because picky failed"
    first, last = next(progress for progress in heard if progress.flow == "calm"), run.standings["calm"].last
    assert last is not None
    assert first.lag_records == 100 - first.rows_in > 0
    assert first.lag_s is not None
    assert first.lag_s > 0
    assert (last.lag_records, last.lag_s) == (0, 0.0)
