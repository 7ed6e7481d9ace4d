"""The map's data: each node of the graph with its figures, and for each edge who holds whom back.

Blame goes to the cause, not to the victim. A node is a cause by its own doing: its flow failed, stopped while others
run, or reads slower than records arrive; its sink does not take what it is given; its capture does not capture. What
comes behind a cause in the data's way is late because of it. A flow that lags while a sink of its own does not take
epochs is held back by that sink.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from millrace.capture.memory import Remembered
from millrace.capture.status import CaptureStatus
from millrace.console.extents import Extents, TopicLook
from millrace.console.histories import RUNNING, History
from millrace.engine.plan import Flow
from millrace.engine.standing import NOT_STARTED
from millrace.flow import Graph
from millrace.flow.deliveries import Delivery
from millrace.flow.lakes import LakeInput
from millrace.flow.nodes import Node, Stream, Topic, Traffic, kind
from millrace.flow.tables import Changes, Database, Table
from millrace.flow.views import View
from millrace.sinks.lake import Lake

# A flow in epochs leaves something unread for a moment; only one that stays behind holds others back.
HELD_S = 5.0

# well: data moves. idle: nothing to do, or nobody runs it. held: it holds others back. late: somebody holds it back.
Condition: TypeAlias = Literal["well", "idle", "held", "late"]


@dataclass(frozen=True)
class NodeFacts:
    """What the map shows of a node. `word` is its state in a word, `cause` the name of what holds it back and `why` in
    a sentence, which is its own error where it is the cause. `flow`, `topic`, `capture`, `view` and `lake` name the
    pages with more."""

    kind: str
    name: str
    about: str
    where: str
    condition: Condition
    word: str
    rate: float | None
    lag: int | None
    lag_s: float | None
    fresh_s: float | None
    guarantee: str | None
    cause: str | None
    why: str | None
    error: str | None
    flow: str | None
    topic: str | None
    capture: str | None
    view: str | None
    lake: str | None


@dataclass(frozen=True)
class EdgeFacts:
    """Between nodes by their place in the graph; `cause` names what holds it back."""

    source: int
    target: int
    condition: Condition
    cause: str | None


@dataclass(frozen=True)
class Map:
    nodes: tuple[NodeFacts, ...]
    edges: tuple[EdgeFacts, ...]


@dataclass(frozen=True)
class Seen:
    """All that is known at a moment. `captured` are the captures' tables, `captures` how they stand, by name."""

    flows: Mapping[str, History]
    extents: Extents | None = None
    captured: Mapping[str, Remembered] | None = None
    captures: Mapping[str, CaptureStatus] | None = None


def map_of(graph: Graph, seen: Seen, now: float | None = None) -> Map:
    now = time.time() if now is None else now
    flow_by_node = {node: history for history in seen.flows.values() for node in _nodes_of(history.flow)}
    runs = any(history.look and history.look.state in RUNNING for history in seen.flows.values())
    own = {node: _own_trouble(node, flow_by_node.get(node), seen, runs) for node in graph.nodes}
    blamed = _blamed(graph, own, flow_by_node)
    nodes = tuple(_node(graph, node, flow_by_node.get(node), seen, own, blamed, now) for node in graph.nodes)
    number = {node: place for place, node in enumerate(graph.nodes)}
    edges = []
    for edge in graph.edges:
        condition, cause = _edge(edge.source, edge.target, own, blamed, nodes[number[edge.source]])
        edges.append(EdgeFacts(number[edge.source], number[edge.target], condition, cause))
    return Map(nodes, tuple(edges))


def topic_of(node: Node, captured: Mapping[str, Remembered] | None) -> str | None:
    """The topic behind a node, if that is known: of a captured table it is when its capture has been made."""
    if isinstance(node, Topic):
        return node.name
    if isinstance(node, Stream):
        return node.output.name
    table = node.of if isinstance(node, Changes) else node if isinstance(node, Table) else None
    if table is None:
        return None
    if table.capture is None:
        return table.name
    remembered = (captured or {}).get(table.capture.name)
    for whole, found in (remembered.tables if remembered else {}).items():
        if table.table in (whole, whole.rpartition(".")[2]):
            return found.topic
    return None


def _nodes_of(flow: Flow) -> tuple[Node, ...]:
    return (*flow.streams, *flow.sinks, *((flow.view,) if flow.view is not None else ()))


def _own_trouble(node: Node, history: History | None, seen: Seen, runs: bool) -> str | None:
    """Why a node by itself holds others back."""
    if isinstance(node, Database):
        status = (seen.captures or {}).get(node.capture.name)
        if status is None:
            return None
        if status.error:
            return f"{status.error}: {status.fix}" if status.fix else status.error
        return f"the capture is {status.state}" if status.state in ("paused", "stopped") else None
    if history is None or history.look is None:
        return None
    look = history.look
    if isinstance(node, Delivery):
        sink = _sink(look.told, node.name)
        if sink.get("owed_epochs") or sink.get("trouble"):
            owed = f"it owes {sink.get('owed_epochs') or 0:,} epochs"
            return f"{sink['trouble']} ({owed})" if sink.get("trouble") else owed
        return None if history.flow.streams else _flow_trouble(history, runs)
    return _flow_trouble(history, runs)


def _flow_trouble(history: History, runs: bool) -> str | None:
    look = history.look
    assert look is not None
    state = look.state
    if state in ("failed", "restarting", "died"):
        return str(look.facts.get("error") or f"its run {state} without a word: see `millrace logs`, and run it again")
    if state == "stopped" and runs:
        return "it does not run, while other flows of the app do: `millrace run` starts it"
    behind, lag_s = look.last.get("lag_records") or 0, look.last.get("lag_s") or 0.0
    if state == "running" and behind and lag_s >= HELD_S:
        return f"it reads slower than records arrive: {behind:,} are unread, the newest read one is {lag_s:,.0f} s old"
    return str(look.facts["trouble"]) if look.facts.get("trouble") else None


def _blamed(graph: Graph, own: dict[Node, str | None], flows: Mapping[Node, History]) -> dict[Node, Node]:
    """For each node that does not get on as it should, the node whose doing that is; for a cause, itself. What is a
    node's own is taken from one that does not run because of another."""
    blamed: dict[Node, Node] = {}
    for node in graph.nodes:  # each after what feeds it
        before = next((edge.source for edge in graph.edges if edge.target is node and edge.source in blamed), None)
        if before is not None and _waits(flows.get(node)):
            own[node] = None
        if own[node]:
            blamed[node] = _sink_in_the_way(node, own, flows) or node
        elif before is not None:
            blamed[node] = blamed[before]
    return blamed


def _waits(history: History | None) -> bool:
    look = history.look if history else None
    return look is not None and (look.state == "stopped" or str(look.facts.get("error")).startswith(NOT_STARTED))


def _sink_in_the_way(node: Node, own: Mapping[Node, str | None], flows: Mapping[Node, History]) -> Node | None:
    history = flows.get(node)
    if isinstance(node, Delivery) or history is None or history.look is None or history.look.state != "running":
        return None
    return next((sink for sink in history.flow.sinks if own[sink]), None)


def _edge(
    source: Node, target: Node, own: Mapping[Node, str | None], blamed: Mapping[Node, Node], facts: NodeFacts
) -> tuple[Condition, str | None]:
    if own[target] and target in blamed:
        return "held", blamed[target].name
    # What a captured database or made-up traffic writes stands still at its source.
    if own[source] and isinstance(source, Database):
        return "held", source.name
    if source in blamed:
        return "late", blamed[source].name
    return ("well" if facts.rate else "idle"), None


def _node(
    graph: Graph,
    node: Node,
    history: History | None,
    seen: Seen,
    own: Mapping[Node, str | None],
    blamed: Mapping[Node, Node],
    now: float,
) -> NodeFacts:
    name = topic_of(node, seen.captured)
    topic = seen.extents.topics.get(name) if seen.extents and name else None
    figures = _figures(node, history, topic, seen, now)
    cause = blamed.get(node)
    condition: Condition = "well" if figures["rate"] else "idle"
    if cause is not None:
        condition = "held" if cause is node else "late"
    capture = node.of.capture if isinstance(node, Changes) else getattr(node, "capture", None)
    return NodeFacts(
        kind=kind(node),
        name=node.name,
        about=graph.about(node),
        where=str(node.where),
        condition=condition,
        cause=cause.name if cause is not None else None,
        why=own[cause] if cause is not None else None,
        error=_error(node, history, own[node]),
        flow=history.flow.name if history else None,
        topic=None if isinstance(node, Stream) else name,
        capture=capture.name if capture is not None else None,
        view=node.name if isinstance(node, View) else None,
        lake=_lake(node),
        **figures,
    )


def _lake(node: Node) -> str | None:
    if isinstance(node, LakeInput):
        return node.table
    return node.sink.table if isinstance(node, Delivery) and isinstance(node.sink, Lake) else None


def _figures(node: Node, history: History | None, topic: TopicLook | None, seen: Seen, now: float) -> dict[str, Any]:
    """The word, rate, lag, freshness and guarantee of a node."""
    figures: dict[str, Any] = dict.fromkeys(("rate", "lag", "lag_s", "fresh_s", "guarantee"))
    if isinstance(node, Traffic):
        runs = any(each.look and each.look.state in RUNNING for each in seen.flows.values())
        return figures | {"word": "made up" if runs else "stopped", "rate": node.rate if runs else None}
    if isinstance(node, Database):
        status = (seen.captures or {}).get(node.capture.name)
        rate = sum(table.events_per_s for table in status.tables) if status else None
        lags = [table.lag_s for table in status.tables if table.lag_s is not None] if status else []
        return figures | {"word": status.state if status else "unknown", "rate": rate, "lag_s": max(lags, default=None)}
    if history is not None:
        return figures | _flow_figures(node, history, seen)
    if isinstance(node, LakeInput):
        return figures | {"word": "read at the start"}
    if topic is None:
        known = seen.extents is not None
        return figures | {"word": "not there yet" if known else "unknown"}
    fresh_s = max(now - topic.newest.timestamp(), 0.0) if topic.newest else None
    return figures | {"word": f"{topic.offsets:,} records", "rate": topic.rate, "fresh_s": fresh_s}


def _flow_figures(node: Node, history: History, seen: Seen) -> dict[str, Any]:
    look = history.look
    guarantee = node.guarantee if isinstance(node, Delivery) else history.flow.guarantee
    if look is None:
        return {"word": "unknown", "guarantee": guarantee}
    runs = look.state in RUNNING
    lag = look.last.get("lag_records") if runs else seen.extents.behind(history.reached) if seen.extents else None
    word = look.state
    if isinstance(node, Delivery) and (owed := _sink(look.told, node.name).get("owed_epochs")):
        word = f"owes {owed:,} epochs"
    at = look.facts.get("at")
    fresh = max(at.timestamp(), history.taken_at) if at is not None else None
    return {
        "word": word if look.told or runs else "never run",
        "rate": history.rate("rows_out" if isinstance(node, Delivery) and look.told.get("rows_out") else "rows_in"),
        "lag": lag,
        "lag_s": look.last.get("lag_s") if runs else None,
        "fresh_s": max(look.at - fresh, 0.0) if fresh is not None else None,
        "guarantee": guarantee,
    }


def _error(node: Node, history: History | None, own: str | None) -> str | None:
    """The last error of a node's flow or sink, also one that has passed."""
    if own or history is None or history.look is None:
        return own
    if isinstance(node, Delivery):
        return _sink(history.look.told, node.name).get("trouble")
    found = history.look.facts.get("error")
    return str(found) if found else None


def _sink(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (told.get("sinks") or {}).get(name) or {}
    return found
