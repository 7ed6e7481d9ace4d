"""The fraud demo finds what its rules say, no more and no less: under controlled time with crashes, on Kafka in real
time, and exactly once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.demo import fraud
from millrace.engine import Run, definition
from millrace.flow import Table
from millrace.testing import Play
from millrace.testing.checkpoints import forget_commit
from tests.command import until
from tests.demo import recomputed
from tests.demo.paying import CARDS, START, customers, found, payments, until_known, write
from tests.demo.recomputed import of_rows
from tests.engine.conftest import Project
from tests.rotation import today

pytestmark = pytest.mark.spark


def journey() -> list[dict[str, Any]]:
    """From Berlin to Sydney, 16,090 km, in 30 hours, by somebody who is no customer."""
    here = {**payments(1, 1)[0], "card": "far", "customer": 999, "amount": 20.0, "status": "ok", "country": "DE"}
    places = [(name, START + timedelta(hours=h), fraud.CITIES[city]) for name, h, city in (("a", 1, 0), ("b", 31, 4))]
    return [{**here, "id": f"far-{name}", "at": at, "lat": lat, "lon": lon} for name, at, (_, lat, lon) in places]


def test_what_the_rules_find_is_what_plain_python_finds(play: Callable[..., Play]) -> None:
    paid = payments(600, today())
    known = customers()
    p = play(fraud.application("fraud", mode="realtime"))
    nodes = {node.name: node for node in p.app.graph().nodes}
    p.feed(nodes["customers"], known[:-1], key="customer")
    p.feed(nodes["payments"], paid[:200], key="card")
    p.feed(nodes["customers"], known[-1:], key="customer")
    p.feed(nodes["payments"], paid[200:400], key="card", crash="after write")
    p.restart()  # the alerts of an epoch come again, with the ids that they had
    p.feed(nodes["payments"], paid[400:], key="card")
    p.feed(nodes["payments"], journey(), key="card")
    paid += journey()
    found, tested = (of_rows(p.rows(name)) for name in ("alerts", "card_testing"))
    assert found == recomputed.alerts(paid, known)
    assert found["impossible journey:far-b"].evidence == "536 km/h"
    assert tested == recomputed.card_testing(paid)
    assert len(p.rows("alerts")) > len(found)
    assert {each.rule for each in (found | tested).values()} == {
        "failed payments", "many payments", "much money", "impossible journey", "model", "card testing",
    }  # fmt: skip
    # Alerts that come again are late in `suspects` if it had read them already: allowed, and known by their ids.
    assert (p.late("alerts"), p.late("card_testing")) == (0, 0)
    counted = {row["customer"]: row["alerts"] for row in p.rows("suspects")}
    assert counted == Counter(each.customer for each in (found | tested).values())


@pytest.mark.turn(0, 3)
def test_customers_may_be_a_captured_table(play: Callable[..., Play]) -> None:
    paid, known = payments(150, 5), customers()[:-1]
    p = play(fraud.application("fraud", database="bank", mode="realtime"))
    (table,) = (edge for edge in p.app.graph().nodes if isinstance(edge, Table))
    p.table(table, "customer long, country string, usual double", key="customer")
    p.feed(table, [{name: row[name] for name in ("customer", "country", "usual")} for row in known])  # at midnight
    (topic,) = (topic for topic in p.app.graph().topics if topic.name == "payments")
    p.feed(topic, paid, key="card")
    found = of_rows(p.rows("alerts"))
    assert found == recomputed.alerts(paid, known)
    assert "model" in {each.rule for each in found.values()}


def test_card_testing_sees_through_what_the_owner_pays_in_between(spark: SparkSession) -> None:
    """
    minute    0      1      2      3      4      5            9      10     11
    tested    small  own    small  small  own    large
    twice     small  small  small  large  large                              only the first: its small ones are used up
    few       small  small  own    large
    slow      small  small                       small               large   the first is 10 minutes ago
    """
    kinds = {"small": "1.50", "own": "20.00", "large": "900.00"}
    cards = {
        "tested": {0: "small", 1: "own", 2: "small", 3: "small", 4: "own", 5: "large"},
        "twice": {0: "small", 1: "small", 2: "small", 3: "large", 4: "large"},
        "few": {0: "small", 1: "small", 2: "own", 3: "large"},
        "slow": {0: "small", 1: "small", 5: "small", 10: "large"},
    }
    paid = [one(card, minute * 60, kinds[kind]) for card, own in cards.items() for minute, kind in own.items()]
    chance = random.Random(today())
    for card in range(20):
        moments = sorted(chance.sample(range(3_600), 40))
        paid += [one(f"c{card}", second, chance.choice(("1.00", "1.50", "9.00", "600.00"))) for second in moments]
    rows = fraud.card_testing(spark.createDataFrame(paid, fraud.PAYMENT)).collect()
    assert of_rows(row.asDict() for row in rows) == recomputed.card_testing(paid)
    assert {row.payment for row in rows if row.card in cards} == {"tested-300", "twice-180"}


def one(card: str, second: int, amount: str) -> dict[str, Any]:
    told = fraud.payment(random.Random(1), 1, START + timedelta(seconds=second), CARDS)
    return told | {"id": f"{card}-{second}", "card": card, "amount": Decimal(amount)}


@pytest.mark.server
@pytest.mark.turn(0, 2)
def test_exactly_once_no_alert_comes_again(project: Project, spark: SparkSession) -> None:
    paid, known = payments(300, 11), customers()
    app, log = fraud.application("exact", delivery="exactly once"), project.log
    write(log, "customers", known, "customer")
    for part in (paid[:150], paid[150:]):
        write(log, "payments", part, "card")
        run_once(app, project, spark)
        for name in ("alerts", "card_testing"):  # as if it had been killed before Spark knew of the epoch's end
            forget_commit(definition.folder_of(project.settings, "exact", name) / definition.CHECKPOINT)
    run_once(app, project, spark)
    for name, expected in (("alerts", recomputed.alerts(paid, known)), ("card_testing", recomputed.card_testing(paid))):
        rows = [record.json() for record in log.read(name)]
        assert of_rows(rows) == expected
        assert len(rows) == len(expected) > 0


@pytest.mark.server
@pytest.mark.usefixtures("whole_epochs")
@pytest.mark.turn(2, 3)
def test_in_real_time_alerts_leave_at_once(project: Project, spark: SparkSession) -> None:
    paid, known = payments(300, 11), customers()
    app, log = fraud.application("now", mode="realtime", epoch="10 minutes"), project.log
    for topic in ("customers", "payments"):  # one partition: all tasks of the two flows hold a slot
        log.topics.create(topic, partitions=1)
    write(log, "customers", known[:-1], "customer")
    with Run(app, project.settings, spark=spark, only=["alerts", "card_testing"], traffic=False) as run:
        until_known(log, range(CARDS // 2 - 1), START + timedelta(milliseconds=1), run.poll)
        write(log, "payments", paid, "card")
        expected = recomputed.alerts(paid, known[:-1]), recomputed.card_testing(paid)

        def are_there() -> bool:
            run.poll()
            return set(expected[1]) <= set(found(log, "card_testing")) and set(expected[0]) <= set(found(log, "alerts"))

        until(are_there, "all alerts", 120)
        assert (found(log, "alerts"), found(log, "card_testing")) == expected


def run_once(app: Any, project: Project, spark: SparkSession) -> None:
    with Run(app, project.settings, spark=spark, only=["alerts", "card_testing"], once=True, traffic=False) as run:
        while not run.done:
            run.poll()
        run.stop()
