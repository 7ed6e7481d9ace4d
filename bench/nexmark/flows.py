"""Queries of Nexmark as flows; `millrace run bench.nexmark.flows:app` runs them over the topics of a project.

Some queries keep rows for ever as they were published; here they have the bounds of the model: a seller joined from
ten minutes before to a minute after the auction (q3), an auction lasts seconds (q4, q6, q9, which look at auctions that
are over), bids for it come from a second before it is seen (q20), and who bids and sells is active for three minutes
(q23). Of a tie, q5 and q7 tell one. The last step of q4 keeps a row a category; q18 and q19 keep their rows, as they
are published.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr

app = mr.App("nexmark")

TIMED: Any = {"time": "dateTime", "lateness": "4 seconds"}
FINAL: Any = {"emit": "final", "late": mr.late.drop()}
RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}

persons = app.topic(
    "persons",
    "id long, name string, emailAddress string, creditCard string, city string, state string, dateTime timestamp,"
    " extra string",
    **TIMED,
)
auctions = app.topic(
    "auctions",
    "id long, itemName string, description string, initialBid long, reserve long, dateTime timestamp,"
    " expires timestamp, seller long, category long, extra string",
    **TIMED,
)
bids = app.topic(
    "bids",
    "auction long, bidder long, price long, channel string, url string, dateTime timestamp, extra string",
    **TIMED,
)


@app.stream(bids)
def q0(bids: DataFrame) -> DataFrame:
    """Every bid as it is: what reading and writing cost."""
    return bids.select("auction", "bidder", "price", "dateTime", "extra")


@app.stream(bids)
def q1(bids: DataFrame) -> DataFrame:
    """Prices in euros."""
    return bids.select("auction", "bidder", F.expr("0.908 * price").alias("price"), "dateTime", "extra")


@app.stream(bids)
def q2(bids: DataFrame) -> DataFrame:
    """The bids for some auctions."""
    return bids.where("auction % 123 = 0").select("auction", "price")


@app.stream(auctions, persons)
def q3(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    """Who sells in one category, in three states."""
    sold = auctions.where("category = 10").select("id", "seller", "dateTime")
    sellers = persons.where("state IN ('OR', 'ID', 'CA')").select(
        F.col("id").alias("seller"), "name", "city", "state", F.col("dateTime").alias("joined")
    )
    pairs = mr.join(sold, sellers, on="seller", within=("-10 minutes", "1 minute"), times=("dateTime", "joined"))
    return pairs.select("name", "city", "state", "id")


@app.stream(auctions, bids, key="category", emit="updates")
def q4(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """What an auction of a category brings on average: the highest bid within its life."""
    lives = auctions.select(F.col("id").alias("auction"), "category", "dateTime", "expires")
    offers = bids.select("auction", "price", F.col("dateTime").alias("offered"))
    pairs = mr.join(lives, offers, on="auction", within=("0 seconds", "10 seconds"), times=("dateTime", "offered"))
    valid = pairs.where("offered <= expires")
    sold = mr.window(valid, "10 seconds", by=["auction", "category"], price=mr.max("price"), time="dateTime", **FINAL)
    return sold.groupBy("category").agg(F.avg("price").alias("price"))


@app.stream(bids)
def q5(bids: DataFrame) -> DataFrame:
    """Which auction had the most bids in the last ten seconds, every two seconds."""
    counts = mr.window(bids, "10 seconds", every="2 seconds", by="auction", bids=mr.count(), **FINAL)
    hottest = mr.top(counts, 1, by=["window_start", "window_end"], order=["-bids", "-auction"], emit="final")
    return hottest.select("window_start", "window_end", "auction", "bids")


@app.stream(auctions, bids)
def q6(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """What the last ten auctions of a seller brought on average, whenever one is over."""
    sold = won(auctions.select("id", "seller", "dateTime", "expires"), bids.select("auction", "price", "dateTime"))
    lately = mr.lookback(sold, by="seller", time="window_end", prices=mr.last_n("price", 10, over="10 minutes"))
    mean = F.expr("aggregate(prices, 0D, (sum, price) -> sum + price) / size(prices)")
    return lately.select("seller", F.col("window_end").alias("closed"), mean.alias("price"))


@app.stream(bids)
def q7(bids: DataFrame) -> DataFrame:
    """The highest bid of every ten seconds."""
    end = F.timestamp_seconds((F.floor(F.unix_seconds("dateTime") / 10) + 1) * 10).alias("window_end")
    placed = bids.select("price", "auction", "bidder", "dateTime", "extra", end)
    order = ["-price", "-auction", "-bidder", "-dateTime", "-extra"]
    return mr.top(placed, 1, by="window_end", order=order, **FINAL).drop("rank")


@app.stream(persons, auctions)
def q8(persons: DataFrame, auctions: DataFrame) -> DataFrame:
    """Who joined and put something up for auction within the same ten seconds."""
    joined = persons.select("id", "name", "dateTime")
    listed = auctions.select(F.col("seller").alias("id"), F.lit(None).cast("string").alias("name"), "dateTime")
    both = mr.window(
        joined.union(listed), "10 seconds", by="id", name=mr.max("name"), auctions=mr.count("name IS NULL"), **FINAL
    )
    return both.where("name IS NOT NULL AND auctions > 0").select(
        "id", "name", "window_start", "window_end", "auctions"
    )


@app.stream(auctions, bids)
def q9(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """The bid that wins an auction, told when it is over."""
    offers = bids.select("auction", "bidder", "price", "dateTime", F.col("extra").alias("bid_extra"))
    return won(auctions, offers).withColumnRenamed("window_end", "expires")


@app.stream(bids)
def q11(bids: DataFrame) -> DataFrame:
    """How many bids somebody makes while active."""
    return mr.session(bids, "10 seconds", by="bidder", bids=mr.count(), **FINAL)


@app.stream(bids, key="bidder", emit="updates")
def q12(bids: DataFrame) -> DataFrame:
    """How many bids of somebody are read within ten seconds of the day's clock. Such windows are Spark's own."""
    return bids.groupBy("bidder", F.window(F.current_timestamp(), "10 seconds")).count()


@app.stream(bids)
def q13(bids: DataFrame) -> DataFrame:
    """Bids with what a table that never changes has about them."""
    numbered = bids.select("auction", "bidder", "price", "dateTime", F.expr("auction % 10000").alias("key"))
    return mr.lookup(numbered, side_input(bids.sparkSession), on="key", how="inner").drop("key")


@app.stream(bids)
def q14(bids: DataFrame) -> DataFrame:
    """Costly bids by the time of day, and how many letters c they have."""
    hour = F.hour("dateTime")
    time = F.when(hour.between(8, 18), "day").when((hour <= 6) | (hour >= 20), "night").otherwise("other")
    return bids.select(
        "auction",
        "bidder",
        F.expr("0.908 * price").alias("price"),
        time.alias("bidTimeType"),
        "dateTime",
        "extra",
        F.expr("length(extra) - length(replace(extra, 'c', ''))").alias("c_counts"),
    ).where("price > 1000000 AND price < 50000000")


@app.stream(bids, key="day")
def q15(bids: DataFrame) -> DataFrame:
    """How many bids, bidders and auctions a day has: in all, and by price."""
    return daily(bids, **by_price())


@app.stream(bids, key=["channel", "day"])
def q16(bids: DataFrame) -> DataFrame:
    """The same of each channel, and the minute of its last bid."""
    return daily(bids, by="channel", minute=mr.max(F.date_format("dateTime", "HH:mm")), **by_price())


@app.stream(bids, key=["auction", "day"])
def q17(bids: DataFrame) -> DataFrame:
    """How many bids an auction has on a day, and their prices."""
    counts = {f"{rank}_bids": mr.count(condition) for rank, condition in RANKS.items()}
    prices = {"min_price": mr.min("price"), "max_price": mr.max("price"), "avg_price": mr.avg("price")}
    return daily(bids, by="auction", **counts, **prices, sum_price=mr.sum("price"))


@app.stream(bids)
def q18(bids: DataFrame) -> DataFrame:
    """The last bid of somebody for an auction."""
    return mr.latest(bids, by=["bidder", "auction"])


@app.stream(bids)
def q19(bids: DataFrame) -> DataFrame:
    """The ten highest bids for an auction."""
    return mr.top(bids, 10, by="auction", order="-price", emit="updates")


@app.stream(auctions, bids)
def q20(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """The bids for auctions of one category, with what is auctioned."""
    lots = auctions.where("category = 10").withColumnsRenamed({"id": "auction", "dateTime": "opened"})
    return mr.join(lots, bids, on="auction", within=("-1 second", "10 seconds"), prefix="bid_")


@app.stream(bids)
def q22(bids: DataFrame) -> DataFrame:
    """The folders of the page that a bid came from."""
    folders = F.split("url", "/")
    return bids.select("auction", "bidder", "price", "channel", *(folders[i].alias(f"dir{i - 2}") for i in (3, 4, 5)))


@app.stream(persons, auctions, bids)
def q23(persons: DataFrame, auctions: DataFrame, bids: DataFrame) -> DataFrame:
    """The bids of people who sell something themselves, with who they are and each thing that they sell."""
    people = persons.withColumnsRenamed({"id": "seller", "dateTime": "joined"})
    lots = auctions.withColumnsRenamed({"dateTime": "opened", "extra": "auction_extra"})
    offers = bids.withColumnsRenamed({"bidder": "seller", "extra": "bid_extra"})
    sellers = mr.join(lots, people, on="seller", within=("-3 minutes", "1 minute"))
    return mr.join(sellers, offers, on="seller", within=("-3 minutes", "3 minutes"), times=("opened", "dateTime"))


# What several queries share.


def won(auctions: DataFrame, offers: DataFrame) -> DataFrame:
    """Auctions with the highest bid of their life, of equal ones the first; each when it is over, its `window_end`."""
    lots = auctions.withColumnsRenamed({"id": "auction", "expires": "window_end"})
    bids = offers.withColumnRenamed("dateTime", "offered")
    pairs = mr.join(lots, bids, on="auction", within=("0 seconds", "10 seconds")).where("offered <= window_end")
    return mr.top(pairs, 1, by=["auction", "window_end"], order=["-price", "offered"], **FINAL).drop("rank")


def daily(bids: DataFrame, by: str | tuple[str, ...] = (), **aggregates: Any) -> DataFrame:
    """Of each day and key, told again as it changes."""
    days = mr.window(bids, "1 day", by=by, emit="updates", late=mr.late.drop(), **aggregates)
    return days.withColumn("day", F.to_date("window_start")).drop("window_start", "window_end")


def by_price() -> dict[str, Any]:
    """Bids, bidders and auctions, of all prices and of some."""
    counts = {f"{rank}_bids": mr.count(condition) for rank, condition in RANKS.items()}
    for column in ("bidder", "auction"):
        seen = {rank: F.expr(f"CASE WHEN {condition} THEN {column} END") for rank, condition in RANKS.items()}
        counts |= {f"{rank}_{column}s": mr.distinct(values) for rank, values in seen.items()}
    return counts


def side_input(spark: SparkSession) -> DataFrame:
    """Ten thousand keys, each with a text."""
    return spark.range(10_000).select(F.col("id").alias("key"), F.expr("concat('item ', id)").alias("value"))
