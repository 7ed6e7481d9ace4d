"""Fraud, noticed while the card is still in the thief's hand: six rules over payments, in milliseconds.

millrace demo --only fraud                       payments are made up, alerts are printed as they come
millrace run millrace.demo.fraud:exactly_once    the same rules epoch by epoch, each alert in its topic once
millrace run millrace.demo.fraud:archived        payments and what became of them in the lake too, to train the model

payments ──▶ as_of(customer) ──▶ lookback(card) ──▶ score ──▶ rules ──▶ alerts ────────┐
   │             ▲                                                                     ├──▶ suspects
   │         customers                                                                 │
   └───────────────────────────▶ match(card) ───────────────────────▶ card_testing ────┘
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import millrace as mr

PAYMENT = (
    "id string, card string, customer long, amount decimal(12,2), status string, country string, "
    "lat double, lon double, at timestamp"
)
CUSTOMER = "customer long, country string, usual double, at timestamp"
CHARGEBACK = "payment string, at timestamp"  # its customer did not make that payment
ALERT = "id string, rule string, card string, customer long, payment string, evidence string, at timestamp"

# What Spark ML has learned from past payments (fraud_training.py): plain numbers, so that it runs in real time.
MODEL: dict[str, Any] = {
    "intercept": -3.2686,
    "weights": {"times_usual": 0.1807, "abroad": 6.1828, "failed": 0.9595},
}
SUSPICIOUS = 0.9
# The other end of the earth is 20,015 km away, which takes 40 hours at 500 km/h: payments that are farther apart in
# time are no impossible journey, wherever they are.
FARTHEST = "41 hours"


def alerts(payments: DataFrame, customers: DataFrame, lateness: str | None = None) -> DataFrame:
    """One row for each rule that a payment breaks, told with the payment that breaks it."""
    return _told(mr.score(MODEL, features(payments, customers, lateness)))


def features(payments: DataFrame, customers: DataFrame, lateness: str | None = None) -> DataFrame:
    """What rules and model look at: each payment with its customer's profile as it was then, and what its card did
    lately. Of tables of the lake it is what the model is trained with."""
    known = mr.as_of(
        payments, customers, on="customer", prefix="home_", emit="updates", late=mr.late.drop(), lateness=lateness
    )
    # A payment is judged once, by the profile that was known when it came: an alert does not wait for corrections.
    judged = known.where("NOT corrected").drop("corrected", "replaces", "home_at")
    recent = mr.lookback(
        judged,
        by="card",
        late=mr.late.drop(),
        failed=mr.count("status = 'failed'", over="5 minutes"),
        payments=mr.count(over="1 minute"),
        spent=mr.sum("amount", over="10 minutes"),
        kmh=mr.speed("lat", "lon", over=FARTHEST),
    )
    return recent.selectExpr("*", "amount / usual AS times_usual", "CAST(country <> home_country AS int) AS abroad")


def card_testing(payments: DataFrame) -> DataFrame:
    """Three small payments, to see whether a stolen card works, and then a large one, within 10 minutes."""
    found = mr.match(
        payments,
        by="card",
        pattern="small any*? small any*? small any*? large",  # whatever its owner pays in between
        define={"small": "amount < 2", "large": "amount > 500"},
        within="10 minutes",
        order="arrival",  # a card's payments are in one partition, in their order; by event time it would wait
        measures={
            "payment": mr.last("large.id"),
            "customer": mr.last("large.customer"),
            "small": mr.count("small"),
            "large": mr.last("large.amount"),
        },
        late=mr.late.drop(),
    )
    return found.selectExpr(
        "concat('card testing:', payment) AS id",
        "'card testing' AS rule",
        "card",
        "customer",
        "payment",
        "concat(small, ' small payments, then $', large) AS evidence",
        "match_end AS at",
    )


def suspects(alerts: DataFrame, card_testing: DataFrame) -> DataFrame:
    """How many alerts each customer has had today. A real-time flow tells its last epoch again after a crash: an
    alert's id is made of its rule and its payment, so a repeat is known and counts once."""
    every = alerts.unionByName(card_testing)
    late = mr.late.allow("1 day")  # the two topics are read side by side, after a pause one may be far ahead
    once = mr.dedup(every, on="id", ttl="1 day", late=late)
    return mr.window(once, "1 day", by="customer", alerts=mr.count(), emit="updates", late=late)


def _told(payments: DataFrame) -> DataFrame:
    score = F.col("probability")[1]
    rules: dict[str, tuple[Column, Column]] = {
        "failed payments": (F.col("failed") >= 3, F.format_string("%d failed payments in 5 minutes", "failed")),
        "many payments": (F.col("payments") > 5, F.format_string("%d payments in 1 minute", "payments")),
        "much money": (F.col("spent") > 5000, F.format_string("$%s in 10 minutes", F.col("spent").cast("string"))),
        "impossible journey": (F.col("kmh") > 500, F.format_string("%d km/h", F.round("kmh").cast("long"))),
        "model": (score > SUSPICIOUS, F.format_string("score %s", F.round(score, 3).cast("string"))),
    }
    broken = [
        F.when(condition, F.struct(F.lit(rule).alias("rule"), evidence.alias("evidence")))
        for rule, (condition, evidence) in rules.items()
    ]
    found = payments.select("*", F.explode(F.array_compact(F.array(*broken))).alias("found"))
    return found.selectExpr(
        "concat(found.rule, ':', id) AS id",
        "found.rule AS rule",
        "card",
        "customer",
        "id AS payment",
        "found.evidence AS evidence",
        "at",
    )


def application(name: str, database: str | None = None, *, archive: bool = False, **how: Any) -> mr.App:
    """The app. `how` are options of the streams of alerts (`mode`, `delivery`). Customers are a topic, or a table
    captured from a `database`. With an `archive` the lake keeps every payment, profile and chargeback.

    Two flows make alerts, because `match` tells matches only and the other rules need every payment.
    """
    app = mr.App(name)
    timed: dict[str, Any] = {"time": "at", "lateness": "1 minute"}
    told: dict[str, Any] = {"key": "card", "schema": ALERT, **timed, **how}
    payments = app.topic("payments", PAYMENT, key="card", **timed)
    app.traffic(payments, rate=20)(made_up_payment)
    if database is None:
        customers = app.topic("customers", CUSTOMER, key="customer", **timed)
        app.traffic(customers, rate=100)(made_up_customer)
        alerting = app.stream(payments, customers, **told)(alerts)
    else:
        db = app.capture(database, tables=["customers"])
        late = partial(alerts, lateness="1 minute")  # a captured table does not say itself how long it may take
        alerting = app.stream(payments, db.customers, name="alerts", **told)(late)
    testing = app.stream(payments, **told)(card_testing)
    app.stream(alerting, testing, key="customer")(suspects)
    if archive:
        if database is not None:
            raise ValueError("an archive needs customers as a topic: of a captured table the lake has the last rows")
        chargebacks = app.topic("chargebacks", CHARGEBACK, key="payment")
        app.traffic(chargebacks, rate=20 * len(STOLEN) / ROUND)(made_up_chargeback)
        for topic in (payments, customers, chargebacks):
            topic.to(mr.lake(topic.name))
    return app


# Made-up cards, two a customer, whose owners stay at home; and every few seconds one of them is stolen.

CARDS = 2_000
CITIES = [("DE", 52.52, 13.40), ("FR", 48.85, 2.35), ("IT", 41.90, 12.50), ("PL", 52.23, 21.01), ("AU", -33.87, 151.21)]
FRAUDS: list[list[dict[str, Any]]] = [
    [{"status": "failed"}] * 4,
    [{}] * 7,
    [{"times": 60}] * 4,
    [{}, {"city": 1}],
    [{"times": 12, "abroad": True}],
    [{"amount": 1.0}, {"amount": 1.5}, {"amount": 0.5}, {"amount": 900}],
]


def theft(n: int) -> dict[str, Any] | None:
    """How the n-th payment is made if a thief makes it, otherwise None. Of each fifty payments, every fifth is made
    with one stolen card, until the thief's plan is through."""
    block, place = divmod(n, 50)
    plan = FRAUDS[block % len(FRAUDS)]
    return plan[place // 5] if place % 5 == 0 and place // 5 < len(plan) else None


ROUND = 50 * len(FRAUDS)
STOLEN = [n for n in range(ROUND) if theft(n) is not None]
START = f"{datetime.now(UTC):%d%H%M%S}"  # each start has ids of its own


def customer(number: int, at: datetime) -> dict[str, Any]:
    return {"customer": number, "country": CITIES[number % len(CITIES)][0], "usual": 20.0 + number % 80, "at": at}


def payment(chance: random.Random, n: int, at: datetime, cards: int = CARDS) -> dict[str, Any]:
    """The n-th payment, by its owner or by a thief."""
    stolen = theft(n)
    card = chance.randrange(cards) if stolen is None else n // 50 * 7919 % cards
    how = stolen or {}
    owner = customer(card // 2, at)
    _, lat, lon = CITIES[(card // 2 + how.get("city", 0)) % len(CITIES)]
    amount = how.get("amount", owner["usual"] * how.get("times", chance.uniform(0.3, 2)))
    return {
        "id": f"{n}-{at:%d%H%M%S%f}",
        "card": f"card-{card}",
        "customer": card // 2,
        "amount": round(amount, 2),
        "status": how.get("status", "failed" if chance.random() < 0.02 else "ok"),
        "country": "XX" if how.get("abroad") else owner["country"],
        "lat": lat,
        "lon": lon,
        "at": at,
    }


def made_up_payment(chance: random.Random, n: int) -> dict[str, Any]:
    return {**payment(chance, n, datetime.now(UTC)), "id": f"{START}-{n}"}


def made_up_customer(_: random.Random, n: int) -> dict[str, Any]:
    return customer(n % (CARDS // 2), datetime.now(UTC))


def made_up_chargeback(_: random.Random, n: int) -> dict[str, Any]:
    """Soon after the payment, not after weeks as in life."""
    rounds, place = divmod(n, len(STOLEN))
    return {"payment": f"{START}-{rounds * ROUND + STOLEN[place]}", "at": datetime.now(UTC)}


app = application("fraud", mode="realtime")
exactly_once = application("fraud_exactly_once", delivery="exactly once")
archived = application("fraud_archived", archive=True, mode="realtime")
