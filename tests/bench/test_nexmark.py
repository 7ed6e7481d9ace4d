"""All of Nexmark's queries at once, as an app runs them: each gives what the published SQL gives as a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from bench.nexmark import batch, flows
from bench.nexmark.events import PLACES, Model
from millrace.engine import Progress, Run, sources
from millrace.flow import Stream
from tests.command import until
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

MODEL = Model(20_000, rate=400)


def test_every_query_gives_what_a_batch_gives(
    spark: SparkSession, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FIRST_RECORDS_AN_EPOCH", 10_000)
    outside = {table: project.settings.named(table) for table in PLACES}
    for table in PLACES:
        project.log.topics.create(table, partitions=2)
    MODEL.write(spark, project.log.data_source.options, outside)

    heard: list[Progress] = []
    with Run(flows.app, project.settings, once=True, spark=spark) as run:
        until(lambda: heard.extend(run.poll()) or run.done, "the flows to end", 300)  # type: ignore[func-returns-value]
        heard += run.stop()

    batch.views(spark, project.log.data_source.options, project.settings.named)
    for table in PLACES:
        spark.table(table).persist()
    streams = flows.app.graph().streams
    assert {stream.name for stream in streams} == set(batch.SQL)
    written = records(spark, project, streams).persist()
    for stream in streams:
        epochs = [each for each in heard if each.flow == stream.name]
        assert sum(each.rows_in for each in epochs) == sum(MODEL.count(topic.name) + 2 for topic in stream.reads)
        assert not any(each.late or each.dead for each in epochs), stream.name
        expected = batch.expected(spark, stream.name)
        assert batch.last_of(stream.name, told(written, project, stream)) == expected, stream.name
        assert len(expected) >= 5, stream.name
    spark.catalog.clearCache()


def records(spark: SparkSession, project: Project, streams: Sequence[Stream]) -> DataFrame:
    """What all flows wrote."""
    topics = ",".join(project.settings.named(stream.output.name) for stream in streams)
    raw = spark.read.format("kafka").options(**project.log.data_source.options).option("subscribe", topics).load()
    return raw.select("topic", "offset", F.col("value").cast("string"))


def told(records: DataFrame, project: Project, stream: Stream) -> Iterable[Row]:
    """The rows of a stream's topic; those of a key in their order."""
    spark = records.sparkSession
    schema = stream.body(*(spark.table(topic.name) for topic in stream.reads)).schema
    own = records.where(F.col("topic") == project.settings.named(stream.output.name)).orderBy("offset")
    return own.select(F.from_json("value", schema).alias("row")).select("row.*").collect()
