"""A plan is optimized once where every epoch's is the same, and left alone where it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine import realtime
from millrace.engine.plans import analyzed

pytestmark = pytest.mark.spark

EXCLUDED = "spark.sql.optimizer.excludedRules"
SAME: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filtered twice": lambda rows: rows.where("value > 1").select("value").where("value > 2"),
    "counted": lambda rows: rows.groupBy("value").count(),
}
ANOTHER: dict[str, Callable[[DataFrame], DataFrame]] = {
    "the time of day": lambda rows: rows.withColumn("now", F.current_timestamp()),
    "a table": lambda rows: rows.join(rows.sparkSession.range(3).withColumnRenamed("id", "value"), "value"),
}


def stream(spark: SparkSession) -> DataFrame:
    return spark.newSession().readStream.format("rate").load()


@pytest.mark.parametrize("name", SAME)
def test_settled(spark: SparkSession, name: str) -> None:
    rows = SAME[name](stream(spark))
    found = realtime.settled(rows)
    assert found.schema == rows.schema
    optimizer = rows.sparkSession._jsparkSession.sessionState().optimizer()
    assert "PushDownPredicates" in (rows.sparkSession.conf.get(EXCLUDED) or "")
    # What is left of the optimizer finds nothing to do, and what was excluded has been done.
    again = optimizer.execute(analyzed(found).clone())
    assert again.sameResult(analyzed(found))
    assert analyzed(found).toString().count("Filter") <= 1


@pytest.mark.parametrize("name", ANOTHER)
def test_left_alone(spark: SparkSession, name: str) -> None:
    rows = ANOTHER[name](stream(spark))
    assert analyzed(realtime.settled(rows)).sameResult(analyzed(rows))
    assert rows.sparkSession.conf.get(EXCLUDED, None) is None
