"""`millrace run` is killed at every point of an exactly-once delivery; a reader of committed records sees each once.

started with    is killed                                   and leaves
────────────    ─────────                                   ──────────
records 0-99    before it wrote down what is to be          open transactions that nobody will commit
100-199         when that is written, nothing committed     epoch 0, prepared
200-299         when one transaction of two is committed    epoch 1, half of which is seen
300-399         when all are, and Spark does not know       epoch 2, whole, to be done again
400-499         not at all                                  everything, once
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.testing.plugin import JAVA_OPTIONS
from tests.crash.supervisor import Points, Supervised
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

# A task of which the first attempt fails halfway: its transaction is aborted, and the second one has another id.
APP = """\
import millrace as mr
from pyspark import TaskContext
from pyspark.sql import functions as F

app = mr.App("once")
events = app.topic("events", "id long, key string, at timestamp", time="at", lateness="1 hour")


def unlucky(id):
    if id % 100 == 50 and TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("the first attempt")
    return id


@app.stream(events, key="key", delivery="exactly once")
def copied(e):
    return e.select(F.udf(unlucky, "long")("id").alias("id"), "key")


@app.stream(events, key="key", delivery="exactly once")
def counted(e):
    return mr.window(e, "1 minute", by="key", n=mr.count(), emit="updates", late=mr.late.side("late"))
"""

KILLS = ("BEFORE_PREPARE", "AFTER_PREPARE", "AFTER_SOME_COMMITS", "AFTER_ALL_COMMITS", None)
PART = 100
KEYS = 5


@pytest.fixture
def folder(project: Project) -> Path:
    folder = project.settings.folder
    (folder / "once.py").write_text(APP)
    (folder / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        '[run]\napp = "once:app"\n[spark]\nmaster = "local[2,2]"\n'
        f'[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    )
    project.log.topics.create("events", partitions=2)
    return folder


def write(project: Project, first: int) -> None:
    """Each key in one partition, so that its order is defined."""
    for number in (0, 1):
        ids = [n for n in range(first, first + PART) if n % KEYS % 2 == number]
        rows = [{"id": n, "key": f"k{n % KEYS}", "at": f"2026-01-01T00:00:{n % 60:02}Z"} for n in ids]
        project.write("events", [json.dumps(row).encode() for row in rows], number)


def held_back(project: Project, topic: str) -> int:
    ends = [project.log.topics.offsets(topic, committed=committed) for committed in (True, False)]
    return sum(ends[1][number][1] - ends[0][number][1] for number in ends[0])


@pytest.mark.turn(0, 2)
def test_killed_at_every_point_it_delivers_each_record_once_and_in_order(
    project: Project, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    supervised = Supervised(folder, Points(tmp_path_factory.mktemp("points")))
    for place, point in enumerate(KILLS):
        write(project, place * PART)
        if point is None:
            assert supervised.run("run", "--once") == 0, supervised.said()
            continue
        supervised.points.arm(point)
        supervised.start("run", "--once")
        assert supervised.await_point(point), supervised.said()
        assert supervised.kill(jvm_only=True) == 2, supervised.said()
        assert "MR-SESSION-GONE" in supervised.said()
    total = len(KILLS) * PART
    copied = [record.json() for record in project.log.read("copied")]
    assert Counter(row["id"] for row in copied) == Counter(range(total))
    for key in range(KEYS):
        ids = [row["id"] for row in copied if row["key"] == f"k{key}"]
        assert ids == sorted(ids), f"k{key} is out of order"
    # Counts of each key go up, none is told twice, and the last is the whole.
    counts: dict[str, list[int]] = {}
    for record in project.log.read("counted"):
        counts.setdefault(record.json()["key"], []).append(record.json()["n"])
    assert all(told == sorted(set(told)) for told in counts.values()), counts
    assert {key: told[-1] for key, told in counts.items()} == {f"k{key}": total // KEYS for key in range(KEYS)}
    assert held_back(project, "copied") == held_back(project, "counted") == 0


@pytest.mark.turn(1, 2)
def test_what_an_attempt_left_open_that_was_lost_with_its_executor_is_ended_after_the_epoch(
    project: Project, folder: Path, tmp_path: Path, until: Callable[..., None]
) -> None:
    """Readers of committed records would wait for it until the flow's next start."""
    supervised = Supervised(folder, Points(tmp_path / "points"))

    def copied() -> set[int]:
        return {record.json()["id"] for record in project.log.read("copied")}

    write(project, 0)
    supervised.start("run", "--only", "copied")
    try:
        until(lambda: project.log.topics.exists("copied") and copied() == set(range(PART)), "the first epoch", 300)
        options = {
            "bootstrap.servers": project.log.address,
            "transactional.id": f"{project.settings.named('once')}.copied.0.3",
            "transaction.timeout.ms": 900_000,  # longer than anybody waits here
        }
        lost = Producer({**options, "log_level": 0})
        lost.init_transactions(30)
        lost.begin_transaction()
        lost.produce(project.log.topics.outside("copied"), b"never", partition=0)
        lost.flush()
        assert held_back(project, "copied") > 0
        write(project, PART)  # of whose first task the first attempt fails: the one that counts has another slot
        until(lambda: copied() == set(range(2 * PART)), "the second epoch, and the end of what was lost", 300)
        until(lambda: held_back(project, "copied") == 0, "the end of what was lost")
        assert supervised.stop() == 0, supervised.said()
    finally:
        if supervised.process is not None:
            supervised.kill()
