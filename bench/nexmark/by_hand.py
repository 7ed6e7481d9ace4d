"""Some of the queries as one would write them on Spark without Millrace: `from_json`, `withWatermark`, Spark's windows.

They check nothing: a record that does not fit becomes nulls, late rows are dropped uncounted. Others cannot be written
so at all: on a stream Spark refuses ROW_NUMBER and whatever else looks at rows beside each other (q6, q9, q18, q19),
and distinct values in aggregates (q15, q16).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.nexmark import flows
from bench.sides import RECORDS_AN_EPOCH
from millrace.flow import Topic


@dataclass(frozen=True)
class Query:
    """`reads` are the topics that the function is given."""

    body: Callable[..., DataFrame]
    reads: tuple[Topic, ...] = (flows.bids,)
    mode: str = "append"

    def frame(self, spark: SparkSession, kafka: Mapping[str, str]) -> DataFrame:
        return self.body(*(_rows(spark, kafka, topic) for topic in self.reads))


def _rows(spark: SparkSession, kafka: Mapping[str, str], topic: Topic) -> DataFrame:
    raw = (
        spark.readStream.format("kafka")
        .options(**kafka)
        .option("subscribe", topic.name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_AN_EPOCH)
        .load()
    )
    assert topic.schema is not None
    parsed = raw.select(F.from_json(F.col("value").cast("string"), topic.schema).alias("row")).select("row.*")
    return parsed.withWatermark("dateTime", "4 seconds")


def q11(bids: DataFrame) -> DataFrame:
    return bids.groupBy("bidder", F.session_window("dateTime", "10 seconds")).count()


def q13(bids: DataFrame) -> DataFrame:
    numbered = bids.select("auction", "bidder", "price", "dateTime", F.expr("auction % 10000").alias("key"))
    return numbered.join(F.broadcast(flows.side_input(bids.sparkSession)), "key").drop("key")


def q17(bids: DataFrame) -> DataFrame:
    counts = [F.count(F.when(F.expr(condition), 1)).alias(f"{rank}_bids") for rank, condition in flows.RANKS.items()]
    prices = [each("price").alias(f"{each.__name__}_price") for each in (F.min, F.max, F.avg, F.sum)]
    return bids.groupBy("auction", F.window("dateTime", "1 day")).agg(*counts, *prices)


def q20(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    lots = auctions.where("category = 10").withColumnsRenamed({"dateTime": "opened", "extra": "auction_extra"})
    near = "dateTime BETWEEN opened - INTERVAL 1 SECOND AND opened + INTERVAL 10 SECONDS"
    return lots.join(bids, F.expr(f"auction = id AND {near}"))


def q23(persons: DataFrame, auctions: DataFrame, bids: DataFrame) -> DataFrame:
    people = persons.withColumnsRenamed({"id": "person", "dateTime": "joined"})
    lots = auctions.withColumnsRenamed({"dateTime": "opened", "extra": "auction_extra"})
    offers = bids.withColumnsRenamed({"extra": "bid_extra"})
    active = "joined BETWEEN opened - INTERVAL 3 MINUTES AND opened + INTERVAL 1 MINUTE"
    near = "dateTime BETWEEN opened - INTERVAL 3 MINUTES AND opened + INTERVAL 3 MINUTES"
    sellers = lots.join(people, F.expr(f"seller = person AND {active}"))
    return sellers.drop("joined").join(offers, F.expr(f"seller = bidder AND {near}"))


# Where the flow's own function is what one would write, it is taken.
QUERIES = {
    "q0": Query(flows.q0.body),
    "q1": Query(flows.q1.body),
    "q2": Query(flows.q2.body),
    "q11": Query(q11),
    "q12": Query(flows.q12.body, mode="update"),
    "q13": Query(q13),
    "q17": Query(q17, mode="update"),
    "q20": Query(q20, (flows.auctions, flows.bids)),
    "q22": Query(flows.q22.body),
    "q23": Query(q23, (flows.persons, flows.auctions, flows.bids)),
}
