"""What a flow notes in Kafka of the epochs that it delivered, by which an older copy of its checkpoint is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from millrace.errors import FlowFailed
from tests.engine.conftest import Project
from tests.engine.test_delivery import OUT, Driver

pytestmark = [pytest.mark.spark, pytest.mark.server]


def test_why_an_epoch_could_not_be_noted_is_told_at_the_next(
    spark: SparkSession, project: Project, tmp_path: Path, until: Callable[..., None]
) -> None:
    """Here somebody reads with the group: then Kafka takes no note. Without one an older copy would not be known."""
    project.log.topics.create(OUT, partitions=2)
    driver = Driver(spark, project.log, tmp_path / "checkpoint", f"{project.settings.prefix}.copied")
    options = {"bootstrap.servers": driver.log.address, "group.id": f"{driver.name}.delivered", "log_level": 0}
    reader = Consumer(options)
    try:
        reader.subscribe([driver.log.topics.outside(OUT)])
        until(lambda: reader.poll(0.2) is None and reader.assignment(), "a reader in the group")
        driver.write(0)
        with pytest.raises(FlowFailed, match="UnknownMemberId"):
            driver.write(1)
    finally:
        reader.close()
    # What was delivered stays so.
    for epoch in range(4):
        driver.write(epoch) if epoch else driver.begin()
    assert driver.has(4)
    driver.end()
