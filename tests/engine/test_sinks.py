"""Flows and their sinks: each epoch once, whatever crashes; a sink that is away holds nobody back, and catches up."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as client
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace import local
from millrace.config import Database, Secret, Settings, load
from millrace.engine import Run, lane
from millrace.engine.plan import flows_of
from millrace.errors import EpochOlder, EpochsOwed, FunctionFailed, SinkColumnUnfit
from millrace.flow import App
from millrace.sinks import DIFF, Epoch
from millrace.sinks.files import files
from millrace.sinks.function import function
from millrace.sinks.postgres import postgres
from millrace.sinks.redis import redis
from millrace.testing.checkpoints import forget_commit
from tests.engine.conftest import Project
from tests.engine.items import Items, once

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)


class Target:
    """A table of PostgreSQL."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.name = settings, f"items{next(_numbers)}"

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(local.address(self.settings, "postgres"), autocommit=True) as connection:
            found = connection.execute(statement)  # type: ignore[call-overload]
            return found.fetchall() if found.description else []

    def rows(self) -> dict[int, str]:
        return dict(self.run(f"SELECT id, name FROM {self.name}"))

    def ledger(self) -> int:
        return int(self.run(f"SELECT epoch FROM millrace_ledger WHERE sink = 'postgres.{self.name}'")[0][0])


@pytest.fixture
def items(project: Project) -> Items:
    return Items(project)


@pytest.fixture
def target(settings: Settings, postgres: str) -> Target:
    assert postgres
    return Target(settings)


@pytest.fixture
def own(project: Project, postgres: str) -> Settings:
    database = Database("target", Secret("databases.target.url", postgres))
    return replace(project.settings, databases={"target": database})


def summed(spark: SparkSession, folder: Path) -> dict[int, str]:
    """What a reader of the files has: rows whose signs do not cancel out."""
    signs: Counter[tuple[int, str]] = Counter()
    if not any(folder.glob("epoch=*")):
        return {}
    for row in spark.read.parquet(str(folder)).collect():
        signs[row["id"], row["name"]] += row[DIFF]
    assert set(signs.values()) <= {0, 1}, signs
    return {key: name for (key, name), sign in signs.items() if sign}


def app_of(target: Target, *, fails: Callable[[], bool] = lambda: False) -> App:
    """One table, four sinks, and a stream that reads it and has a sink of its own."""
    app = App("shop")
    table = app.table("items", "id long, name string", key="id")

    def count(rows: DataFrame, epoch: Epoch) -> None:
        if fails():
            raise ValueError("asked to fail")

    table.to(postgres(target.name, database="target"), files("out/items"), function(count))

    @app.stream(table, key="id")
    def shouted(rows: DataFrame) -> DataFrame:
        return rows.withColumn("name", F.upper("name")).where("name <> 'DREI'")

    shouted.to(postgres(f"{target.name}_shouted", database="target"))
    return app


def test_a_table_and_its_reader_in_one_flow_with_sinks_over_crashes(
    spark: SparkSession, project: Project, items: Items, target: Target, own: Settings
) -> None:
    app = app_of(target)
    (flow,) = flows_of(app.graph())
    assert [each.name for each in flow.sinks][:3] == [f"postgres.{target.name}", "files.out-items", "function.count"]
    folder = own.checkpoints / own.named("shop") / "items"

    def holds() -> None:
        assert target.rows() == items.rows
        assert summed(spark, own.folder / "out" / "items") == items.rows
        shouted = {key: name.upper() for key, name in items.rows.items() if name != "drei"}
        assert dict(target.run(f"SELECT id, name FROM {target.name}_shouted")) == shouted

    items.put(*((key, f"n{key}") for key in range(20)))
    once(spark, own, app)
    holds()

    # Written, and the commit is forgotten: the epoch comes again, and everybody has it.
    forget_commit(folder / "checkpoint")
    items.put((1, "one"), (2, None), (3, "three"), (3, "drei"), (30, "new"), (30, None), (31, "last"))
    once(spark, own, app)
    holds()

    # A function that fails ends the flow; the others wrote that epoch already, or write it now.
    items.put((4, "four"))
    with pytest.raises(FunctionFailed, match=r"ValueError: asked to fail"):
        once(spark, own, app_of(target, fails=lambda: True))
    once(spark, own, app)
    holds()

    # Begun anew, the flow's epochs do not follow on what the sinks hold.
    with pytest.raises(EpochOlder, match="millrace rebuild"):
        once(spark, own, app, fresh=["shouted"], trial=True)


def test_a_sink_that_joins_later_is_given_the_table_as_it_is(
    spark: SparkSession, items: Items, target: Target, own: Settings
) -> None:
    def app(*sinks: Any) -> App:
        made = App("shop")
        made.table("items", "id long, name string", key="id").to(*sinks)
        return made

    held = files("out")
    items.put((1, "one"), (2, "two"), (3, "three"))
    once(spark, own, app(held))
    items.put((2, None), (3, "drei"))
    once(spark, own, app(held))
    once(spark, own, app(held, postgres(target.name, database="target")))
    assert target.rows() == items.rows
    items.put((1, "eins"), (4, "vier"))
    once(spark, own, app(held, postgres(target.name, database="target")))
    assert target.rows() == items.rows
    assert summed(spark, own.folder / "out") == items.rows


def test_a_server_that_is_away_holds_nobody_back_and_catches_up(
    spark: SparkSession, settings: Settings, items: Items, target: Target, own: Settings,
    until: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(lane, "TRY_S", 1.0)
    app = App("shop")
    table = app.table("items", "id long, name string", key="id")
    table.to(postgres(target.name, database="target"), files("out"))
    out = own.folder / "out"
    items.put((1, "one"))
    with Run(app, own, spark=spark, traffic=False) as run:

        def comes(condition: Callable[[], bool], what: str) -> None:
            until(lambda: run.poll() is not None and condition(), what)

        comes(lambda: summed(spark, out) == items.rows, "the first epoch")
        local.down(settings, ("postgres",))
        try:
            for number in range(2, 4):
                items.put((number, f"n{number}"))
                comes(lambda: summed(spark, out) == items.rows, "files go on without PostgreSQL")
            owed = f"postgres.{target.name}"
            comes(lambda: run.standings["items"].sinks[owed].owed_epochs == 2, "both epochs are owed")
            assert "MR-EPOCHS-OWED" in (run.standings["items"].trouble or "")
        finally:
            local.up(settings, ("postgres",))
        comes(lambda: target.rows() == items.rows, "PostgreSQL caught up")
        comes(lambda: run.standings["items"].trouble is None, "nothing is owed")
        assert run.standings["items"].restarts == 0

    # What is owed at the end of a run is written by the next one.
    local.down(settings, ("postgres",))
    try:
        items.put((2, None), (9, "nine"))
        with Run(app, own, spark=spark, traffic=False) as run:
            comes(lambda: summed(spark, out) == items.rows, "files, without PostgreSQL from the start")
            with pytest.raises(EpochsOwed):
                run.stop()
    finally:
        local.up(settings, ("postgres",))
    once(spark, own, app)
    assert target.rows() == items.rows


def test_a_server_that_is_killed_holds_nobody_back_and_catches_up(
    spark: SparkSession, items: Items, target: Target, own: Settings, until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As above by kill -9, of a server of its own; and what it then holds is compared row by row."""
    monkeypatch.setattr(lane, "TRY_S", 1.0)
    alone = load(own.folder / "cache")
    held = client.Redis.from_url(local.up(alone, ("valkey",))["valkey"], decode_responses=True)
    settings = replace(own, sinks={"valkey": Secret("sinks.valkey.url", local.address(alone, "valkey"))})
    app = App("shop")
    table = app.table("items", "id long, name string", key="id")
    table.to(redis("item"), postgres(target.name, database="target"))

    def cached() -> dict[int, str]:
        return {int(key[5:]): str(held.hget(key, "name")) for key in held.scan_iter("item:*")}

    try:
        items.put(*((key, f"n{key}") for key in range(20)))
        with Run(app, settings, spark=spark, traffic=False) as run:

            def comes(condition: Callable[[], bool], what: str) -> None:
                until(lambda: run.poll() is not None and condition(), what)

            comes(lambda: target.rows() == items.rows, "the first epoch in PostgreSQL")
            comes(lambda: cached() == items.rows, "the first epoch in Redis")
            (pid,) = (row.pid for row in local.status(alone) if row.server == "valkey")
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            for change in ((1, "one"), (2, None), (30, "new")):
                items.put(change)
                comes(lambda: target.rows() == items.rows, "PostgreSQL goes on without Redis")
            comes(lambda: run.standings["items"].sinks["redis.item"].owed_epochs > 0, "Redis is owed epochs")
            local.up(alone, ("valkey",))
            comes(lambda: cached() == items.rows, "Redis caught up")
            comes(lambda: run.standings["items"].trouble is None, "nothing is owed")
            assert run.standings["items"].restarts == 0
        assert (cached(), target.rows()) == (items.rows, items.rows)
    finally:
        held.close()
        local.down(alone)


def test_refused_rows_and_lesser_guarantees(
    spark: SparkSession, project: Project, items: Items, target: Target, own: Settings
) -> None:
    project.log.topics.ensure("views", partitions=1)
    app = App("shop")
    views = app.topic("views", "url string, user long")
    taken: list[int] = []

    def note(rows: DataFrame, epoch: Epoch) -> None:
        taken.append(epoch.number)

    views.to(postgres(target.name, database="target"))
    views.to(function(note, name="often"), delivery="at least once")
    views.to(function(note, name="seldom"), delivery="at most once")
    target.run(f'CREATE TABLE {target.name} (url text, "user" bigint CHECK ("user" > 0))')
    project.write("views", [json.dumps({"url": f"/{n}", "user": n}).encode() for n in range(5)])
    once(spark, own, app)
    assert sorted(target.run(f"SELECT url FROM {target.name}")) == [("/1",), ("/2",), ("/3",), ("/4",)]
    (letter,) = project.log.dead.list(f"postgres.{target.name}")
    assert json.loads(letter.record.value or b"") == {"url": "/0", "user": 0}
    assert "violates check constraint" in letter.reason
    assert taken == [0, 0]

    # Done again: who has a ledger leaves it alone, at least once does it again, and at most once does not.
    forget_commit(own.checkpoints / own.named("shop") / "views" / "checkpoint")
    once(spark, own, app)
    assert len(target.run(f"SELECT url FROM {target.name}")) == 4
    assert taken == [0, 0, 0]

    # A column that the table cannot take is told before anything runs.
    target.run(f"ALTER TABLE {target.name} ALTER COLUMN url TYPE boolean USING true")
    with pytest.raises(SinkColumnUnfit, match="the table has it as boolean, and rows have it as text"):
        once(spark, own, app, trial=True)

    # Begun anew, what stands beside the checkpoint begins anew with it.
    app = App("shop")
    app.topic("views", "url string, user long").to(function(note, name="often"), function(note, name="seldom"))
    once(spark, own, app, fresh=["views"])
    assert taken == [0] * 5
