"""Each (user, event) is told once, whichever services say it: under controlled time, and over kill -9."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millrace.demo.notifications import app, notice, told
from millrace.testing import Play
from millrace.testing.plugin import JAVA_OPTIONS
from tests.crash.supervisor import Points, Supervised
from tests.engine.conftest import Project
from tests.rotation import today
from tests.sinks.test_webhook import Server

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, 10, tzinfo=UTC)
DAY = timedelta(hours=24)


def said(chance: random.Random, at: datetime, seconds: int) -> Iterator[list[dict[str, Any]]]:
    """What each service says in this time: of every second most of them something, some of them twice."""
    for _ in told:
        moments = [at + timedelta(seconds=n, milliseconds=chance.randrange(1_000)) for n in range(seconds)]
        yield [notice(each) for each in moments for _ in range(chance.choice((0, 1, 1, 2)))]


@pytest.mark.turn(0, 2)
def test_the_first_of_24_hours_is_told(play: Callable[..., Play]) -> None:
    chance, p = random.Random(today()), play(app)
    expected, given = 0, defaultdict[tuple[int, str], list[datetime]](list)
    for day in (0, 1):  # on the second day the events of the first come again, around 24 hours after
        for topic, rows in zip(told, said(chance, START, 40), strict=True):
            later = [row | {"at": row["at"] + day * DAY} for row in rows]
            p.feed(topic, later, key="user", crash="after write" if day and topic is told[1] else None)
            for row in sorted(later, key=lambda row: row["at"]):
                before = given[row["user"], row["event"]]
                if all(abs(row["at"] - each) >= DAY for each in before):
                    before.append(row["at"])
                    expected += 1
    p.restart()
    found = p.rows("webhook.phone")
    assert len(found) == expected > 40
    assert {(row["user"], row["event"]) for row in found} == set(given)
    assert p.late() == 0


@pytest.mark.server
@pytest.mark.turn(1, 2)
def test_over_kill_9_a_receiver_that_minds_ids_takes_each_once(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, receiver = project.settings.folder, Server(tmp_path_factory.mktemp("phone"))
    (folder / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        f'[sinks.phone]\nurl = "http://127.0.0.1:{receiver.port}/"\n'
        f'[spark]\nmaster = "local[2]"\n[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    )
    supervised = Supervised(folder, Points(tmp_path_factory.mktemp("points")))
    chance, events = random.Random(3), set[tuple[int, str]]()
    try:
        for point in ("SINK_BEFORE_LEDGER", None):
            for topic, rows in zip(told, said(chance, START, 30), strict=True):
                write(project, topic.name, rows)
                events |= {(row["user"], row["event"]) for row in rows}
            command = ("run", "millrace.demo.notifications:app", "--once", "--no-traffic")
            if point is None:
                assert supervised.run(*command) == 0, supervised.said()
                continue
            supervised.points.arm(point)
            supervised.start(*command)
            assert supervised.await_point(point), supervised.said()
            supervised.kill()
        posts = receiver.posts("/")
    finally:
        receiver.kill()
    ids = defaultdict[tuple[int, str], set[str]](set)
    for post in posts:
        assert post["header"] == post["id"]
        ids[post["row"]["user"], post["row"]["event"]].add(post["id"])
    assert set(ids) == events
    assert all(len(each) == 1 for each in ids.values())
    assert len({each for some in ids.values() for each in some}) == len(ids)
    assert len(posts) > len(ids)  # the kill came after they were posted, and before anybody knew


def write(project: Project, topic: str, rows: list[dict[str, Any]]) -> None:
    project.log.topics.ensure(topic, partitions=2)
    with project.log.writer(topic) as writer:
        for row in rows:
            writer.write(row, key=str(row["user"]))
