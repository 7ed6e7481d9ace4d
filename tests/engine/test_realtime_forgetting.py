"""What operators remember in real time: as long as it counts and no longer, over epochs, restarts and switches of mode.

In real time keys forget a few at a time, with the rows of others (`Forgetting.java`). Five operators read the same
events; none is late, so that what they tell in the end does not depend on how epochs cut them.

    event time (s)    0   15   30     40     100   160   161     201    9361
                      +----+----+-----+-------+-----+-----+-------+-------+
    new keys          a    b    c             d     e     f
    known ones again                  a       a                   f
    mode              epochs  | real time                 | epochs
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.engine import Run, realtime
from millrace.engine.state import State
from millrace.engine.stopping import epochs
from millrace.model.as_of import AsOf, Change
from millrace.model.as_of import Event as Asking
from millrace.model.dedup import Dedup
from millrace.model.dedup import Row as Given
from millrace.model.joins import IntervalJoin
from millrace.model.joins import Row as Joined
from millrace.model.lookback import Event as Looked
from millrace.model.lookback import Lookback
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.test_run import checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.server]

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MS = 1_000_000, 1_000
# All of them remember a row for so long; `mr.join` and `mr.as_of` at its end too, the others not any more.
SPAN_S = 40
SPAN = SPAN_S * SECOND
KEYS = 160
READERS = {"given": 1, "recent": 1, "pairs": 2, "found": 2, "matched": 1}  # of so many topics
FIRST = 3  # every third event is the first of a pattern


def app_of(mode: Any) -> mr.App:
    app = mr.App("now")
    lately: Any = {"time": "at", "lateness": "0 seconds", "ahead": None}
    events = app.topic("events", "id long, key string, at timestamp", **lately)
    others = app.topic("others", "other long, key string, at timestamp", **lately)
    manner: Any = {"mode": mode, "epoch": "5 seconds" if mode == "realtime" else None}

    @app.stream(events, key="key", **manner)
    def given(e: DataFrame) -> DataFrame:
        return mr.dedup(e, on="key", ttl=f"{SPAN_S} seconds", late=mr.late.drop())

    @app.stream(events, key="key", **manner)
    def recent(e: DataFrame) -> DataFrame:
        return mr.lookback(e, by="key", n=mr.count(over=f"{SPAN_S} seconds"), late=mr.late.drop())

    @app.stream(events, others, key="key", **manner)
    def pairs(e: DataFrame, o: DataFrame) -> DataFrame:
        return mr.join(e, o, on="key", within=("0 seconds", f"{SPAN_S} seconds"))

    @app.stream(events, others, key="key", **manner)
    def found(e: DataFrame, o: DataFrame) -> DataFrame:
        late = mr.late.allow(f"{SPAN_S} seconds")
        return mr.as_of(e, o, on="key", emit="updates", late=late)

    @app.stream(events, key="key", **manner)
    def matched(e: DataFrame) -> DataFrame:
        return mr.match(
            e, by="key", pattern="first next", within=f"{SPAN_S} seconds", order="arrival", late=mr.late.drop(),
            define={"first": f"id % {FIRST} = 0", "next": f"id % {FIRST} <> 0"},
            measures={"one": mr.last("first.id"), "two": mr.last("next.id")},
        )  # fmt: skip

    return app


class Row(NamedTuple):
    id: int
    key: str
    time: int

    def written(self, name: str) -> bytes:
        at = (START + timedelta(microseconds=self.time)).isoformat()
        return json.dumps({name: self.id, "key": self.key, "at": at}).encode()


@dataclass
class Stage:
    """What was written to both topics, and what was heard of it."""

    project: Project
    spark: SparkSession
    flows: tuple[str, ...]
    events: list[Row] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)

    def step(self, run: Run, events: Iterable[tuple[str, int]], others: Iterable[tuple[str, int]] = ()) -> None:
        """Writes rows, in the order of time, and waits until the epochs that read them have ended. So in the next step
        the watermark is at the last of them."""
        events = sorted(events, key=lambda row: row[1])
        others = sorted([*others, ("last", events[-1][1])], key=lambda row: row[1])
        for name, topic, rows, all_ in (
            ("id", "events", events, self.events),
            ("other", "others", others, self.others),
        ):
            fresh = [Row(len(all_) + number, *row) for number, row in enumerate(rows)]
            all_ += fresh
            self.project.write(topic, [row.written(name) for row in fresh], 0)
        many = len(self.events), len(self.events) + len(self.others)
        todo = {flow: many[READERS[flow] - 1] for flow in self.flows}

        def done() -> bool:
            for each in run.poll():
                self.read[each.flow] += each.rows_in
            return self.read == todo

        until(done, f"the rows up to {events[-1]}", 120)

    def run(self, mode: str) -> Run:
        return Run(app_of(mode), self.project.settings, spark=self.spark, only=self.flows)

    def told(self, flow: str, *names: str) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(record.json()[name] for name in names) for record in self.project.log.read(flow))

    def check(self) -> None:
        """That everything was told, once, as the models tell it."""
        dedup = Dedup(SPAN, 0).epoch([Given(row.key, row.time, row.id) for row in self.events], 0)
        lookback = Lookback([(SPAN, lambda events, _: len(events))], 0, False)
        looked = lookback.epoch([Looked(row.key, row.time, row.id) for row in self.events], 0)
        join = IntervalJoin(0, SPAN)
        left, right = ([Joined(row.key, row.time, str(row.id)) for row in rows] for rows in (self.events, self.others))
        join.epoch(left, right, 0)
        assert len(join.pairs()) > KEYS // 4
        expected: dict[str, Counter[tuple[Any, ...]]] = {
            "given": Counter((row.value,) for row in dedup.given),
            "recent": Counter((each.event.value, *each.values) for each in looked.results),
            "pairs": Counter((int(one.name), int(two.name)) for one, two in join.pairs()),
        }
        wrong = {}
        for flow, names in {"given": ("id",), "recent": ("id", "n"), "pairs": ("id", "other")}.items():
            if flow not in self.flows:
                continue
            found = self.told(flow, *names)
            if found != expected[flow]:
                wrong[flow] = f"lacks {list(expected[flow] - found)[:5]}, and has {list(found - expected[flow])[:5]}"
        assert not wrong
        if "found" in self.flows:
            self._check_found()
        if "matched" in self.flows:
            self._check_matched()

    def _check_found(self) -> None:
        """By what was told last: which of the two topics is read first is chance."""
        changes = [Change((row.key,), row.time, row.id) for row in self.others]
        asked = AsOf(False, SPAN).epoch(changes, [Asking((row.key,), row.time, row.id) for row in self.events], 0)
        expected = {each.event.value: each.row for each in asked.results}
        assert sum(row is not None for row in expected.values()) >= KEYS // 4
        assert {row["id"]: row["other"] for row in self.rows("found")} == expected

    def _check_matched(self) -> None:
        last: dict[str, Row] = {}
        expected: Counter[tuple[int, int]] = Counter()
        for row in self.events:
            one = last.get(row.key)
            if one is not None and one.id % FIRST == 0 and row.id % FIRST and row.time - one.time < SPAN:
                expected[one.id, row.id] += 1
            last[row.key] = row
        assert len(expected) > KEYS // 10
        assert Counter((row["one"], row["two"]) for row in self.rows("matched")) == expected

    def rows(self, flow: str) -> list[dict[str, Any]]:
        return [record.json() for record in self.project.log.read(flow)]

    def sizes(self) -> dict[str, tuple[int, int]]:
        """How many keys each flow has, and how many of these have a timer, or follow one that has it."""
        found = {}
        for flow in self.flows:
            state = State(self.spark, checkpoint(self.project, flow, "now").parent, flow)
            ((size,), following) = (state.sizes(), 0)
            if "followers" in state.operators[0].variables:
                lists = state._read(state.operators[0], stateVarName="followers")
                following = lists.select(F.explode("user_map_value.keys")).count()
            found[flow] = (size.keys, size.timers + following)
        return found


def new(name: str, second: int, count: int = KEYS) -> list[tuple[str, int]]:
    return [(f"{name}{number}", second * SECOND) for number in range(count)]


def again(name: str, second: int) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Keys that came at this second: a third is just within the span, another is not any more; and rows of the other
    topic for both, and for one that is not."""
    end = second * SECOND + SPAN
    events = [(f"{name}{number}", end - (number % 3 == 0)) for number in range(KEYS) if number % 3 < 2]
    return events, [(f"{name}{number}", end + (number % 3 == 1)) for number in range(0, KEYS, 2)]


@pytest.mark.parametrize(
    "flows",
    [
        pytest.param(("given", "recent", "pairs"), marks=pytest.mark.turn(0, 2)),
        pytest.param(("found", "matched"), marks=pytest.mark.turn(1, 2)),
    ],
)
def test_keys_are_remembered_as_long_as_they_count(
    flows: tuple[str, ...], project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "FIRST_EPOCH_MS", 1)
    for topic in ("events", "others"):
        project.log.topics.create(topic, partitions=1)
    stage = Stage(project, spark, flows)

    # Timers that are set epoch by epoch fire when they are needed; real time goes on with them.
    with stage.run("microbatch") as run:
        stage.step(run, [*new("a", 0), *new("b", 15)])
    with stage.run("realtime") as run:
        before = len(epochs(checkpoint(project, flows[0], "now") / "commits"))
        stage.step(run, [*new("c", 30), ("push", SPAN - MS)])
        stage.step(run, *again("a", 0))
        stage.step(run, [*new("d", 100), *((f"a{number}", 100 * SECOND) for number in range(0, KEYS, 2))])
        stage.step(run, new("e", 160))
        # So many that all is forgotten that is over.
        stage.step(run, new("f", 161, 2 * KEYS))
        assert len(epochs(checkpoint(project, flows[0], "now") / "commits")) >= before + 5
    stage.check()
    sizes = stage.sizes()
    # Of `matched` only those whose pattern may go on, and those that came last; `found` has rows that stay.
    least = {"matched": 2 * KEYS}
    most = {"found": 5 * KEYS}
    for flow, (keys, timers) in sizes.items():
        assert least.get(flow, 3 * KEYS) <= keys < most.get(flow, 4 * KEYS), sizes
        assert timers >= keys - (KEYS if flow == "found" else 0), sizes  # whoever has none stays for ever

    # And the other way round: what was put off is done.
    with stage.run("microbatch") as run:
        stage.step(run, [("push", 161 * SECOND + SPAN - MS)])
        stage.step(run, *again("f", 161))
        stage.check()
        stage.step(run, [("end", 9_361 * SECOND)])

        def forgotten() -> bool:
            run.poll()
            return all(keys < (KEYS + 3 if flow == "found" else 3) for flow, (keys, _) in stage.sizes().items())

        until(forgotten, "that all is forgotten", 60)
