"""The map blames the cause, not the victim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from millrace.capture.database import CapturedTable
from millrace.capture.memory import Remembered
from millrace.capture.status import CaptureStatus
from millrace.config import Settings
from millrace.console.extents import Extents, TopicLook
from millrace.console.histories import Histories
from millrace.console.nodes import Map, Seen, map_of
from millrace.engine.standing import NOT_STARTED
from millrace.log import Extent
from millrace.log.record import moment
from tests.console.seen import BEGAN, look

REVENUE = "SELECT c.region, count(*) AS n FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region"
WELL: dict[str, Any] = {"last": {"epoch": 3, "epoch_ms": 100, "lag_records": 0, "lag_s": 0.0}}


class Line:
    """visits -> first -> second -> sink: two flows, the second with a sink."""

    def __init__(self, folder: Path) -> None:
        app = mr.App("line")
        visits = app.topic("visits", "url string, at timestamp", time="at", lateness="2 seconds")

        @app.stream(visits, schema="url string, at timestamp")
        def first(v: Any) -> Any:
            return v

        @app.stream(first, delivery="exactly once")
        def second(v: Any) -> Any:
            return v

        second.to(mr.files("out"))
        self.graph = app.graph()
        self.histories = Histories(self.graph, Settings(folder))

    def map(self, extents: Extents | None = None) -> Map:
        return map_of(self.graph, Seen(self.histories.flows, extents), BEGAN + 10)

    def edges(self) -> dict[str, tuple[str, str | None]]:
        found = self.map()
        names = [f"{node.kind} {node.name}" for node in found.nodes]
        return {f"{names[e.source]} -> {names[e.target]}": (e.condition, e.cause) for e in found.edges}


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def sink_of(line: Line) -> str:
    return next(node.name for node in line.map().nodes if node.kind == "sink")


def test_nothing_is_blamed_while_all_is_well(line: Line) -> None:
    for flow in ("first", "second"):
        for second in range(3):
            look(line.histories, flow, "running", second, rows_in=100 * second, **WELL)
    found = line.map()
    assert not [node.cause for node in found.nodes if node.cause]
    stream = next(node for node in found.nodes if node.name == "first" and node.kind == "stream")
    assert (stream.condition, stream.rate, stream.guarantee) == ("well", 100.0, "at least once")
    assert stream.where.startswith(("tests/console", str(Path(__file__).parent)))
    second_stream = next(node for node in found.nodes if node.name == "second" and node.kind == "stream")
    assert second_stream.guarantee == "exactly once"


def test_a_topic_has_the_guarantee_of_its_flow_and_not_what_its_stream_alone_asked_for(tmp_path: Path) -> None:
    app = mr.App("shared")
    items = app.table("items", "id long", key="id")

    @app.stream(items, key="id", schema="id long")
    def one(rows: Any) -> Any:
        return rows

    @app.stream(items, key="id", schema="id long", delivery="exactly once")
    def two(rows: Any) -> Any:
        return rows

    alone = app.table("alone", "id long", key="id")
    alone.to(mr.files("out"))
    graph = app.graph()
    histories = Histories(graph, Settings(tmp_path))
    found = map_of(graph, Seen(histories.flows, None), BEGAN)
    told = {(node.kind, node.name): node.guarantee for node in found.nodes}
    assert told["stream", "one"] == told["stream", "two"] == "exactly once", "they are written together"
    assert {flow: history.flow.guarantee for flow, history in histories.flows.items()} == {
        "items": "exactly once",
        "alone": None,
    }


def test_a_slow_flow_is_the_cause_and_those_behind_it_are_late(line: Line) -> None:
    slow = {"last": {"epoch": 3, "epoch_ms": 100, "lag_records": 5_000, "lag_s": 60.0}}
    look(line.histories, "first", "running", **slow)
    look(line.histories, "second", "running", **WELL)
    edges = line.edges()
    assert edges["topic visits -> stream first"] == ("held", "first")
    assert edges["stream first -> topic first"] == ("late", "first")
    assert edges["topic first -> stream second"] == ("late", "first")
    nodes = {(node.kind, node.name): node for node in line.map().nodes}
    assert (nodes["stream", "first"].condition, nodes["stream", "second"].condition) == ("held", "late")
    assert nodes["stream", "second"].cause == "first"
    assert "slower than records arrive" in (nodes["stream", "second"].why or "")
    assert nodes["topic", "visits"].condition == "idle"  # what feeds the cause is not to blame


def test_a_moment_behind_is_no_blame(line: Line) -> None:
    look(line.histories, "first", "running", last={"lag_records": 5_000, "lag_s": 1.0})
    assert not [node.cause for node in line.map().nodes if node.cause]


def test_a_sink_that_takes_nothing_is_blamed_for_the_lag_of_its_flow(line: Line) -> None:
    owes = {"guarantee": "exactly once", "owed_epochs": 7, "trouble": "MR-SINK-UNREACHABLE it is away: start it"}
    slow = {"last": {"lag_records": 5_000, "lag_s": 60.0}, "sinks": {sink_of(line): owes}}
    look(line.histories, "first", "running", **WELL)
    look(line.histories, "second", "running", **slow)
    sink = sink_of(line)
    edges = line.edges()
    assert edges["topic first -> stream second"] == ("held", sink)
    assert edges[f"stream second -> sink {sink}"] == ("held", sink)
    found = {(node.kind, node.name): node for node in line.map().nodes}
    assert found["sink", sink].word == "owes 7 epochs"
    assert "it is away: start it" in (found["sink", sink].error or "")
    assert (found["stream", "second"].condition, found["stream", "second"].cause) == ("late", sink)


def test_a_failed_flow_shows_its_error_and_a_stopped_app_blames_nobody(line: Line) -> None:
    look(line.histories, "first", "failed", error="MR-RUN-FAILED no such column: mend it (at shop.py:3)")
    look(line.histories, "second", "running", **WELL)
    node = next(node for node in line.map().nodes if (node.kind, node.name) == ("stream", "first"))
    assert (node.condition, node.error) == ("held", "MR-RUN-FAILED no such column: mend it (at shop.py:3)")
    look(line.histories, "first", "stopped", 1)
    assert line.edges()["topic visits -> stream first"] == ("held", "first")
    look(line.histories, "second", "stopped", 2)
    assert {condition for condition, _ in line.edges().values()} == {"idle"}


def test_a_flow_that_waits_for_the_cause_is_no_cause(line: Line) -> None:
    look(line.histories, "first", "failed", error="MR-BODY-FAILED it broke: mend it")
    waits = {"error": f"{NOT_STARTED} first failed"}
    for state, told in (("stopped", {}), ("failed", waits)):
        look(line.histories, "second", state, **told)
        nodes = {(node.kind, node.name): node for node in line.map().nodes}
        assert (nodes["stream", "second"].condition, nodes["stream", "second"].cause) == ("late", "first")
        assert line.edges()["topic first -> stream second"] == ("late", "first")


def test_topics_tell_their_rate_and_freshness_and_a_stopped_flow_its_lag(line: Line) -> None:
    newest = moment(round((BEGAN + 7) * 1_000))
    topic = TopicLook("visits", {0: Extent(10, 110, newest), 1: Extent(0, 50, None)}, 2.5)
    look(line.histories, "first", "stopped")
    line.histories.flows["first"].reached = {"visits": {0: 100}}
    found = line.map(Extents({"visits": topic}))
    nodes = {(node.kind, node.name): node for node in found.nodes}
    visits = nodes["topic", "visits"]
    assert (visits.word, visits.rate, visits.fresh_s, visits.condition) == ("150 records", 2.5, 3.0, "well")
    assert nodes["topic", "second"].word == "not there yet"
    assert nodes["stream", "first"].lag == 10 + 50


def test_a_view_over_captured_tables(tmp_path: Path) -> None:
    app = mr.App("shop")
    db = app.capture("shop", tables=["orders", "customers"])
    app.view("revenue", key="region", sql=REVENUE)
    graph = app.graph()
    histories = Histories(graph, Settings(tmp_path))
    look(histories, "revenue", "running", **WELL)
    paused = CaptureStatus("shop", "paused", None, None, None, None, None, ())
    orders = CapturedTable("public.orders", "shop.public.orders", ("id",), ())
    remembered = Remembered(db.capture, "postgres", {"public.orders": orders})
    found = map_of(graph, Seen(histories.flows, None, {"shop": remembered}, {"shop": paused}), BEGAN)
    nodes = {(node.kind, node.name): node for node in found.nodes}
    view = nodes["view", "revenue"]
    assert (view.condition, view.cause, view.flow, view.word) == ("late", "shop", "revenue", "running")
    assert nodes["database", "shop"].condition == "held"
    assert nodes["table", "shop.orders"].topic == "shop.public.orders"
