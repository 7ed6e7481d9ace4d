"""Where the nodes of a graph stand on the map: in columns along the data's way, with few crossings."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

N = TypeVar("N", bound=Hashable)

WIDTH, HEIGHT = 208, 92
GAP_X, GAP_Y = 40, 20
SWEEPS = 4


@dataclass(frozen=True)
class Layout(Generic[N]):
    """The upper left corner of each node, and how large all of it is."""

    places: Mapping[N, tuple[int, int]]
    width: int
    height: int


def layout(nodes: Sequence[N], edges: Iterable[tuple[N, N]]) -> Layout[N]:
    """`nodes` stand in an order in which each comes after what feeds it. A node stands one column behind the last that
    feeds it; in a column the nodes are in the order of those that they are tied to."""
    pairs = list(edges)
    columns = _columns(nodes, pairs)
    tied: dict[N, list[N]] = {node: [] for node in nodes}
    for source, target in pairs:
        tied[source].append(target)
        tied[target].append(source)
    rank = {node: float(place) for column in columns for place, node in enumerate(column)}
    for sweep in range(SWEEPS):
        for number in range(len(columns)) if sweep % 2 == 0 else reversed(range(len(columns))):
            means = {node: _mean([rank[other] for other in tied[node]], rank[node]) for node in columns[number]}
            columns[number].sort(key=means.__getitem__)
            rank |= {node: float(place) for place, node in enumerate(columns[number])}
    tallest = max((len(column) for column in columns), default=0)
    places = {
        node: (
            number * (WIDTH + GAP_X),
            round((tallest - len(column)) * (HEIGHT + GAP_Y) / 2) + place * (HEIGHT + GAP_Y),
        )
        for number, column in enumerate(columns)
        for place, node in enumerate(column)
    }
    width = max(len(columns) * (WIDTH + GAP_X) - GAP_X, 0)
    return Layout(places, width, max(tallest * (HEIGHT + GAP_Y) - GAP_Y, 0))


def _columns(nodes: Sequence[N], pairs: Sequence[tuple[N, N]]) -> list[list[N]]:
    depth = dict.fromkeys(nodes, 0)
    feeds: dict[N, list[N]] = {node: [] for node in nodes}
    for source, target in pairs:
        feeds[target].append(source)
    for node in nodes:
        depth[node] = max((depth[source] + 1 for source in feeds[node]), default=0)
    # What nothing feeds stands right before what it feeds first, not at the far left.
    for node in reversed(nodes):
        targets = [depth[target] for source, target in pairs if source == node]
        if not feeds[node] and targets:
            depth[node] = max(min(targets) - 1, 0)
    columns: list[list[N]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        columns[depth[node]].append(node)
    return columns


def _mean(ranks: Sequence[float], alone: float) -> float:
    return sum(ranks) / len(ranks) if ranks else alone
