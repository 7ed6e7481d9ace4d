"""Nexmark's queries at once, as an app runs them: each gives what the published SQL gives as a batch. Every run takes
some of them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from bench.nexmark import batch, flink, flows
from bench.nexmark.events import PLACES, Model
from millrace.engine import Progress, Run, sources
from tests.command import until
from tests.engine.conftest import Project
from tests.rotation import todays

pytestmark = [pytest.mark.spark, pytest.mark.server]

MODEL = Model(12_000, rate=400)
STREAMS = flows.app.graph().streams


def test_queries_give_what_a_batch_gives(
    spark: SparkSession, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FIRST_RECORDS_AN_EPOCH", 6_000)
    kafka, own = project.log.data_source.options, interpreting(spark)
    for table in PLACES:
        project.log.topics.create(table, partitions=2)
    MODEL.write(own, kafka, {table: project.settings.named(table) for table in PLACES})

    heard: list[Progress] = []
    # Every third one, so that each run has some of each kind.
    streams = todays([STREAMS[place] for first in range(3) for place in range(first, len(STREAMS), 3)], 6)
    with Run(flows.app, project.settings, only=[each.name for each in streams], once=True, spark=spark) as run:
        until(lambda: heard.extend(run.poll()) or run.done, "the flows to end", 300)  # type: ignore[func-returns-value]
        heard += run.stop()

    batch.views(own, kafka, project.settings.named)
    for table in PLACES:
        own.table(table).persist()
    for stream in streams:
        epochs = [each for each in heard if each.flow == stream.name]
        assert sum(each.rows_in for each in epochs) == sum(MODEL.count(topic.name) + 2 for topic in stream.reads)
        assert not any(each.late or each.dead for each in epochs), stream.name
        expected = batch.expected(own, stream.name)
        told = [(record.value or b"").decode() for record in project.log.read(stream.output.name)]
        assert batch.last_of(stream.name, told) == expected, stream.name
        assert len(expected) >= 2, stream.name
    own.catalog.clearCache()


def test_every_query_is_there_for_each_engine() -> None:
    assert {stream.name for stream in STREAMS} == set(batch.SQL) == set(flink.SQL)


def interpreting(spark: SparkSession) -> SparkSession:
    """A session that does not compile its plans: for few rows that would be most of the work."""
    own = spark.newSession()
    own.conf.set("spark.sql.codegen.wholeStage", "false")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own
