"""The fraud demo over kill -9: no alert is lost and none is made up, whatever customers have been told of; in real time
and exactly once. And with customers in a database that is really captured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.demo import fraud, fraud_captured
from millrace.engine import Run, begun
from millrace.engine.definition import folder_of
from millrace.log import Log
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import until
from tests.crash.supervisor import LIMIT_S, Points, Supervised
from tests.demo import recomputed
from tests.demo.paying import CARDS, customers, found, payments, until_known, write
from tests.demo.recomputed import Alert, of_rows
from tests.engine.conftest import Project
from tests.rotation import today
from tests.shop import Shop, opened

pytestmark = [pytest.mark.spark, pytest.mark.server]

KNOWN = range(CARDS // 2 - 1)


@pytest.fixture
def supervised(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Supervised:
    folder = project.settings.folder
    (folder / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        f'[spark]\nmaster = "local[*]"\n[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    )
    return Supervised(folder, Points(tmp_path_factory.mktemp("points")))


def expected(paid: list[dict[str, object]], known: list[dict[str, object]]) -> dict[str, dict[str, Alert]]:
    return {"alerts": recomputed.alerts(paid, known), "card_testing": recomputed.card_testing(paid)}


def counted(log: Log) -> Mapping[int, int]:
    """What was said last of each customer."""
    rows = [record.json() for record in log.read("suspects")] if log.topics.exists("suspects") else []
    return {row["customer"]: row["alerts"] for row in rows}


def told(log: Log) -> dict[str, Alert]:
    """Every alert there is, those of probes too."""
    return of_rows(record.json() for topic in ("alerts", "card_testing") for record in log.read(topic))


@pytest.mark.turn(0, 2)
def test_in_real_time_killed_in_an_epoch_all_alerts_are_told_and_counted_once(
    project: Project, supervised: Supervised
) -> None:
    """Rows in real time leave before their epoch is committed: those of the last one come again, with their ids."""
    paid, known, log = payments(360, today()), customers()[:-1], project.log

    def alive() -> None:
        assert supervised.running, supervised.said()
        assert ", failed" not in supervised.said()

    for topic in ("customers", "payments"):
        log.topics.create(topic, partitions=1)
    write(log, "customers", known, "customer")
    wanted = expected(paid, known)
    for part in range(3):
        supervised.start("run", "millrace.demo.fraud:app", "--no-traffic")
        mine = paid[120 * part : 120 * (part + 1)]
        until_known(log, KNOWN, mine[0]["at"], alive)
        if part < 2:
            # Somebody pays all through the epoch, whose rows are told, and then it ends: there it is killed.
            left = iter(mine)
            supervised.points.arm("COMMITS_BEFORE", "/alerts/")
            pay_one = lambda: write(log, "payments", list(islice(left, 1)), "card")  # noqa: E731, B023
            assert supervised.await_point("COMMITS_BEFORE", pay_one), supervised.said()
            mine = list(left)
            supervised.kill()
        write(log, "payments", mine, "card")

    def are_told() -> bool:
        alive()
        return all(set(each) <= set(found(log, topic)) for topic, each in wanted.items())

    until(are_told, "every alert", LIMIT_S)

    def are_counted() -> bool:
        alive()
        return counted(log) == Counter(each.customer for each in told(log).values())

    until(are_counted, "what each customer has", LIMIT_S)
    assert supervised.stop() == 0, supervised.said()
    assert {topic: found(log, topic) for topic in wanted} == wanted
    assert counted(log) == Counter(each.customer for each in told(log).values())
    assert all(wanted.values())
    lost = [each.recovers for each in begun.read(folder_of(project.settings, "fraud", "alerts"))]
    assert [bool(each) for each in lost] == [False, True, True], "the console's time line knows of the kills"
    rows = sum(len(list(log.read(topic))) for topic in wanted)
    assert rows > len(told(log)), "the kills were in an epoch that had told something"


@pytest.mark.turn(1, 2)
def test_exactly_once_killed_at_its_worst_each_alert_is_there_once(project: Project, supervised: Supervised) -> None:
    paid, known, log = payments(300, today()), customers(), project.log
    command = ("run", "millrace.demo.fraud:exactly_once", "--once", "--no-traffic")
    write(log, "customers", known, "customer")
    for part, point in enumerate(("AFTER_PREPARE", "AFTER_SOME_COMMITS", None)):
        write(log, "payments", paid[100 * part : 100 * (part + 1)], "card")
        if point is None:
            assert supervised.run(*command) == 0, supervised.said()
            continue
        supervised.points.arm(point)
        supervised.start(*command)
        assert supervised.await_point(point), supervised.said()
        supervised.kill()
    for topic, alerts in expected(paid, known).items():
        assert found(log, topic) == alerts
        assert len(list(log.read(topic))) == len(alerts) > 0
    assert counted(log) == Counter(each.customer for each in told(log).values())


@pytest.fixture
def shop(settings: Settings, connect: str, postgres: str) -> Iterator[Shop]:
    """With topics of its own: other tests have some of these names."""
    with opened(replace(settings, prefix="fraud_shop")) as found:
        yield found


@pytest.mark.turn(1, 3)
def test_customers_that_are_really_captured(shop: Shop, spark: SparkSession) -> None:
    """One of them changes between two payments: each is judged by what its customer was then."""
    shop.run(fraud_captured.TABLE)
    began = datetime.now(UTC)
    known = [row | {"at": began} for row in customers()[:-1]]
    for row in known:
        shop.run(f"INSERT INTO customers VALUES ({row['customer']}, '{row['country']}', {row['usual']})")
    app = fraud.application("captured", database=shop.name, mode="realtime", epoch="10 minutes")
    log = Log(shop.settings)
    for topic in ("payments", "alerts", "card_testing"):
        log.topics.create(topic, partitions=1)
    paid = list[dict[str, Any]]()

    def pay(seed: int) -> None:
        some = payments(150, seed, 0.05, datetime.now(UTC))
        names = [row | {"id": f"{seed}-{row['id']}"} for row in some]
        paid.extend(names)
        write(log, "payments", names, "card")

    with Run(app, shop.settings, spark=spark, only=["alerts", "card_testing"], traffic=False) as run:

        def told_all() -> None:
            wanted = expected(paid, known)

            def are_there() -> bool:
                run.poll()
                return all(set(each) <= set(found(log, topic)) for topic, each in wanted.items())

            until(are_there, "all alerts", LIMIT_S)
            assert {topic: found(log, topic) for topic in wanted} == wanted

        until_known(log, KNOWN, datetime.now(UTC), run.poll)
        pay(today())
        told_all()
        # What changes now is later than all that was paid, and so is what is paid afterwards.
        until(lambda: datetime.now(UTC) > max(row["at"] for row in paid), "the time of the last payment")
        newcomers = range(1_000, 1_008)  # in every partition: when they are known, what was before them is
        changed = datetime.now(UTC)
        shop.run("UPDATE customers SET usual = 500 WHERE customer IN (1, 4, 7)")
        for number in newcomers:
            shop.run(f"INSERT INTO customers VALUES ({number}, 'DE', 50)")
        known += [row | {"at": changed, "usual": 500.0} for row in known if row["customer"] in (1, 4, 7)]
        until_known(log, newcomers, datetime.now(UTC) + timedelta(milliseconds=5), run.poll)
        pay(today() + 1)
        told_all()
        run.stop()
    assert "model" in {each.rule for each in expected(paid, known)["alerts"].values()}
