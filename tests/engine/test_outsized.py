"""Results that are larger than their topic takes: dead letters with the reason, counted, while the flow goes on; of a
view, whose topic may not lack one, an error of one sentence. The broker is the judge of what is too large."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine import Run
from millrace.errors import RecordTooLarge
from millrace.flow import App
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.test_run import once

pytestmark = [pytest.mark.spark, pytest.mark.server]

LIMIT = "max.message.bytes"
SMALL, LARGE = 2_000, 5 * 1024 * 1024
KINDS: dict[str, dict[str, Any]] = {
    "exactly once": {"delivery": "exactly once"},
    "in real time": {"mode": "realtime", "epoch": "5 seconds"},
    "at least once": {"delivery": "at least once"},
    "at most once": {"delivery": "at most once"},
}
TURNS = {"at least once": pytest.mark.turn(0, 2), "at most once": pytest.mark.turn(1, 2)}


def app_of(**options: Any) -> App:
    app = App("wide")
    asked = app.topic("asked", "id long, bytes int", partitions=1)

    @app.stream(asked, key="id", **options)
    def grown(rows: DataFrame) -> DataFrame:
        return rows.select("id", F.expr("repeat('x', bytes)").alias("text"))

    return app


def ask(project: Project, first: int, sizes: list[int]) -> None:
    rows = [{"id": first + number, "bytes": size} for number, size in enumerate(sizes)]
    project.write("asked", [json.dumps(row).encode() for row in rows])


def ids(project: Project, topic: str = "grown") -> list[int]:
    return [record.json()["id"] for record in project.log.read(topic)] if project.log.topics.exists(topic) else []


def dead(project: Project) -> list[tuple[int, int]]:
    """Of each letter, whose it is and how large its record was, by its reason."""
    found = []
    for letter in project.log.dead.list("grown") if project.log.topics.exists("grown") else ():
        error = RecordTooLarge(topic="grown", size_bytes=int(letter.reason.split()[3]), limit_bytes=SMALL)
        assert letter.reason == error.what
        found.append((int(letter.record.key or b""), int(error.facts["size_bytes"])))
    return found


@pytest.mark.parametrize("kind", [pytest.param(each, marks=TURNS.get(each, ())) for each in KINDS])
def test_a_result_that_is_too_large_goes_to_the_dead_letters(project: Project, spark: SparkSession, kind: str) -> None:
    project.log.topics.create("asked", partitions=1)
    project.log.topics.create("grown", partitions=1, config={LIMIT: str(SMALL)})
    # Around the limit one byte at a time: what the broker does not take is not sent.
    edge = [SMALL - 160 + number for number in range(90)]
    ask(project, 0, [10, 3 * SMALL, *edge, 10, 1_500_000, 10])
    with Run(app_of(**KINDS[kind]), project.settings, spark=spark) as run:

        def all_there(count: int) -> bool:
            run.poll()
            assert run.standings["grown"].error is None, run.standings["grown"].error
            return len(ids(project)) + len(dead(project)) >= count

        until(lambda: all_there(len(edge) + 5), "every row somewhere", 120)
        letters = dict(dead(project))
        assert {1, 93} < set(letters) < {1, 93, *range(2, 92)}
        assert ids(project) == [number for number in range(95) if number not in letters]
        assert min(letters.values()) == SMALL + 1, "the smallest that is refused is larger by one byte"

        # Whoever raises the limit is heard, without a restart.
        project.log.topics.alter("grown", config={LIMIT: str(LARGE)})
        ask(project, 100, [3 * SMALL, 2_000_000])
        until(lambda: all_there(len(edge) + 7), "the larger ones", 120)
        until(lambda: (run.poll(), run.standings["grown"].dead)[1] == len(letters), "the count", 60)
    assert ids(project)[-2:] == [100, 101]
    assert dict(dead(project)) == letters
    # And what had been refused can be written now.
    assert project.log.dead.replay("grown") == len(letters)
    assert sorted(ids(project)) == [*range(95), 100, 101]


def test_a_view_is_not_to_lack_a_row(project: Project, spark: SparkSession) -> None:
    app = App("wide")
    app.topic("asked", "id long, text string", partitions=1)
    app.view("grown", key="id", sql="SELECT id, text FROM asked")
    project.log.topics.create("asked", partitions=1)
    project.log.topics.create("grown", config={LIMIT: str(SMALL)})
    project.write("asked", [json.dumps({"id": number, "text": "x" * number}).encode() for number in (10, 3 * SMALL)])
    with pytest.raises(RecordTooLarge, match=r"fit topic 'grown', which takes 2000 .*millrace topic alter grown"):
        once(spark, project, app)
