"""What a topic keeps of its table's past is asked of the broker once."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import millrace as mr
from millrace.engine.histories import Histories
from millrace.engine.running import source_of
from millrace.flow import Table, Topic
from millrace.flow.histories import EVERYTHING, Kept, kept_of
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_what_a_topic_keeps(project: Project, spark: SparkSession, bootstrap: str) -> None:
    app = mr.App("kept")
    lately = {"time": "at", "lateness": "1 minute"}
    whole, compacted, lost = (
        app.topic(name, "item long, at timestamp", **lately) for name in ("whole", "compacted", "lost")
    )
    table = app.table("table", "id long", key="id")

    def kept(readable: Topic | Table, known: Kept | None = None) -> Kept:
        source = source_of(readable, project.log, "g")
        histories = Histories(spark, project.log, (source,), {readable.name: known} if known else {})
        with histories.told():
            found = kept_of(readable.name)
        assert dict(histories.found()) == {readable.name: found}
        return found

    topics = project.log.topics
    compaction = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
    for name, config in (("whole", {}), ("compacted", compaction), ("lost", {}), ("table", compaction)):
        topics.create(name, partitions=1, config=config)
        project.write(name, [b"{}"] * 2, 0) if "compact" not in str(config) else None
    assert kept(whole) == EVERYTHING

    an_hour_ago = (time.time() - 3_600) * 1e6
    since = kept(compacted).since_us
    assert since is not None
    assert abs(since - an_hour_ago) < 600e6
    assert kept(compacted, Kept(1)) == Kept(1)  # as the first start found it

    outside = topics.outside("lost")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(outside, 0, 1)]).values():
        future.result()
    assert kept(lost) == Kept(None, whole=False)

    # A captured table begins with its first change; one without any, now.
    empty = kept(table).since_us
    assert empty is not None
    assert empty - an_hour_ago > 3_000e6
    now_us = int(time.time() * 1e6)
    change = {"op": "r", "before": None, "after": {"id": 1}, "source": {"ts_us": now_us - 60_000_000}}
    with project.log.writer("table") as writer:
        writer.write(json.dumps(change), key='{"id":1}')
    assert kept(table) == Kept(now_us - 60_000_000)
