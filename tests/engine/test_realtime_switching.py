"""Operators go on with their state where the mode of their flow is switched, epoch by epoch to real time and back: what
was told at last is true of all events. Among them Spark's own groups and repeats, which run in real time too.

    mode        epochs        | real time     | epochs
    keys        a  b  c       | a  b  c  d    | a  b  c  d  e        each with ten events; then one of `a` alone
                         x    |             y |                      one small event, and no large one ever follows
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.engine import Run, realtime
from millrace.errors import Where
from millrace.flow.places import compiled
from millrace.model import match
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.items import Items

pytestmark = [pytest.mark.spark, pytest.mark.server]

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
MODES = ("microbatch", "realtime", "microbatch")
PATTERN, WITHIN_S = "small !large", 40
ERROR = 0.1
PLACES = 5


def app_of(mode: str) -> mr.App:
    app = mr.App("now")
    events = app.topic(
        "events", "id long, key string, at timestamp", time="at", lateness="0 seconds", ahead=None, key="key"
    )
    items = app.table("items", "id long, name string", key="id")
    manner: Any = {"key": "key", "mode": mode, "epoch": "5 seconds" if mode == "realtime" else None}
    late = mr.late.drop()

    @app.stream(events, **manner)
    def best(e: DataFrame) -> DataFrame:
        placed = e.withColumn("place", F.col("id") % PLACES)
        return mr.top(placed, 2, by="key", of="place", order="-id", emit="updates", ttl="1 day", late=late)

    @app.stream(events, **manner)
    def estimated(e: DataFrame) -> DataFrame:
        return mr.window(
            e, "1 hour", by="key", emit="updates", late=late, n=mr.count(),
            values=mr.approx_distinct("id", error=ERROR), ends=mr.quantiles("id", [0, 1], error=ERROR),
            often=mr.frequent(F.expr("if(id % 2 = 0, 0, id)"), 1, error=ERROR),
        )  # fmt: skip

    @app.stream(events, **manner)
    def arrived(e: DataFrame) -> DataFrame:
        return mr.dedup(e, on="key", ttl="1 day", clock="processing")

    @app.stream(events, **manner)
    def absent(e: DataFrame) -> DataFrame:
        return mr.match(
            e, by="key", pattern=PATTERN, within=f"{WITHIN_S} seconds", late=late,
            define={"small": "id % 3 = 0", "large": "id % 3 = 1"}, measures={"id": mr.last("small.id")},
        )  # fmt: skip

    @app.stream(events, emit="updates", **manner)
    def grouped(e: DataFrame) -> DataFrame:
        return e.groupBy("key").agg(F.count("*").alias("n"), F.sum("id").alias("total"), F.max("id").alias("most"))

    @app.stream(events, **manner)
    def dropped(e: DataFrame) -> DataFrame:
        return e.dropDuplicates(["key"])

    @app.stream(events, items, **manner)
    def named(e: DataFrame, items: DataFrame) -> DataFrame:
        rows = e.withColumn("item", F.col("id") % 4)
        return mr.lookup(rows, items, on="item").select("id", "key", "name")

    return app


@dataclass
class Stage:
    project: Project
    flows: tuple[str, ...]
    events: list[match.Row] = field(default_factory=list)
    names: dict[int, str | None] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)

    def step(self, run: Run, items: Items, keys: str, second: int) -> None:
        """Writes an event of each, and waits for the end of the epochs that read them: the watermark is at the last."""
        fresh = [(len(self.events) + number, key) for number, key in enumerate(keys)]
        rows = [(id_, key, second * SECOND + place * 1_000) for place, (id_, key) in enumerate(fresh)]
        self.events += [match.Row(key, time, 1 << id_ % 3 if id_ % 3 < 2 else 0, (id_,)) for id_, key, time in rows]
        self.names |= {id_: items.rows.get(id_ % 4) for id_, _ in fresh}
        told = [
            {"id": id_, "key": key, "at": (START + timedelta(microseconds=time)).isoformat()} for id_, key, time in rows
        ]
        self.project.write("events", [json.dumps(row).encode() for row in told], 0)

        def done() -> bool:
            for each in run.poll():
                self.read[each.flow] += each.rows_in
            return all(
                len(self.rows(flow)) == len(self.events) if flow == "named" else self.read[flow] == len(self.events)
                for flow in self.flows
            )

        until(done, f"{len(self.events)} events", 120)

    def rows(self, flow: str) -> list[dict[str, Any]]:
        there = self.project.log.topics.exists(flow)
        return [record.json() for record in self.project.log.read(flow)] if there else []

    def ids(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for event in self.events:
            found.setdefault(str(event.key), []).append(event.values[0])
        return found

    def check(self) -> None:
        for flow in self.flows:
            getattr(self, f"_{flow}")(self.rows(flow))

    def _best(self, rows: list[dict[str, Any]]) -> None:
        held: Counter[tuple[str, int, int]] = Counter()
        for row in rows:
            held[row["key"], row["rank"], row["id"]] += row["__diff"]
        expected: Counter[tuple[str, int, int]] = Counter()
        for key, ids in self.ids().items():
            newest = sorted({id_ % PLACES: id_ for id_ in ids}.values(), reverse=True)
            expected.update((key, rank, id_) for rank, id_ in enumerate(newest[:2], 1))
        assert +held == expected
        assert min(held.values()) >= 0

    def _estimated(self, rows: list[dict[str, Any]]) -> None:
        last = {row["key"]: row for row in sorted(rows, key=lambda row: row["n"])}
        assert {key: row["n"] for key, row in last.items()} == {key: len(ids) for key, ids in self.ids().items()}
        for key, ids in self.ids().items():
            row = last[key]
            assert row["ends"] == [min(ids), max(ids)]
            assert abs(row["values"] - len(ids)) <= 4 * ERROR * len(ids)
            (often,) = row["often"]
            even = sum(id_ % 2 == 0 for id_ in ids)
            assert even < 4 or often["value"] == 0
            assert even - ERROR * len(ids) <= often["count"] <= max(even, 1)

    def _arrived(self, rows: list[dict[str, Any]]) -> None:
        """Which of an epoch's rows is first, is chance."""
        assert sorted(row["key"] for row in rows) == sorted(self.ids())
        assert all(row["id"] in self.ids()[row["key"]][:10] for row in rows)

    def _absent(self, rows: list[dict[str, Any]]) -> None:
        model = match.Matching(compiled(PATTERN, Where("", 0)).told(), WITHIN_S * SECOND)
        found = [*model.epoch(self.events, 0).matches, *model.epoch([], self.events[-2].time).matches]
        expected = Counter(each.rows[0][0].values[0] for each in found)
        assert Counter(row["id"] for row in rows) == expected
        alone = {ids[0] for ids in self.ids().values() if len(ids) == 1}
        assert len(alone) == 2
        assert alone <= set(expected), "what is absent was waited for in one mode, and told in another"

    def _grouped(self, rows: list[dict[str, Any]]) -> None:
        """Each row is true of a group's first events; in the end of all of them."""
        ids = self.ids()
        for row in rows:
            first = ids[row["key"]][: row["n"]]
            assert (row["n"], row["total"], row["most"]) == (len(first), sum(first), max(first))
        assert {(row["key"], row["n"]) for row in rows} >= {(key, len(each)) for key, each in ids.items()}

    def _dropped(self, rows: list[dict[str, Any]]) -> None:
        self._arrived(rows)

    def _named(self, rows: list[dict[str, Any]]) -> None:
        assert {row["id"]: row["name"] for row in rows} == self.names
        assert len(set(self.names.values())) > 3


@pytest.mark.parametrize(
    "flows",
    [
        pytest.param(("best", "estimated", "arrived", "absent"), marks=pytest.mark.turn(0, 2)),
        pytest.param(("grouped", "dropped", "named"), marks=pytest.mark.turn(1, 2)),
    ],
)
def test_a_flow_whose_mode_is_switched_goes_on_with_its_state(
    flows: tuple[str, ...], project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "FIRST_EPOCH_MS", 1)
    project.log.topics.create("events", partitions=1)
    stage, items = Stage(project, flows), Items(project)
    for number, mode in enumerate(MODES):
        # While nobody runs: whoever starts reads all of it before the events.
        items.put(*((key, f"{key} of {number}") for key in range(3)))
        with Run(app_of(mode), project.settings, spark=spark, only=flows) as run:
            stage.step(run, items, "abcde"[: 3 + number] * 10 + "xy"[number : number + 1], number * 30)
            stage.step(run, items, "a", number * 30 + 5)
            stage.check() if "absent" not in flows else None
            if number == len(MODES) - 1:
                stage.step(run, items, "a", 200)
                stage.step(run, items, "a", 201)
                stage.check()
