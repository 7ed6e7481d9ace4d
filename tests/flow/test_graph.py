"""The graph: its order, its cycles, its pictures."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.errors import CycleFound
from millrace.flow import App, Graph

FILE = "test_graph.py"


def passes(p: Any) -> Any:
    return p


def joins(a: Any, b: Any) -> Any:
    return a


def shop() -> Graph:
    app = App("shop")
    views = app.topic("pageviews", "url string, at timestamp", time="at", lateness="10 seconds")
    names = app.topic("names", "url string, name string", headers={"trace": "trace-id"})
    counts = app.stream(views, key="url", emit="updates", name="counts", schema="url string, n long")(passes)
    app.stream(counts, names, key=["url", "name"], name="named", delivery="at most once")(joins)
    app.traffic(views, rate=50, name="visits")(passes)
    return app.graph()


def without_lines(text: str) -> str:
    return "\n".join(line.rpartition("  ")[0].rstrip() if FILE in line else line for line in text.splitlines())


def test_every_node_comes_after_what_feeds_it() -> None:
    graph = shop()
    places = {node: place for place, node in enumerate(graph.nodes)}
    assert all(places[edge.source] < places[edge.target] for edge in graph.edges)
    assert len(graph.edges) == 6
    assert [stream.name for stream in graph.streams] == ["counts", "named"]


def test_its_text() -> None:
    text = shop().text()
    assert text.count(FILE) == 8  # the app and each of its nodes
    head, *lines = text.splitlines()
    assert head.startswith("app shop (")
    assert without_lines("\n".join(lines)) == "\n".join(
        [
            "  traffic  visits     -> pageviews, 50 made-up events a second",
            "  topic    pageviews  url string, at timestamp; time at, up to 10 seconds late",
            "  topic    names      url string, name string; headers trace",
            "  stream   counts     pageviews -> counts; key url; emits updates; at least once",
            "  topic    counts     url string, n long",
            "  stream   named      counts, names -> named; key url, name; at most once",
            "  topic    named      columns as its stream gives them",
        ]
    )


def test_its_mermaid() -> None:
    assert shop().mermaid() == "\n".join(
        [
            "flowchart LR",
            '  n0{{"visits"}}',
            '  n1[("pageviews")]',
            '  n2[("names")]',
            '  n3["counts"]',
            '  n4[("counts")]',
            '  n5["named"]',
            '  n6[("named")]',
            "  n1 --> n3",
            '  n3 -->|"at least once"| n4',
            "  n4 --> n5",
            "  n2 --> n5",
            '  n5 -->|"at most once"| n6',
            "  n0 --> n1",
        ]
    )


def test_a_stream_that_writes_what_it_reads_is_a_cycle() -> None:
    app = App("shop")
    views = app.topic("views", "a int")
    app.stream(views, to=views, name="again")(passes)
    with pytest.raises(CycleFound, match="again -> views -> again") as caught:
        app.graph()
    assert caught.value.where is not None
    assert caught.value.where.file.endswith(FILE)


def test_a_cycle_over_others_names_the_path_and_the_last_line() -> None:
    app = App("shop")
    first = app.topic("first", "a int")
    second = app.stream(first, name="second", schema="a int")(passes)
    third = app.stream(second, name="third", schema="a int")(passes)
    closing = app.stream(third, to=first, name="closing")(passes)
    with pytest.raises(CycleFound, match="closing -> first -> second -> third -> closing") as caught:
        app.graph()
    assert caught.value.where == closing.where


def test_two_streams_may_write_one_topic() -> None:
    app = App("shop")
    views, both = app.topic("views", "a int"), app.topic("both", "a int")
    app.stream(views, to=both, name="one")(passes)
    app.stream(views, to=both, name="two")(passes)
    assert [topic.name for topic in app.graph().topics] == ["views", "both"]
