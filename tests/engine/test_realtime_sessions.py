"""Sessions and the newest row of each key in real time: at once, over epochs' ends, restarts and switches of mode.

Nothing is late here, so what is told in the end does not depend on how epochs cut the events.

    event time (s)    0    8    16   24    34
                      +----+----+----+-----+
    events of a key   x    x    .    x
    its sessions      |-----------|  |-----|     with a gap of ten seconds
                                |
                                comes last, and makes one of the two
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

import millrace as mr
from millrace.engine import Run, realtime
from millrace.engine.stopping import epochs
from millrace.model.windows import Row, Windows
from tests.command import until
from tests.engine.conftest import Project
from tests.engine.test_run import checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.server]

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
GAP_S, TTL_S = 10, 60
KEYS = ("a", "b", "c")


class Session(NamedTuple):
    key: str
    start: datetime
    end: datetime
    n: int
    last: int


def app_of(mode: Any, epoch: str) -> mr.App:
    app = mr.App("now")
    events = app.topic(
        "events", "id long, key string, at timestamp", time="at", lateness="0 seconds", ahead=None, key="key"
    )
    manner: Any = {"key": "key", "mode": mode, "epoch": epoch if mode == "realtime" else None}
    gap, late = f"{GAP_S} seconds", mr.late.drop()

    @app.stream(events, **manner)
    def visits(e: DataFrame) -> DataFrame:
        return mr.session(e, gap, by="key", n=mr.count(), last=mr.last("id"), emit="updates", late=late)

    @app.stream(events, **manner)
    def newest(e: DataFrame) -> DataFrame:
        return mr.latest(e, by="key")

    @app.stream(events, **manner)
    def ended(e: DataFrame) -> DataFrame:
        return mr.session(e, gap, by="key", n=mr.count(), last=mr.last("id"), emit="final", late=late)

    @app.stream(events, **manner)
    def lately(e: DataFrame) -> DataFrame:
        return mr.latest(e, by="key", ttl=f"{TTL_S} seconds", late=late)

    return app


@dataclass
class Stage:
    project: Project
    spark: SparkSession
    flows: tuple[str, ...]
    epoch: str
    rows: list[Row] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)

    def run(self, mode: str) -> Run:
        return Run(app_of(mode, self.epoch), self.project.settings, spark=self.spark, only=self.flows)

    def write(self, seconds: Iterable[int], keys: Iterable[str] = KEYS) -> None:
        keys, fresh = list(keys), []
        for second in seconds:
            for key in keys:
                fresh.append(Row(key, second * SECOND, len(self.rows) + len(fresh)))
        self.rows += fresh
        told = [{"id": row.value, "key": row.key, "at": _at(row.time).isoformat()} for row in fresh]
        self.project.write("events", [json.dumps(row).encode() for row in told], 0)

    def ended(self, run: Run, seconds: Iterable[int], keys: Iterable[str] = KEYS) -> None:
        """Writes events, and waits until the epochs that read them have ended: the watermark is at the last of them."""
        self.write(seconds, keys)
        todo = Counter({flow: len(self.rows) for flow in self.flows})

        def done() -> bool:
            for each in run.poll():
                self.read[each.flow] += each.rows_in
            return self.read == todo

        until(done, f"the ends of the epochs that read {len(self.rows)} rows", 120)

    def told(self, flow: str) -> list[dict[str, Any]]:
        there = self.project.log.topics.exists(flow)
        return [record.json() for record in self.project.log.read(flow)] if there else []

    def come(self, run: Run) -> None:
        """Waits until both flows have told all that is true of the events so far."""
        wanted = _sessions(self.rows), _newest(self.rows)

        def there() -> bool:
            run.poll()
            return (self.visits(), self.newest("newest")) == wanted

        until(there, f"{wanted}", 120)

    def visits(self) -> Counter[Session]:
        """What a reader holds who takes out what a result replaces. One that grew in an epoch is told again."""
        held: dict[tuple[str, datetime, datetime], Session] = {}
        for row in self.told("visits"):
            for edges in row["replaces"] or ():
                del held[row["key"], _read(edges["start"]), _read(edges["end"])]
            found = _session(row)
            held[found[:3]] = found
        return Counter(held.values())

    def newest(self, flow: str) -> Counter[tuple[str, int]]:
        held: Counter[tuple[str, int]] = Counter()
        for row in self.told(flow):
            held[row["key"], row["id"]] += row["__diff"]
        return Counter({row: count for row, count in held.items() if count})


def _at(time: int) -> datetime:
    return START + timedelta(microseconds=time)


def _read(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _session(row: dict[str, Any]) -> Session:
    return Session(row["key"], _read(row["window_start"]), _read(row["window_end"]), row["n"], row["last"])


def _sessions(rows: Iterable[Row]) -> Counter[Session]:
    def values(held: list[Row]) -> tuple[int, int]:
        return len(held), max(held, key=lambda row: row.time).value

    model = Windows(None, GAP_S * SECOND, 0, False, values)
    results = model.epoch(rows, 0).results
    return Counter(Session(each.key, _at(each.start), _at(each.end), *each.values) for each in results)


def _newest(rows: Iterable[Row]) -> Counter[tuple[str, int]]:
    last: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.time):
        last[row.key] = row
    return Counter((key, row.value) for key, row in last.items())


@pytest.mark.turn(0, 2)
@pytest.mark.usefixtures("whole_epochs")
def test_sessions_and_newest_rows_are_told_as_they_change(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=1)
    stage = Stage(project, spark, ("visits", "newest"), "10 minutes")
    with stage.run("realtime") as run:
        stage.write([0, 8, 24])
        stage.come(run)
        stage.write([16], ["a"])  # two sessions are one; the newest stays
        stage.come(run)
        assert not any(epochs(checkpoint(project, flow, "now") / "commits") for flow in stage.flows)
    # A stop has committed: nothing is told again, and what comes meets what was there.
    before = {flow: len(stage.told(flow)) for flow in stage.flows}
    with stage.run("realtime") as run:
        stage.write([32], ["a", "b"])
        stage.come(run)
    assert {flow: len(stage.told(flow)) - before[flow] for flow in stage.flows} == {"visits": 2, "newest": 4}
    with stage.run("microbatch") as run:
        stage.write([40, 50], ["a", "c"])
        stage.come(run)
    with stage.run("realtime") as run:
        stage.write([58, 59])
        stage.come(run)
    assert len(_sessions(stage.rows)) > 3


@pytest.mark.turn(1, 2)
def test_what_ends_is_told_with_the_first_rows_after_an_epochs_end(
    project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "FIRST_EPOCH_MS", 1)
    project.log.topics.create("events", partitions=1)
    stage = Stage(project, spark, ("ended", "lately"), "5 seconds")

    def ended() -> Counter[Session]:
        return Counter(_session(row) for row in stage.told("ended"))

    def closed_at(second: int) -> Counter[Session]:
        """That have ended by then."""
        return Counter(each for each in _sessions(stage.rows).elements() if each.end <= _at(second * SECOND))

    with stage.run("realtime") as run:
        stage.ended(run, [0, 8, 16, 24])
        assert not ended()
        stage.ended(run, [70, 78], ["a", "b"])  # `c` is silent from here on
        stage.ended(run, [24 + TTL_S - 1], ["a"])
        assert ended() == closed_at(78)
        assert stage.newest("lately") == _newest(stage.rows)  # that of `c` for a second still
    with stage.run("microbatch") as run:
        stage.ended(run, [100], ["a"])
    with stage.run("realtime") as run:
        stage.ended(run, [101], ["a"])
        assert ended() == closed_at(100)
        assert stage.newest("lately") == _newest(row for row in stage.rows if row.key != "c")
        stage.ended(run, [1_000], ["a"])
        stage.ended(run, [1_001], ["a"])
    assert ended() == closed_at(1_000)
    assert stage.newest("lately") == _newest(row for row in stage.rows if row.key == "a")
    assert sum(ended().values()) > 5
