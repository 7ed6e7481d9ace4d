"""The features that a model is asked with are those it is trained with, and what plain Python makes of the events."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from millrace.demo import features
from millrace.testing import Play

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, 10, tzinfo=UTC)
SEED = datetime.now(UTC).toordinal()
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
    chance = random.Random(SEED)
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
