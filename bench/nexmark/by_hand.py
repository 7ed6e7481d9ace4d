"""Some of the queries as one would write them on Spark without Millrace: `from_json`, `withWatermark`, Spark's windows.

They check nothing: a record that does not fit becomes nulls, late rows are dropped uncounted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.nexmark import flows
from bench.sides import RECORDS_AN_EPOCH


def bids(spark: SparkSession, kafka: Mapping[str, str]) -> DataFrame:
    raw = (
        spark.readStream.format("kafka")
        .options(**kafka)
        .option("subscribe", "bids")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_AN_EPOCH)
        .load()
    )
    assert flows.bids.schema is not None
    parsed = raw.select(F.from_json(F.col("value").cast("string"), flows.bids.schema).alias("bid")).select("bid.*")
    return parsed.withWatermark("dateTime", "4 seconds")


def q11(bids: DataFrame) -> DataFrame:
    return bids.groupBy("bidder", F.session_window("dateTime", "10 seconds")).count()


# Where the flow's own function is what one would write.
QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "q0": (flows.q0.body, "append"),
    "q1": (flows.q1.body, "append"),
    "q2": (flows.q2.body, "append"),
    "q11": (q11, "append"),
    "q12": (flows.q12.body, "update"),
}
