"""Ad attribution: which impression a click belongs to, within 30 minutes; and what found no partner.

millrace demo --only attribution    made-up impressions and clicks; clicks are printed with what they belong to

impressions ──┐
              ├──▶ join, 0 to 30 minutes, full ──▶ attributed ──┬──▶ window 1 hour, by campaign ──▶ click_through
clicks ───────┘                                                 └──▶ view, by campaign ──▶ campaigns
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import millrace as mr

ATTRIBUTED = "impression string, campaign string, outcome string, at timestamp, clicked timestamp"

app = mr.App("attribution")
# A silent topic is waited for half an hour: otherwise a click that was delayed might find its impression already told
# as one without a click.
timed: dict[str, Any] = {"time": "at", "lateness": "1 minute", "idle": "30 minutes", "key": "impression"}
impressions = app.topic("impressions", "impression string, campaign string, at timestamp", **timed)
clicks = app.topic("clicks", "impression string, at timestamp", **timed)


# That an impression has no click is known when its 30 minutes are over: its row comes so long after its time.
@app.stream(impressions, clicks, key="impression", schema=ATTRIBUTED, time="at", lateness="40 minutes")
def attributed(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    """Each click with its impression; and impressions without a click, and clicks without an impression, once it is
    sure that no partner can come any more."""
    pairs = mr.join(
        impressions, clicks, on="impression", within=("0 seconds", "30 minutes"), how="full", prefix="click_"
    )
    return pairs.selectExpr(
        "impression",
        "campaign",
        "CASE WHEN at IS NULL THEN 'no impression' WHEN click_at IS NULL THEN 'no click' ELSE 'clicked' END AS outcome",
        "coalesce(at, click_at) AS at",
        "click_at AS clicked",
    )


@app.stream(attributed, key="campaign")
def click_through(rows: DataFrame) -> DataFrame:
    """Of each campaign and hour: how many impressions, how many of them were clicked, and their share. It is right when
    the hour and 30 minutes more are over: until then impressions without a click are missing."""
    shown = rows.where("outcome <> 'no impression'")
    hours = mr.window(
        shown,
        "1 hour",
        by="campaign",
        impressions=mr.distinct("impression"),
        clicked=mr.distinct(F.when(F.col("outcome") == "clicked", F.col("impression"))),
        emit="updates",
        late=mr.late.allow("1 day"),
    )
    return hours.selectExpr("*", "clicked / impressions AS click_through")


# Since the beginning, to be asked: a row of each campaign, kept true as clicks are attributed.
app.view(
    "campaigns",
    key="campaign",
    sql="""
    SELECT campaign, impressions, clicked, round(clicked::numeric / impressions, 4) AS click_through
    FROM (
        SELECT campaign, count(DISTINCT impression) AS impressions,
            count(DISTINCT impression) FILTER (WHERE outcome = 'clicked') AS clicked
        FROM attributed WHERE outcome <> 'no impression' GROUP BY campaign
    ) counted""",
)


# Made-up impressions and clicks. Each start has names of its own, so that none belongs to an earlier one.

START = f"{datetime.now(UTC):%d%H%M%S}"


@app.traffic(impressions, rate=20)
def made_up_impression(chance: random.Random, n: int) -> dict[str, Any]:
    return impression(chance, f"{START}-{n}")


@app.traffic(clicks, rate=2)
def made_up_click(chance: random.Random, n: int) -> dict[str, Any]:
    return click(chance, START, 10 * n)


def impression(chance: random.Random, name: str) -> dict[str, Any]:
    return {"impression": name, "campaign": chance.choice(("spring", "sale", "new"))}


def click(chance: random.Random, start: str, shown: int) -> dict[str, Any]:
    """On one of the last hundred impressions, of which `shown` were made; one in twenty is on none that we know of."""
    number = max(0, shown - chance.randrange(10, 100))
    return {"impression": f"{start}-{number}" if chance.random() < 0.95 else f"unknown-{number}"}
