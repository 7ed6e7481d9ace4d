"""Click-through by campaign, as a view: what plain Python counts, also when rows are told again."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.config import Endpoint, Secret
from millrace.demo import attribution
from millrace.engine import Run
from millrace.views.store import Store
from tests.engine.conftest import Project
from tests.rotation import today

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.turn(0, 3)]

CAMPAIGNS = ("spring", "sale", "new")


def test_click_through_by_campaign_is_what_python_counts(project: Project, spark: SparkSession, postgres: str) -> None:
    settings = replace(project.settings, views=Endpoint(Secret("views.url", postgres)))
    chance = random.Random(today())
    told = [row(chance) for _ in range(300)]
    project.log.topics.ensure("attributed", partitions=2)
    for some in (told[:200], [*told[200:], *told[:50]]):  # as after a crash, some come again
        with project.log.writer("attributed") as writer:
            for each in some:
                writer.write(each, key=each["impression"])
        with Run(
            attribution.app, settings, once=True, spark=spark, traffic=False, only=["campaigns"], captures=False
        ) as run:
            while not run.done:
                run.poll()
            run.stop()
    store = Store(settings, "attribution")
    columns, rows, _ = store.rows("campaigns")
    store.close()
    assert columns == ["campaign", "impressions", "clicked", "click_through"]
    assert sorted(rows) == sorted(counted(told))


def row(chance: random.Random) -> dict[str, Any]:
    """Of few impressions, so that one may have two clicks."""
    number = chance.randrange(120)
    outcome = chance.choice(("clicked", "no click", "no impression"))
    campaign = None if outcome == "no impression" else CAMPAIGNS[number % 3]
    return {"impression": f"i{number}", "campaign": campaign, "outcome": outcome, "at": "2026-01-01T10:00:00Z"}


def counted(told: list[dict[str, Any]]) -> list[tuple[str, int, int, Decimal]]:
    shown, clicked = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for each in told:
        if each["outcome"] != "no impression":
            shown[each["campaign"]].add(each["impression"])
        if each["outcome"] == "clicked":
            clicked[each["campaign"]].add(each["impression"])
    return [
        (
            name,
            len(own),
            len(clicked[name]),
            (Decimal(len(clicked[name])) / len(own)).quantize(Decimal("0.0001"), ROUND_HALF_UP),
        )
        for name, own in shown.items()
    ]
