"""`millrace rebuild` over real flows: from a table's state, by replay of a stream and a topic, after a flow was begun
anew, and after kill -9 in the middle of it; and what it refuses."""

from __future__ import annotations

import itertools
import json
import signal
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import redis as client
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.config import Database, Secret, Settings
from millrace.engine import Run
from millrace.engine.rebuild import Rebuild, Rebuilt
from millrace.errors import (
    EpochOlder,
    FlowLocked,
    RebuildEmpty,
    RebuildLoses,
    SinkNotRebuilt,
    SinksMissing,
    SinkUnknown,
)
from millrace.flow import App
from millrace.log.topics import FOREVER
from millrace.sinks import Epoch
from millrace.sinks.files import files
from millrace.sinks.function import function
from millrace.sinks.postgres import postgres
from millrace.sinks.redis import redis
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import millrace
from tests.engine.conftest import Project
from tests.engine.items import Items, once
from tests.log.making import forget_before
from tests.rotation import todays
from tests.sinks.test_opensearch import ask, documents

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)


@pytest.fixture
def items(project: Project) -> Items:
    return Items(project)


@pytest.fixture
def own(project: Project, postgres: str, valkey: str) -> Settings:
    database = Database("target", Secret("databases.target.url", postgres))
    cache = Secret("sinks.valkey.url", valkey)
    return replace(project.settings, databases={"target": database}, sinks={"valkey": cache})


class Target:
    """A table of PostgreSQL and a prefix of Redis, of the same name."""

    def __init__(self, url: str, valkey: str) -> None:
        self._url, self.name = url, f"rebuilt{next(_numbers)}"
        self.redis = client.Redis.from_url(valkey, decode_responses=True)

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            found = connection.execute(statement)  # type: ignore[call-overload]
            return found.fetchall() if found.description else []

    def rows(self, table: str | None = None) -> dict[Any, Any]:
        return dict(self.run(f"SELECT * FROM {table or self.name}"))

    def cached(self) -> dict[int, str]:
        keys = list(self.redis.scan_iter(f"{self.name}:*"))
        return {int(key.rpartition(":")[2]): str(self.redis.hget(key, "name")) for key in keys}

    def empty_cache(self) -> None:
        for key in self.redis.scan_iter(f"{self.name}:*"):
            self.redis.delete(key)


@pytest.fixture
def target(postgres: str, valkey: str) -> Target:
    return Target(postgres, valkey)


class Built:
    """Rebuilds, and keeps what was said."""

    def __init__(self, spark: SparkSession, settings: Settings, app: App) -> None:
        self.spark, self.settings, self.app = spark, settings, app
        self.said: list[str] = []

    def __call__(self, sink: str, **options: Any) -> list[Rebuilt]:
        return Rebuild(self.app, self.settings, sink, self.said.append, spark=self.spark, **options).run()


def table_app(target: Target) -> App:
    app = App("shop")
    table = app.table("items", "id long, name string", key="id")
    table.to(postgres(target.name, database="target"), redis(target.name), files("out"))

    @app.stream(table, key="id")
    def shouted(rows: DataFrame) -> DataFrame:
        return rows.withColumn("name", F.upper("name"))

    shouted.to(postgres(f"{target.name}_shouted", database="target"))
    return app


def test_a_table_and_its_reader(spark: SparkSession, items: Items, target: Target, own: Settings) -> None:
    app = table_app(target)
    built = Built(spark, own, app)
    items.put(*((key, f"n{key}") for key in range(20)), (7, None))
    with pytest.raises(RebuildEmpty, match="millrace run"):
        built(f"postgres.{target.name}")
    once(spark, own, app)

    # Somebody's hands in the targets, and somebody's view on the table.
    target.run(f"CREATE VIEW {target.name}_names AS SELECT name FROM {target.name}")
    target.run(f"DELETE FROM {target.name} WHERE id < 3; UPDATE {target.name} SET name = 'x' WHERE id = 9")
    target.run(f"UPDATE {target.name}_shouted SET name = 'x'")
    target.empty_cache()
    target.redis.hset(f"{target.name}:eu:1", mapping={"__version": 3, "id": "1", "name": "another sink's"})

    (compared,) = built(f"postgres.{target.name}", switch=False)
    assert (compared.differences.missing, compared.differences.different, compared.switched) == (3, 1, False)
    assert target.rows() != items.rows
    (done,) = built(f"postgres.{target.name}")
    assert (done.differences.text(), done.switched) == ("3 missing, 0 surplus, 1 different", True)
    assert "in the old one 3 missing, 0 surplus, 1 different: " in " ".join(built.said)
    assert target.rows() == items.rows
    assert len(target.run(f"SELECT * FROM {target.name}_names")) == len(items.rows)
    (done,) = built(f"postgres.{target.name}_shouted")
    assert done.differences.different == len(items.rows)
    (done,) = built(f"redis.{target.name}")
    assert done.differences.missing == len(items.rows)
    assert target.redis.hget(f"{target.name}:eu:1", "name") == "another sink's"
    target.redis.delete(f"{target.name}:eu:1")
    (done,) = built("files.out")
    assert done.differences.count == 0
    assert [path.name for path in (own.folder / "out").glob("epoch=*")] == [f"epoch={done.epoch}"]

    # The flow goes on with the next epoch, in all of them.
    items.put((1, "one"), (2, None), (30, "new"))
    once(spark, own, app)
    holds(spark, target, items, own)

    # Begun anew, no epoch follows on what the sinks hold; one rebuild mends them all.
    with pytest.raises(EpochOlder, match="millrace rebuild"):
        once(spark, own, app, fresh=["shouted"], trial=True)
    target.run(f"DROP TABLE {target.name}_shouted")
    rebuilt = built(f"redis.{target.name}")
    assert len(rebuilt) == 4
    items.put((4, None), (31, "last"))
    once(spark, own, app)
    holds(spark, target, items, own)


def holds(spark: SparkSession, target: Target, items: Items, settings: Settings) -> None:
    assert target.rows() == items.rows
    assert target.rows(f"{target.name}_shouted") == {key: name.upper() for key, name in items.rows.items()}
    assert target.cached() == items.rows
    last: dict[int, tuple[int, int, str]] = {}
    for row in spark.read.parquet(str(settings.folder / "out")).collect():
        told = (row["__version"], row["__diff"], row["name"])
        last[row["id"]] = max(last.get(row["id"], told), told)
    assert {key: name for key, (_, diff, name) in last.items() if diff > 0} == items.rows


def test_a_stream_and_a_topic_are_replayed(
    spark: SparkSession, project: Project, target: Target, own: Settings
) -> None:
    log = project.log
    log.topics.create("views", partitions=2, retention=FOREVER)
    app = App("shop")
    views = app.topic("views", "url string, n long", partitions=2)

    @app.stream(views, key="url", emit="updates")
    def counts(rows: DataFrame) -> DataFrame:
        return rows.groupBy("url").count()

    counts.to(postgres(target.name, key="url", database="target"))
    views.to(files("archive", format="json"), postgres(f"{target.name}_all", database="target"))

    def write(count: int) -> None:
        values = [json.dumps({"url": f"/{n % 5}", "n": n}).encode() for n in range(count)]
        project.write("views", values[::2], partition=0)
        project.write("views", values[1::2], partition=1)

    write(50)
    once(spark, own, app)
    written = log.topics.offsets("counts")
    target.run(f"UPDATE {target.name} SET count = 0 WHERE url = '/1'")
    target.run(f"DELETE FROM {target.name}_all WHERE n < 10")
    write(20)  # of which the flows know nothing yet
    built = Built(spark, own, app)
    (done,) = built(f"postgres.{target.name}")
    assert done.differences.text() == "0 missing, 0 surplus, 1 different"
    assert target.rows() == {f"/{n}": 10 for n in range(5)}
    assert log.topics.offsets("counts") == written  # nothing is written to the stream's topic again
    (done,) = built(f"postgres.{target.name}_all")
    assert done.differences.text() == "10 missing, 0 surplus, 0 different"
    (done,) = built("files.archive")
    assert (done.differences.wanted, done.differences.count) == (50, 0)
    once(spark, own, app)
    assert target.rows() == {f"/{n}": 14 for n in range(5)}
    assert len(target.run(f"SELECT * FROM {target.name}_all")) == 70
    assert spark.read.json(str(own.folder / "archive")).count() == 70

    # What the topic no longer holds would be lost.
    forget_before(log, "views", 10)
    with pytest.raises(RebuildLoses, match=r"10 rows that sink 'files.archive' holds.*--accept"):
        built("files.archive")
    assert spark.read.json(str(own.folder / "archive")).count() == 70
    built("files.archive", accept=True)
    assert spark.read.json(str(own.folder / "archive")).count() == 60


def test_what_is_refused(spark: SparkSession, items: Items, target: Target, own: Settings) -> None:
    def note(rows: DataFrame, epoch: Epoch) -> None:
        """Holds nothing."""

    bare = App("bare")
    bare.table("items", "id long, name string", key="id")
    with pytest.raises(SinksMissing, match="'bare' writes to no sink"):
        Built(spark, own, bare)("postgres.items")
    app = table_app(target)
    app.topic("views", "url string").to(function(note, name="noted"))
    built = Built(spark, own, app)
    with pytest.raises(SinkUnknown, match=r"'file.out'; did you mean 'files.out'.*choose from postgres"):
        built("file.out")
    with pytest.raises(SinkNotRebuilt, match=r"'noted' cannot be.*a function holds nothing.*another name"):
        built("noted")
    with pytest.raises(SinkNotRebuilt, match=r"'shouted' cannot be.*a stream.*--into NAME"):
        built("shouted")
    items.put((1, "one"))
    with Run(app, own, spark=spark, traffic=False, only=["shouted"]), pytest.raises(FlowLocked, match="stop that one"):
        built("files.out")


SHOP = """\
import os
import signal
import sys

import millrace as mr

app = mr.App("shop")
table = app.table("items", "id long, name string", key="id")
table.to(mr.postgres("{name}", database="target"), mr.redis("{name}"), mr.files("out"), mr.opensearch("{name}"))


def killing(owner, name, after):
    function = getattr(owner, name)

    def wrapped(*args, **options):
        if after:
            function(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, wrapped)


if os.environ.get("KILL"):
    from importlib import import_module

    module, owner, name, when = os.environ["KILL"].split(":")
    found = import_module(module)
    killing(getattr(found, owner) if owner else found, name, when == "after")
"""
KILLS = (
    ("redis", "millrace.sinks.redis_writer:RedisWriter:write:after"),  # built, and nothing else
    ("redis", "millrace.sinks.redis_rebuild:RowsRebuilding:_move:before"),
    ("redis", "millrace.sinks.redis_rebuild:RowsRebuilding:_move:after"),
    ("postgres", "millrace.sinks.postgres_rebuild:PostgresRebuilding:_bring:after"),
    ("postgres", "millrace.sinks.postgres_rebuild:PostgresRebuilding:switch:after"),
    ("files", "millrace.sinks.files_rebuild::exchange:after"),
    ("opensearch", "millrace.sinks.opensearch_index:Indexes:switch:after"),
)


def test_killed_in_the_middle(
    project: Project, postgres: str, valkey: str, opensearch: str, items: Items, target: Target
) -> None:
    folder, prefix = project.settings.folder, project.settings.prefix
    (folder / "shop.py").write_text(SHOP.replace("{name}", target.name))
    (folder / "millrace.toml").write_text(
        f'prefix = "{prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        '[run]\napp = "shop:app"\n[spark]\nmaster = "local[2]"\n'
        f'[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n"spark.sql.shuffle.partitions" = "2"\n'
    )
    env = {
        "MILLRACE_DATABASES_TARGET_URL": postgres,
        "MILLRACE_SINKS_VALKEY_URL": valkey,
        "MILLRACE_SINKS_OPENSEARCH_URL": opensearch,
    }

    def run(*args: str, **more: str) -> str:
        done = millrace(*args, cwd=folder, env={**env, **more})
        expected = -signal.SIGKILL if more else 0
        assert done.returncode == expected, done.stdout + done.stderr
        return done.stdout

    def damage() -> None:
        target.run(f"DELETE FROM {target.name} WHERE id = 2; INSERT INTO {target.name} VALUES (99, 'strange')")
        target.redis.delete(f"{target.name}:2")
        target.redis.hset(f"{target.name}:99", mapping={"__version": 1, "id": "99", "name": "strange"})
        ask(opensearch, "DELETE", f"/{target.name}/_doc/2?refresh=true")

    items.put(*((key, f"n{key}") for key in range(10)))
    run("run", "--once")
    for kind, point in todays(KILLS, 1):
        damage()
        sink = "files.out" if kind == "files" else f"{kind}.{target.name}"
        run("rebuild", sink, KILL=point)
        if kind == "redis":
            assert set(items.rows) - {2} <= set(target.cached())  # each has an answer meanwhile
        (told,) = json.loads(run("rebuild", sink, "--json"))
        assert told["switched"]
        if kind == "redis":
            assert target.cached() == items.rows
        if kind == "postgres":
            assert target.rows() == items.rows
        if kind == "opensearch":
            assert {row["id"]: row["name"] for row in documents(opensearch, target.name)} == items.rows
        assert (folder / "out").is_dir()
