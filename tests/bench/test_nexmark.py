"""All of Nexmark's queries at once, as an app runs them: each gives what the published SQL gives as a batch."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from bench.nexmark import batch, flows
from bench.nexmark.events import PLACES, Model
from millrace.engine import Progress, Run, sources
from tests.command import until
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

MODEL = Model(20_000, rate=400)


@pytest.mark.turn(0, 2)
def test_every_query_gives_what_a_batch_gives(
    spark: SparkSession, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FIRST_RECORDS_AN_EPOCH", 10_000)
    kafka, own = project.log.data_source.options, interpreting(spark)
    for table in PLACES:
        project.log.topics.create(table, partitions=2)
    MODEL.write(own, kafka, {table: project.settings.named(table) for table in PLACES})

    heard: list[Progress] = []
    with Run(flows.app, project.settings, once=True, spark=spark) as run:
        until(lambda: heard.extend(run.poll()) or run.done, "the flows to end", 300)  # type: ignore[func-returns-value]
        heard += run.stop()

    batch.views(own, kafka, project.settings.named)
    for table in PLACES:
        own.table(table).persist()
    streams = flows.app.graph().streams
    assert {stream.name for stream in streams} == set(batch.SQL)
    for stream in streams:
        epochs = [each for each in heard if each.flow == stream.name]
        assert sum(each.rows_in for each in epochs) == sum(MODEL.count(topic.name) + 2 for topic in stream.reads)
        assert not any(each.late or each.dead for each in epochs), stream.name
        expected = batch.expected(own, stream.name)
        told = [(record.value or b"").decode() for record in project.log.read(stream.output.name)]
        assert batch.last_of(stream.name, told) == expected, stream.name
        assert len(expected) >= 5, stream.name
    own.catalog.clearCache()


def interpreting(spark: SparkSession) -> SparkSession:
    """A session that does not compile its plans: for few rows that would be most of the work."""
    own = spark.newSession()
    own.conf.set("spark.sql.codegen.wholeStage", "false")
    own.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own
