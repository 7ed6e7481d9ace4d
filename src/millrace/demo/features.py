"""Features for a model: what is known of a customer at the moment of a purchase. The model that answers now and the one
that is trained on the past get them from the same two functions.

millrace demo --only features    made-up customers; the features of each purchase are printed as they come

            ┌─▶ recent: lookback(customer) ─▶ features: as_of(profiles) ─▶ view customer_features (online)
purchases ──┤                                            ▲
profiles  ──┼────────────────────────────────────────────┘
returns   ──┴─▶ lake ─▶ training_set: features of every purchase, and whether it came back (offline)
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.config import Settings

PURCHASE = "id string, customer long, amount decimal(12,2), at timestamp"
PROFILE = "customer long, segment string, credit long, at timestamp"
RETURN = "purchase string, at timestamp"
RECENT = f"{PURCHASE}, purchases_1h long, spent_1d decimal(22,2), most_30d decimal(12,2)"
FEATURES = f"{RECENT}, segment string, credit long, of_credit double"

app = mr.App("features")
timed: dict[str, Any] = {"time": "at", "lateness": "2 seconds", "key": "customer"}
purchases = app.topic("purchases", PURCHASE, **timed)
profiles = app.topic("profiles", PROFILE, **timed)
returns = app.topic("returns", RETURN, key="purchase")


@app.stream(purchases, key="customer", schema=RECENT, time="at", lateness="2 seconds")
def recent(p: DataFrame) -> DataFrame:
    """Each purchase with what its customer has bought in the hour, the day and the month that end with it (it counts
    itself): to the microsecond, and not by the calendar."""
    return mr.lookback(
        p,
        by="customer",
        late=mr.late.drop(),
        purchases_1h=mr.count(over="1 hour"),
        spent_1d=mr.sum("amount", over="1 day"),
        most_30d=mr.max("amount", over="30 days"),
    )


@app.stream(recent, profiles, key="customer", schema=FEATURES, time="at", lateness="5 seconds")
def features(r: DataFrame, p: DataFrame) -> DataFrame:
    """And with the profile as it was at that moment. Told once, when no profile from before it can come any more: a
    model must not be asked with one profile and trained with another."""
    known = mr.as_of(r, p, on="customer", emit="final", late=mr.late.drop()).drop("table_at")
    return known.withColumn("of_credit", F.col("spent_1d").cast("double") / F.col("credit"))


# Online: the features of each customer's last purchase, a row each, to be asked by SQL or HTTP.
app.view(
    "customer_features",
    key="customer",
    sql="""
    SELECT DISTINCT ON (customer) customer, id, at, purchases_1h, spent_1d, most_30d, segment, credit, of_credit
    FROM features ORDER BY customer, at DESC, id COLLATE "C"
    """,
)

# Offline: every row for as long as the lake is kept, however soon Kafka forgets.
for topic in (purchases, profiles, returns):
    topic.to(mr.lake(topic.name))
past_purchases, past_profiles, past_returns = (app.lake(name) for name in ("purchases", "profiles", "returns"))


def training_set(spark: SparkSession | None = None, settings: Settings | None = None) -> DataFrame:
    """Every purchase with the features that it had when it was made, and whether it came back."""
    bought, known, back = (mr.now(each, spark, settings) for each in (past_purchases, past_profiles, past_returns))
    returned = back.select(F.col("purchase").alias("id"), F.lit(True).alias("returned")).distinct()
    return features(recent(bought), known).join(returned, "id", "left").fillna(False, ["returned"])


# Made-up customers. Each start has numbers of its own, so that no purchase has the id of an earlier one.

START = f"{datetime.now(UTC):%d%H%M%S}"
CUSTOMERS = 500


@app.traffic(purchases, rate=20)
def made_up_purchase(chance: random.Random, n: int) -> dict[str, Any]:
    return purchase(chance, f"{START}-{n}")


@app.traffic(profiles, rate=2)
def made_up_profile(chance: random.Random) -> dict[str, Any]:
    return profile(chance)


@app.traffic(returns, rate=1)
def made_up_return(chance: random.Random, n: int) -> dict[str, Any]:
    return {"purchase": f"{START}-{chance.randrange(20 * n + 1)}", "at": datetime.now(UTC)}


def purchase(chance: random.Random, name: str, customers: int = CUSTOMERS) -> dict[str, Any]:
    amount = round(min(chance.paretovariate(1.2) * 10, 5_000), 2)
    return {"id": name, "customer": chance.randrange(customers), "amount": amount}


def profile(chance: random.Random, customers: int = CUSTOMERS) -> dict[str, Any]:
    segment = chance.choice(("new", "regular", "gold"))
    return {"customer": chance.randrange(customers), "segment": segment, "credit": chance.randrange(1, 50) * 100}
