"""Flows on a real Kafka: nothing is lost over stops and starts, and what comes out equals a plain computation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.engine import Progress, Run
from millrace.engine.deadletters import DeadLetters
from millrace.engine.running import committed
from millrace.engine.stopping import epochs, in_flight
from millrace.flow import App
from tests.engine.conftest import Project

pytestmark = [pytest.mark.spark, pytest.mark.server]

SCHEMA = "url string, user long, at timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)
JUNK = (b"junk", b"", b'{"url":"/a","user":"x"}', b"[1]", b"\xff\xfe\x00", b'{"url":"/a","user":1}', b"{} {}")


def counting(app: str = "shop") -> App:
    made = App(app)
    views = made.topic("views", SCHEMA, time="at", lateness="1 hour")

    @made.stream(views, key="url", emit="updates")
    def counts(p: DataFrame) -> DataFrame:
        counted = p.groupBy(F.window("at", "1 minute"), "url").count()
        return counted.select("url", F.col("window.start").alias("since"), "count")

    return made


def events(seed: int, count: int) -> list[tuple[str, datetime]]:
    random = Random(seed)
    return [
        (random.choice(["/", "/shop", "/cart"]), START + timedelta(seconds=random.uniform(0, 300)))
        for _ in range(count)
    ]


def with_junk(made: list[tuple[str, datetime]]) -> tuple[list[bytes], list[bytes]]:
    """The events as bytes with junk between them, and the junk alone."""
    values, junk = [], []
    for n, (url, at) in enumerate(made):
        values.append(json.dumps({"url": url, "user": n, "at": at.isoformat()}).encode())
        if n % 10 == 0:
            junk.append(JUNK[n // 10 % len(JUNK)])
            values.append(junk[-1])
    return values, junk


def counted(made: list[tuple[str, datetime]]) -> dict[tuple[str, datetime], int]:
    return Counter((url, at.replace(second=0, microsecond=0)) for url, at in made)


def last_counts(project: Project, topic: str = "counts") -> dict[tuple[str, datetime], int]:
    """What a reader who keeps the last value of each key has. Keys stay in one partition, so order holds."""
    found = {}
    for record in project.log.read(topic):
        row = record.json()
        assert record.key == row["url"].encode()
        found[row["url"], datetime.fromisoformat(row["since"])] = row["count"]
    return found


def once(spark: SparkSession, project: Project, app: App, **options: Any) -> list[Progress]:
    heard = []
    with Run(app, project.settings, once=True, spark=spark, **options) as run:
        while not run.done:
            heard += run.poll()
        heard += run.stop()
    return heard


def checkpoint(project: Project, flow: str, app: str = "shop") -> Path:
    return project.settings.checkpoints / project.settings.named(app) / flow / "checkpoint"


def is_whole(folder: Path) -> bool:
    return epochs(folder / "offsets") == epochs(folder / "commits") != []


def test_counts_equal_a_plain_computation_over_stops_and_junk(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    made = events(1, 600)
    values, junk = with_junk(made)
    thirds = [values[:200], values[200:400], values[400:]]
    heard: list[Progress] = []

    # A first run that is stopped while records still come in.
    with Run(counting(), project.settings, spark=spark) as run:
        project.write("views", thirds[0])
        until(lambda: heard.extend(run.poll()) or sum(each.rows_in for each in heard) >= 100, "first rows")
        project.write("views", thirds[1])
        until(lambda: in_flight(checkpoint(project, "counts")), "an epoch")
        heard += run.stop()
    assert is_whole(checkpoint(project, "counts"))

    # A second one that goes on, to the end.
    project.write("views", thirds[2])
    heard += once(spark, project, counting())
    assert is_whole(checkpoint(project, "counts"))

    assert last_counts(project) == counted(made)
    assert sum(each.rows_in for each in heard) == len(values)
    assert sum(each.dead for each in heard) == len(junk)
    assert [each.epoch for each in heard] == list(range(len(heard)))
    letters = list(project.log.dead.list("views"))
    assert Counter(letter.record.value for letter in letters) == Counter(junk)
    held = {(record.partition, record.offset): record for record in project.log.read("views")}
    for letter in letters:
        original = held[letter.record.partition, letter.record.offset]
        assert (original.key, original.value, original.time) == (None, letter.record.value, letter.record.time)


def test_a_stop_at_any_moment_leaves_a_whole_checkpoint(
    spark: SparkSession, project: Project, until: Callable[..., None]
) -> None:
    made = events(4, 500)
    folder = checkpoint(project, "counts")
    moments: list[Callable[[], bool]] = [
        lambda: in_flight(folder),  # offsets are written, the epoch is being planned
        lambda: True,  # Spark has hardly begun
        lambda: not in_flight(folder) and epochs(folder / "commits")[-1] > 0,  # the epoch has just ended
        lambda: in_flight(folder),
    ]
    for place, moment in enumerate(moments):
        with Run(counting(), project.settings, spark=spark) as run:
            values, _ = with_junk(made[place * 100 : place * 100 + 100])
            project.write("views", values)
            until(moment, f"moment {place}")
            run.stop()
        whole = epochs(folder / "offsets") == epochs(folder / "commits")
        assert whole, f"after moment {place}"
    once(spark, project, counting())
    assert last_counts(project) == counted(made[:400])


def test_dead_letters_that_a_crash_left_out_are_written_at_the_next_start(
    spark: SparkSession, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("shop")  # a flow without state has no epoch when there is nothing new, and so says nothing by itself
    views = app.topic("views", SCHEMA, time="at", lateness="1 hour")
    app.stream(views, name="urls")(lambda p: p.select("url"))
    values, junk = with_junk(events(2, 30))
    project.log.topics.create("views")
    project.write("views", values)
    with monkeypatch.context() as crashed:  # around the run: it looks for dead letters once more when it ends
        crashed.setattr(DeadLetters, "keep", lambda *_: 0)
        with Run(app, project.settings, once=True, spark=spark) as run:
            while not run.done:
                run.poll()
    assert not list(project.log.dead.list("views"))

    once(spark, project, app)  # there is nothing new to read

    assert Counter(letter.record.value for letter in project.log.dead.list("views")) == Counter(junk)
    once(spark, project, app)
    assert len(list(project.log.dead.list("views"))) == len(junk)


def test_two_flows_write_the_dead_letters_of_a_topic_once(spark: SparkSession, project: Project) -> None:
    app = counting()
    views = app.graph().topics[0]
    app.stream(views, name="urls")(lambda p: p.select("url"))
    once(spark, project, app, only=["urls"])  # makes the topics
    values, junk = with_junk(events(3, 40))
    project.write("views", values)
    heard = once(spark, project, app)
    assert sum(each.dead for each in heard) == 2 * len(junk)
    assert Counter(letter.record.value for letter in project.log.dead.list("views")) == Counter(junk)


def test_streams_of_streams_and_all_that_json_can_say(spark: SparkSession, project: Project) -> None:
    app = App("chain")
    first = app.topic("first", "id long, at timestamp, amount decimal(12,2), tags array<string>, inner struct<a:int>")

    @app.stream(first, key=["id", "tag"], schema="id long, tag string, at timestamp, amount decimal(12,2), a int")
    def second(p: DataFrame) -> DataFrame:
        return p.select("id", F.explode("tags").alias("tag"), "at", "amount", "inner.a")

    @app.stream(second)
    def third(p: DataFrame) -> DataFrame:
        return p.withColumn("amount", F.col("amount") * 2)

    project.log.topics.create("first")
    row = {"id": 9007199254740993, "at": "2026-01-01T01:02:03.000004Z", "amount": 0.10, "tags": ["é", "b"]}
    project.write("first", [json.dumps(row).encode()])
    once(spark, project, app)

    keys = [json.loads(record.key or b"") for record in project.log.read("second")]
    assert sorted(key["tag"] for key in keys) == ["b", "é"]
    found = [record.json() for record in project.log.read("third")]
    assert sorted(each.pop("tag") for each in found) == ["b", "é"]
    assert found == [{"id": row["id"], "at": row["at"], "amount": 0.2, "a": None}] * 2


def test_only_committed_records_are_read(spark: SparkSession, project: Project, bootstrap: str) -> None:
    app = App("committed")
    numbers = app.topic("numbers", "n int")
    app.stream(numbers, name="same")(lambda p: p)
    outside = project.settings.named("numbers")
    project.log.topics.create("numbers", partitions=1)
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": outside, "log_level": 0})
    writer.init_transactions()
    for n, commit in ((1, True), (2, False), (3, True)):
        writer.begin_transaction()
        writer.produce(outside, json.dumps({"n": n}).encode())
        writer.flush()
        (writer.commit_transaction if commit else writer.abort_transaction)()
    once(spark, project, app)
    assert [record.json()["n"] for record in project.log.read("same")] == [1, 3]


def test_final_counts_come_once_and_late_rows_are_told(spark: SparkSession, project: Project) -> None:
    app = App("final")
    views = app.topic("views", SCHEMA, time="at", lateness="0 seconds", partitions=1)

    @app.stream(views, emit="final")
    def finals(p: DataFrame) -> DataFrame:
        return p.groupBy(F.window("at", "1 minute")).count().select("window.start", "count")

    def write(*minutes: int) -> None:
        project.write(
            "views", [json.dumps({"at": (START + timedelta(minutes=m)).isoformat()}).encode() for m in minutes]
        )

    project.log.topics.create("views")
    heard = []
    for minutes in ((0, 0, 5), (6,), (0, 7)):
        write(*minutes)
        heard += once(spark, project, app)
    found = [(record.json()["start"][:16], record.json()["count"]) for record in project.log.read("finals")]
    assert found == [("2026-01-01T00:00", 2), ("2026-01-01T00:05", 1), ("2026-01-01T00:06", 1)]
    assert sum(each.late for each in heard) == 1
    assert heard[-1].watermark == START + timedelta(minutes=7)


def test_committed_offsets_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    for part in ("offsets", "commits"):
        (tmp_path / part).mkdir()
    for epoch in (0, 1):
        (tmp_path / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{epoch + 4}}}}}\n-')
    assert committed(tmp_path) == []
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert [span.end for span in committed(tmp_path)] == [{"0": 4}]
