"""The fraud demo finds what its rules say, no more and no less: under controlled time with crashes, on Kafka in real
time, and exactly once."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.demo import fraud, fraud_training
from millrace.engine import Run, definition
from millrace.flow import Table
from millrace.testing import Play
from millrace.testing.checkpoints import forget_commit
from tests.command import until
from tests.demo import recomputed
from tests.demo.recomputed import of_rows
from tests.engine.conftest import Project
from tests.rotation import today

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, 10, tzinfo=UTC)
CARDS = 40
Rows = Sequence[dict[str, Any]]


def payments(count: int, seed: int, gap_s: float = 1.5) -> list[dict[str, Any]]:
    """Made-up ones, of few cards, so that rules meet by chance too; a second or two from one to the next."""
    chance, at, found = random.Random(seed), START, []
    for n in range(count):
        at += timedelta(microseconds=round(chance.uniform(0.1, 2 * gap_s) * 1e6))
        found.append(fraud.payment(chance, n, at, CARDS))
    return found


def customers() -> list[dict[str, Any]]:
    """All but the last customer, who is unknown; and one who from the middle on spends more."""
    known = [fraud.customer(number, START) for number in range(CARDS // 2 - 1)]
    return [*known, {**fraud.customer(4, START + timedelta(minutes=5)), "usual": 500.0}]


def test_what_the_rules_find_is_what_plain_python_finds(play: Callable[..., Play]) -> None:
    seeds = itertools.count(today() * 100)  # one in which nobody pays between a thief's payments
    paid = next(each for seed in seeds if recomputed.card_testing(each := payments(600, seed)))
    known = customers()
    p = play(fraud.application("fraud", mode="realtime"))
    nodes = {node.name: node for node in p.app.graph().nodes}
    p.feed(nodes["customers"], known[:-1], key="customer")
    p.feed(nodes["payments"], paid[:200], key="card")
    p.feed(nodes["customers"], known[-1:], key="customer")
    p.feed(nodes["payments"], paid[200:400], key="card", crash="after write")
    p.restart()  # the alerts of an epoch come again, with the ids that they had
    p.feed(nodes["payments"], paid[400:], key="card")
    found, tested = (of_rows(p.rows(name)) for name in ("alerts", "card_testing"))
    assert found == recomputed.alerts(paid, known)
    assert tested == recomputed.card_testing(paid)
    assert len(p.rows("alerts")) > len(found)
    assert {each.rule for each in (found | tested).values()} == {
        "failed payments", "many payments", "much money", "impossible journey", "model", "card testing",
    }  # fmt: skip
    assert p.late() == 0
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


@pytest.mark.server
@pytest.mark.turn(0, 2)
def test_exactly_once_no_alert_comes_again(project: Project, spark: SparkSession) -> None:
    paid, known = payments(300, 11), customers()
    app, log = fraud.application("exact", delivery="exactly once"), project.log
    write(project, "customers", known, "customer")
    for part in (paid[:150], paid[150:]):
        write(project, "payments", part, "card")
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
    write(project, "customers", known[:-1], "customer")
    with Run(app, project.settings, spark=spark, only=["alerts", "card_testing"], traffic=False) as run:
        # Which topic is read first is chance: payments begin when the last profile has been read.
        probes: list[dict[str, Any]] = []

        def found(topic: str) -> dict[str, recomputed.Alert]:
            return of_rows(record.json() for record in log.read(topic)) if log.topics.exists(topic) else {}

        def is_known() -> bool:
            run.poll()
            at = START + timedelta(milliseconds=1 + len(probes))
            probe = {**fraud.payment(random.Random(1), 1, at, CARDS), "card": f"probe-{len(probes)}"}
            probes.append(probe | {"id": f"probe-{len(probes)}", "customer": known[-2]["customer"], "amount": 5_000.0})
            write(project, "payments", probes[-1:], "card")
            return any(each.rule == "model" for each in found("alerts").values())

        until(is_known, "an alert that needs a profile", 120)
        write(project, "payments", paid, "card")
        expected = recomputed.alerts(paid, known[:-1]), recomputed.card_testing(paid)

        def are_there() -> bool:
            run.poll()
            return len(found("card_testing")) >= len(expected[1]) and set(expected[0]) <= set(found("alerts"))

        until(are_there, "all alerts", 120)
        own = {name: each for name, each in found("alerts").items() if not each.card.startswith("probe")}
        assert (own, found("card_testing")) == expected


@pytest.mark.turn(1, 3)
def test_the_models_numbers_are_what_training_gives(spark: SparkSession) -> None:
    trained = fraud_training.train(fraud_training.labelled(spark))
    weights = fraud.MODEL["weights"]
    assert list(trained["weights"]) == list(weights)
    assert math.isclose(trained["intercept"], fraud.MODEL["intercept"], abs_tol=0.01)
    for name, weight in weights.items():
        assert math.isclose(trained["weights"][name], weight, abs_tol=0.01), name


def write(project: Project, topic: str, rows: Rows, key: str) -> None:
    project.log.topics.ensure(topic, partitions=2)
    with project.log.writer(topic) as writer:
        for row in rows:
            writer.write(row, key=str(row[key]))


def run_once(app: Any, project: Project, spark: SparkSession) -> None:
    with Run(app, project.settings, spark=spark, only=["alerts", "card_testing"], once=True, traffic=False) as run:
        while not run.done:
            run.poll()
        run.stop()
