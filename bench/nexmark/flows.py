"""Fourteen queries of Nexmark as flows; `millrace run bench.nexmark.flows:app` runs them over the topics of a project.

Two queries keep rows for ever as they were published; here they have the bounds of the model: a seller joined from
ten minutes before to a minute after the auction (q3), and an auction lasts seconds (q4, which averages the auctions
whose window is over). Of a tie, q5 and q7 tell one. The last step of q4 keeps a row a category; q18 and q19 keep their
rows, as they are published.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr

app = mr.App("nexmark")

TIMED: Any = {"time": "dateTime", "lateness": "4 seconds"}
FINAL: Any = {"emit": "final", "late": mr.late.drop()}

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
    ten = F.floor(F.unix_seconds("dateTime") / 10).alias("ten")
    joined = persons.select("id", "name", ten, "dateTime")
    listed = auctions.select(F.col("seller").alias("id"), ten, F.col("dateTime").alias("listed"))
    within = ("-10 seconds", "10 seconds")
    pairs = mr.join(joined, listed, on=["id", "ten"], within=within, times=("dateTime", "listed"))
    return mr.window(pairs, "10 seconds", by=["id", "name"], auctions=mr.count(), time="dateTime", **FINAL)


@app.stream(bids)
def q11(bids: DataFrame) -> DataFrame:
    """How many bids somebody makes while active."""
    return mr.session(bids, "10 seconds", by="bidder", bids=mr.count(), **FINAL)


@app.stream(bids, key="bidder", emit="updates")
def q12(bids: DataFrame) -> DataFrame:
    """How many bids of somebody are read within ten seconds of the day's clock. Such windows are Spark's own."""
    return bids.groupBy("bidder", F.window(F.current_timestamp(), "10 seconds")).count()


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


@app.stream(bids)
def q18(bids: DataFrame) -> DataFrame:
    """The last bid of somebody for an auction."""
    return mr.latest(bids, by=["bidder", "auction"])


@app.stream(bids)
def q19(bids: DataFrame) -> DataFrame:
    """The ten highest bids for an auction."""
    return mr.top(bids, 10, by="auction", order="-price", emit="updates")


@app.stream(bids)
def q22(bids: DataFrame) -> DataFrame:
    """The folders of the page that a bid came from."""
    folders = F.split("url", "/")
    return bids.select("auction", "bidder", "price", "channel", *(folders[i].alias(f"dir{i - 2}") for i in (3, 4, 5)))
