"""The broker that coordinates a flow's transactions dies, and another one does from then on.

epoch 1   prepared ── the driver dies, its coordinator too ── the next start commits it with the new coordinator
epoch 3   the producers of driver and tasks know the old coordinator from epoch 2
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace import config, local
from millrace.config import Settings
from millrace.errors import CheckpointOlder, EpochTorn, FlowTakenOver, MillraceError
from millrace.log import Log
from tests.engine.test_delivery import OUT, ROWS, Driver

pytestmark = [pytest.mark.spark, pytest.mark.server]

BROKERS = 3


class Brokers:
    """Three of them, as Kafka's own client in Spark's process sees them."""

    def __init__(self, spark: SparkSession, settings: Settings, until: Callable[..., None]) -> None:
        self.settings, self._until = settings, until
        java: Any = spark._jvm
        self._admin = java.org.apache.kafka.clients.admin.Admin.create(
            {"bootstrap.servers": local.address(settings, "kafka")}
        )

    def coordinator(self, identity: str) -> str:
        number = self._admin.describeTransactions([identity]).description(identity).get().coordinatorId()
        return "kafka" if number == 1 else f"kafka-{number}"

    def kill(self, name: str) -> None:
        (pid,) = (row.pid for row in local.status(self.settings) if row.server == name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def whole_again(self) -> None:
        """Every broker is there, and holds all that it had missed: the next one may die."""
        local.up(self.settings, ("kafka",))
        self._until(self._in_sync, "brokers that all have everything")

    def _in_sync(self) -> bool:
        topics = self._admin.describeTopics(["__transaction_state", OUT]).allTopicNames().get().values()
        return all(part.isr().size() == BROKERS for topic in topics for part in topic.partitions())

    def close(self) -> None:
        self._admin.close()


def tried_until(until: Callable[..., None], action: Callable[[], None], what: str) -> None:
    """As the engine does, which starts a flow again after an error that passes. None of these do."""

    def done() -> bool:
        try:
            action()
        except (EpochTorn, FlowTakenOver, CheckpointOlder):
            raise
        except MillraceError:
            return False
        return True

    until(done, what)


@pytest.mark.turn(0, 2)
def test_the_coordinator_moves_between_prepare_and_commit_and_between_two_epochs(
    spark: SparkSession, folder: Path, until: Callable[..., None]
) -> None:
    settings = config.load(folder)
    with local.held(settings, ("kafka",), brokers=BROKERS):
        log = Log(settings)
        log.topics.create(OUT, partitions=2)
        brokers = Brokers(spark, settings, until)
        driver = Driver(spark, log, folder / "checkpoint", "shop.copied")
        identity = f"{driver.name}.0.0"
        driver.write(0)
        driver.commit(0)

        with driver.stopping_at("AFTER_PREPARE"):
            driver.write(1)
        first = brokers.coordinator(identity)
        brokers.kill(first)
        tried_until(until, driver.begin, "a start with another coordinator")
        until(lambda: driver.has(2) and driver.held_back() == 0, "the prepared epoch")
        assert brokers.coordinator(identity) != first
        driver.write(1)  # Spark's repetition, which is discarded
        driver.commit(1)
        brokers.whole_again()

        driver.write(2)
        driver.commit(2)
        second = brokers.coordinator(identity)
        brokers.kill(second)
        tried_until(until, lambda: driver.write(3), "an epoch with another coordinator")
        driver.commit(3)
        until(lambda: driver.has(4) and driver.held_back() == 0, "the epoch")
        assert brokers.coordinator(identity) != second
        for key in range(3):
            epochs = [value // ROWS for value in driver.values() if value % 3 == key]
            assert epochs == sorted(epochs), "a key's records are in the order of their epochs"
        driver.end()
        brokers.close()
