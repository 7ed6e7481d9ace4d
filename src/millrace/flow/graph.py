"""The frozen graph of an app: nodes, edges, the order of the data's way, and how it is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from millrace import durations
from millrace.capture.definition import Capture
from millrace.errors import CycleFound, Where
from millrace.flow.deliveries import Delivery
from millrace.flow.lakes import LakeInput
from millrace.flow.nodes import Node, Stream, Topic, Traffic, kind
from millrace.flow.tables import Changes, Database, Table
from millrace.flow.views import View
from millrace.sinks.lake import Lake


class Graphed(Protocol):
    """What has a graph: an app."""

    def graph(self) -> Graph: ...


@dataclass(frozen=True)
class Edge:
    source: Node
    target: Node


@dataclass(frozen=True)
class Graph:
    """Checked when made: acyclic, and `nodes` stand in an order in which every node comes after what feeds it.

    The topic that a stream writes is a node of its own, also where no `app.topic` declared it.
    """

    app: str
    where: Where
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, app: str, where: Where, defined: tuple[Node, ...]) -> Graph:
        nodes: dict[Node, None] = {}
        for node in defined:
            nodes[node] = None
            if isinstance(node, Stream):
                nodes.update(dict.fromkeys((node.output, *node.reads)))
            elif isinstance(node, Delivery):
                nodes[node.of] = None
            elif isinstance(node, View):
                nodes.update(dict.fromkeys(node.reads))
        edges = tuple(edge for node in nodes for edge in _edges(node, nodes))
        return cls(app, where, _ordered(tuple(nodes), edges), edges)

    @property
    def topics(self) -> tuple[Topic, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Topic))

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Stream))

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(node for node in self.nodes if isinstance(node, View))

    @property
    def databases(self) -> tuple[Database, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Database))

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Delivery))

    @property
    def lake_topics(self) -> tuple[Topic, ...]:
        """Those that are fed from tables of the lake."""
        return tuple(topic for topic in self.topics if topic.lake is not None)

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Traffic))

    def about(self, node: Node) -> str:
        """What a node does, in a line."""
        return _facts(node)

    def text(self) -> str:
        """For people: one line a node, in the order of the data's way, each with the line that made it."""
        rows = [(kind(node), node.name, _facts(node), str(node.where)) for node in self.nodes]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        lines = [f"app {self.app} ({self.where})"]
        for row in rows:
            cells = (text.ljust(width) for text, width in zip(row, widths, strict=False))
            lines.append(f"  {'  '.join(cells)}  {row[3]}".rstrip())
        return "\n".join(lines)

    def mermaid(self) -> str:
        """For a page: Mermaid's flowchart; topics and tables (also the lake's) are cylinders, streams boxes, made-up
        traffic hexagons, captured databases boxes with double sides, sinks flags, views slanted."""
        numbers = {node: f"n{place}" for place, node in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        for node, number in numbers.items():
            opening, closing = _SHAPES[type(node)]
            lines.append(f"  {number}{opening}{_quoted(node.name)}{closing}")
        for edge in self.edges:
            kept = _guarantee(edge)
            label = f"|{_quoted(kept)}|" if kept else ""
            lines.append(f"  {numbers[edge.source]} -->{label} {numbers[edge.target]}")
        return "\n".join(lines)


_SHAPES: dict[type[Node], tuple[str, str]] = {
    Topic: ("[(", ")]"),
    Stream: ("[", "]"),
    Traffic: ("{{", "}}"),
    Database: ("[[", "]]"),
    Table: ("[(", ")]"),
    Changes: ("[(", ")]"),
    Delivery: (">", "]"),
    View: ("[/", "/]"),
    LakeInput: ("[(", ")]"),
}


def _guarantee(edge: Edge) -> str | None:
    if isinstance(edge.target, Delivery):
        return edge.target.guarantee
    return edge.source.delivery if isinstance(edge.source, Stream) else None


def _edges(node: Node, nodes: Iterable[Node]) -> tuple[Edge, ...]:
    if isinstance(node, Stream):
        return (*(Edge(source, node) for source in dict.fromkeys(node.reads)), Edge(node, node.output))
    if isinstance(node, Traffic):
        return (Edge(node, node.topic),)
    if isinstance(node, Delivery):
        return (Edge(node.of, node),)
    if isinstance(node, View):
        return tuple(Edge(source, node) for source in dict.fromkeys(node.reads))
    if isinstance(node, Database):
        tables = [each for each in nodes if isinstance(each, Table | Changes)]
        return tuple(Edge(node, each) for each in tables if _captured(each) is node.capture)
    if isinstance(node, LakeInput) or (isinstance(node, Topic) and node.lake is not None):
        return tuple(Edge(each, node) for each in nodes if isinstance(each, Delivery) and feeds(each, node))
    return ()


def feeds(delivery: Delivery, lake: LakeInput | Topic) -> bool:
    """Whether what is delivered there is read here. A version that is named is what it is."""
    table = lake.lake if isinstance(lake, Topic) else lake.table if lake.version is None else None
    return isinstance(delivery.sink, Lake) and delivery.sink.table == table


def _captured(node: Table | Changes) -> Capture | None:
    return node.of.capture if isinstance(node, Changes) else node.capture


def _ordered(nodes: tuple[Node, ...], edges: tuple[Edge, ...]) -> tuple[Node, ...]:
    """Depth first from each node to what feeds it; meeting a node that is still open is a cycle."""
    feeds: dict[Node, list[Node]] = {node: [] for node in nodes}
    for edge in edges:
        feeds[edge.target].append(edge.source)
    ordered: dict[Node, None] = {}
    path: list[Node] = []

    def visit(node: Node) -> None:
        if node in ordered:
            return
        if node in path:
            raise _cycle(path[path.index(node) :])
        path.append(node)
        for source in feeds[node]:
            visit(source)
        path.pop()
        ordered[node] = None

    for node in nodes:
        visit(node)
    return tuple(ordered)


def _cycle(open_nodes: list[Node]) -> CycleFound:
    """Told from the stream defined last: the one whose line made the cycle. The path was walked against the data."""
    round_trip = open_nodes[::-1]
    streams = [node for node in round_trip if isinstance(node, Stream)]
    last = max(streams, key=lambda stream: (stream.where.file, stream.where.line))
    start = round_trip.index(last)
    names = [node.name for node in (*round_trip[start:], *round_trip[:start], last)]
    steps = [name for place, name in enumerate(names) if place == 0 or name != names[place - 1]]
    return CycleFound(name=last.name, path=" -> ".join(steps), where=last.where)


def _facts(node: Node) -> str:
    if isinstance(node, Traffic):
        return f"-> {node.topic.name}, {node.rate:g} made-up events a second"
    if isinstance(node, Stream):
        facts = [f"{', '.join(topic.name for topic in node.reads)} -> {node.output.name}"]
        if node.key:
            facts.append(f"key {', '.join(node.key)}")
        if node.emit:
            facts.append(f"emits {node.emit}")
        if node.epoch_ms is not None:
            facts.append(f"in real time, epochs of {durations.spoken(node.epoch_ms)}")
        return "; ".join([*facts, node.delivery])
    if isinstance(node, Delivery):
        return f"{node.of.name} -> {node.sink.kind}; {node.guarantee}"
    if isinstance(node, Database):
        kept = durations.spoken(node.capture.history_ms)
        return f"captures {', '.join(node.capture.tables)}; every change kept {kept}"
    if isinstance(node, Table):
        return "signed rows" if node.capture else f"signed rows of somebody else's capture; {node.schema}"
    if isinstance(node, Changes):
        return "every change as it was captured"
    if isinstance(node, LakeInput):
        return "its newest version when a flow starts" if node.version is None else f"version {node.version}"
    if isinstance(node, View):
        found = f"{', '.join(each.name for each in node.reads)} -> {node.name}; key {', '.join(node.key)}"
        epoch_ms = node.epoch_ms
        return found if epoch_ms is None else f"{found}; in real time, epochs of {durations.spoken(epoch_ms)}"
    facts = [node.schema] if node.schema else ["columns as its stream gives them"]
    if node.time:
        facts.append(f"time {node.time}, {node.lateness}")
    if node.key:
        facts.append(f"key {', '.join(node.key)}")
    if node.headers:
        facts.append(f"headers {', '.join(column for column, _ in node.headers)}")
    return "; ".join(facts)


def _quoted(text: str) -> str:
    return '"' + text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") + '"'
