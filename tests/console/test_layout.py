"""Nodes stand in columns along the data's way, none on another."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from millrace.console.layout import GAP_X, HEIGHT, WIDTH, layout


def test_a_line_and_a_fork() -> None:
    #        b - d
    #  a  <
    #        c
    found = layout("abcd", [("a", "b"), ("a", "c"), ("b", "d")])
    xs = {node: x // (WIDTH + GAP_X) for node, (x, _) in found.places.items()}
    assert xs == {"a": 0, "b": 1, "c": 1, "d": 2}
    assert found.places["b"][1] != found.places["c"][1]
    assert found.width == 3 * WIDTH + 2 * GAP_X
    assert layout((), []).places == {}


def test_a_source_stands_before_what_it_feeds() -> None:
    found = layout("abcx", [("a", "b"), ("b", "c"), ("x", "c")])
    assert found.places["x"][0] == found.places["b"][0]


def test_crossings_are_undone() -> None:
    # Written down crossed: a feeds y, b feeds x.
    found = layout("abxy", [("a", "y"), ("b", "x")])
    upper_left = min("ab", key=lambda node: found.places[node][1])
    upper_right = min("xy", key=lambda node: found.places[node][1])
    assert (upper_left, upper_right) in (("a", "y"), ("b", "x"))


@given(st.integers(1, 50), st.integers())
def test_no_node_stands_on_another_and_edges_go_right(count: int, seed: int) -> None:
    chance = Random(seed)
    edges = [(a, b) for a, b in combinations(range(count), 2) if chance.random() < 2 / count]
    found = layout(range(count), edges)
    for a, b in edges:
        assert found.places[a][0] < found.places[b][0]
    for (x1, y1), (x2, y2) in combinations(found.places.values(), 2):
        assert abs(x1 - x2) >= WIDTH or abs(y1 - y2) >= HEIGHT
    for x, y in found.places.values():
        assert 0 <= x <= found.width - WIDTH
        assert 0 <= y <= found.height - HEIGHT
