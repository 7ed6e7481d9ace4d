"""The features that a model is asked with are those it is trained with, and what plain Python makes of the events."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.config import Endpoint, Secret, Settings
from millrace.demo import features
from millrace.engine import Run
from millrace.testing import Play
from millrace.views.store import Store
from tests.engine.conftest import Project
from tests.rotation import today

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, 10, tzinfo=UTC)
CUSTOMERS = 12
Rows = list[dict[str, Any]]
COLUMNS = ("customer", "amount", "purchases_1h", "spent_1d", "most_30d", "segment", "credit", "of_credit")


def made(chance: random.Random) -> tuple[Rows, Rows]:
    """Purchases and profiles of two days, each moment once."""
    at, bought, known = START, [], []
    for number in range(400):
        at += timedelta(seconds=chance.randrange(1, 860))
        if chance.random() < 0.25:
            known.append(features.profile(chance, CUSTOMERS) | {"at": at})
        else:
            bought.append(features.purchase(chance, f"p-{number}", CUSTOMERS) | {"at": at})
    return bought, known


def expected(row: dict[str, Any], bought: Rows, known: Rows) -> tuple[Any, ...]:
    def amounts(over: timedelta) -> list[Decimal]:
        return [
            Decimal(str(each["amount"]))
            for each in bought
            if each["customer"] == row["customer"] and row["at"] - over < each["at"] <= row["at"]
        ]

    day, month = amounts(timedelta(days=1)), amounts(timedelta(days=30))
    own = [each for each in known if each["customer"] == row["customer"] and each["at"] <= row["at"]]
    last = own[-1] if own else {"segment": None, "credit": None}
    told = (row["customer"], Decimal(str(row["amount"])), len(amounts(timedelta(hours=1))), sum(day), max(month))
    return (*told, last["segment"], last["credit"], float(sum(day)) / last["credit"] if own else None)


def values(row: Any) -> tuple[Any, ...]:
    found = [row[name] for name in COLUMNS]
    return tuple(
        Decimal(str(each)) if name in ("amount", "spent_1d", "most_30d") else each
        for name, each in zip(COLUMNS, found, strict=True)
    )


def test_online_and_offline_agree(play: Callable[..., Play]) -> None:
    chance = random.Random(today())
    bought, known = made(chance)
    back = [{"purchase": row["id"], "at": row["at"]} for row in bought if chance.random() < 0.2]
    end = max(bought[-1]["at"], known[-1]["at"]) + timedelta(minutes=1)
    known.append(features.profile(chance, CUSTOMERS) | {"at": end})
    p = play(features.app, views=False)
    for part in range(3):
        for topic, rows in ((features.profiles, known), (features.purchases, bought)):
            # All arrive at the end, so that no topic falls silent while the other is fed.
            some = [row | {"arrival": end} for row in rows[part * len(rows) // 3 : (part + 1) * len(rows) // 3]]
            p.feed(topic, some, crash="after write" if (part, topic) == (1, features.purchases) else None)
    p.feed(features.returns, back)
    online = {row["id"]: values(row) for row in p.rows(features.features)}

    for table, schema, sink in (
        (features.past_purchases, features.PURCHASE, "lake.purchases"),
        (features.past_profiles, features.PROFILE, "lake.profiles"),
        (features.past_returns, features.RETURN, "lake.returns"),
    ):
        given = [{name: value for name, value in row.items() if name != "__diff"} for row in p.rows(sink)]
        p.lake(table, schema, given)
    trained = {row.id: row for row in features.training_set(p.spark, p.settings).collect()}
    offline = {name: values(row) for name, row in trained.items()}
    assert offline == {row["id"]: expected(row, bought, known) for row in bought}
    assert {name for name, row in trained.items() if row.returned} == {row["purchase"] for row in back}
    # The last ones wait for the watermark.
    assert len(online) >= len(bought) - 5
    assert online == {name: offline[name] for name in online}


@pytest.mark.server
@pytest.mark.turn(1, 3)
def test_the_view_store_and_the_lake_agree(project: Project, spark: SparkSession, postgres: str) -> None:
    """The servers themselves: what is asked of the view store is what a model is trained with from the real table."""
    settings = replace(project.settings, views=Endpoint(Secret("views.url", postgres)))
    bought, known = made(random.Random(today()))
    back = [{"purchase": row["id"], "at": row["at"]} for row in bought[::5]]
    for topic in ("purchases", "profiles", "returns", "recent"):
        project.log.topics.create(topic, partitions=1)
    end = max(bought[-1]["at"], known[-1]["at"])
    tell(project, purchases=bought, profiles=known, returns=back)
    last = {row["customer"]: row["id"] for row in bought}
    for minute in range(1, 6):  # a purchase is told when time has passed it
        run_once(settings, spark)
        online = asked(settings)
        if {customer: row[1] for customer, row in online.items()} == last:
            break
        moment = {"at": end + timedelta(minutes=minute)}
        passer = features.purchase(random.Random(minute), f"passer-{minute}", 1) | {"customer": CUSTOMERS} | moment
        tell(project, purchases=[passer], profiles=[features.profile(random.Random(1), 1) | moment])
    trained = {row.id: row for row in features.training_set(spark, settings).collect()}
    assert set(trained) >= {row["id"] for row in bought}
    assert {name for name, row in trained.items() if row.returned} == {row["purchase"] for row in back}
    names = ("customer", "id", "purchases_1h", "spent_1d", "most_30d", "segment", "credit", "of_credit")
    offline = {customer: tuple(trained[name][column] for column in names) for customer, name in last.items()}
    assert online == offline


def tell(project: Project, **topics: Rows) -> None:
    for topic, rows in topics.items():
        with project.log.writer(topic) as writer:
            for row in rows:
                key = row["purchase"] if topic == "returns" else str(row["customer"])
                writer.write({**row, "at": row["at"].isoformat()}, key=key)


def run_once(settings: Settings, spark: SparkSession) -> None:
    with Run(features.app, settings, once=True, spark=spark, traffic=False) as run:
        while not run.done:
            run.poll()
        run.stop()


def asked(settings: Settings) -> dict[int, tuple[Any, ...]]:
    """The view's rows, by customer."""
    store = Store(settings, "features")
    columns, rows, _ = store.rows("customer_features")
    store.close()
    at = columns.index("at")
    return {row[0]: (*row[:at], *row[at + 1 :]) for row in rows if row[0] < CUSTOMERS}
