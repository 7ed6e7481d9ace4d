"""The session: how it is set up, and that workers run the Python that the user runs."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace import config
from millrace.engine.session import is_local, options_of, partitions, session
from millrace.errors import SessionElsewhere
from millrace.testing.plugin import MASTER
from tests.test_guide import GUIDE


@pytest.mark.spark
def test_workers_run_the_users_python(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).collect()
    assert found == [sys.executable]


@pytest.mark.spark
def test_what_flows_rely_on_is_set(spark: SparkSession) -> None:
    state = "spark.sql.streaming.stateStore"
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        f"{state}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{state}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{state}.checkpointFormatVersion": "2",
        f"{state}.rocksdb.boundedMemoryUsage": "true",
        f"{state}.rocksdb.maxMemoryUsageMB": "512",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    assert {name: spark.conf.get(name) for name in wanted} == wanted


@pytest.mark.spark
def test_the_memory_of_all_state_is_bounded(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"key": "a"}\n')
    rows = spark.readStream.schema("key string").json(str(tmp_path / "in")).groupBy("key").count()
    writer = rows.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    java: Any = spark._jvm
    stores = java.org.apache.spark.sql.execution.streaming.state.RocksDBMemoryManager
    assert stores.getNumRocksDBInstances(True) > 0
    assert stores.getNumRocksDBInstances(False) == 0


@pytest.mark.spark
def test_a_running_context_is_used_and_its_settings_left_alone(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        again = session(config.load())
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.session.timeZone") == "UTC"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    with pytest.raises(SessionElsewhere, match=re.escape(MASTER)):
        session(config.load(), "local[3]")
    assert SparkContext._active_spark_context is spark.sparkContext


@pytest.mark.spark
def test_an_error_with_its_place_in_a_query_is_not_printed(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = spark.range(1).selectExpr("concat('x', id) AS text")
    for failing in (rows.selectExpr("CAST(text AS INT)"), rows.select(F.col("text").cast("int"))):
        with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
            failing.collect()
    assert "CAST_INVALID_INPUT" not in "".join(capfd.readouterr())


@pytest.mark.spark
def test_options_of_the_user_for_flows_come_last(spark: SparkSession) -> None:
    settings = config.load()
    chosen = {"spark.sql.streaming.minBatchesToRetain": "7"}
    own = session(replace(settings, spark=replace(settings.spark, options=chosen)))
    assert own.conf.get("spark.sql.streaming.minBatchesToRetain") == "7"


def test_options_of_the_user_come_last_in_a_new_session(tmp_path: Path) -> None:
    """As the guide says it of real time."""
    wait = "spark.shuffle.streaming.networkBufferMaxWaitTimeMs"
    assert options_of(config.load(tmp_path), "local[2]", tmp_path)[wait] == "1"
    guide = (GUIDE / "realtime.md").read_text(encoding="utf-8")
    (toml,) = (block for block in guide.split("```toml\n")[1:] if wait in block)
    (tmp_path / "millrace.toml").write_text(toml.partition("```")[0])
    assert options_of(config.load(tmp_path), "local[2]", tmp_path)[wait] == "5"


@pytest.mark.parametrize(
    ("master", "options", "expected"),
    [
        ("local", {}, 2),
        ("local[1]", {}, 2),
        ("local[6]", {}, 6),
        ("local[4, 2]", {}, 4),
        ("spark://host:7077", {}, 16),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
    ],
)
def test_shuffle_partitions_follow_the_cores(master: str, options: dict[str, str], expected: int) -> None:
    assert partitions(master, options) == expected
    assert is_local(master) == master.startswith("local")
