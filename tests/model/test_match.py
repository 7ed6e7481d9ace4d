"""The model of patterns finds what trying all ways in the order of preference finds, and tells a match exactly when
nothing that may still come can change it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millrace.errors import PatternInvalid, Where
from millrace.flow.patterns import Absence, Choice, Node, Repeat, Sequence, Variable, read
from millrace.flow.places import compiled
from millrace.model.match import Match, Matching, Row, order

HERE = Where("test", 1)
FOREVER = 10**9
VARIABLES = "abc"

Taken = tuple[tuple[Row, int], ...]
Then = Callable[[Taken], Iterator[Taken]]


def end(taken: Taken) -> Iterator[Taken]:
    yield taken


def ways(node: Node, taken: Taken, rows: list[Row], bits: dict[str, int], then: Then) -> Iterator[Taken]:
    """Every way to take rows for the node and what comes behind it, the preferred one first. `rows` are those of the
    time that there is."""
    left = rows[len(taken) :]
    match node:
        case Variable():
            if left and left[0].flags >> bits[node.name] & 1:
                yield from then((*taken, (left[0], bits[node.name])))
        case Choice():
            for part in node.parts:
                yield from ways(part, taken, rows, bits, then)
        case Sequence():
            first, *others = node.parts
            rest: Then = then
            if others:
                rest = lambda now: ways(Sequence(tuple(others)), now, rows, bits, then)  # noqa: E731
            yield from ways(first, taken, rows, bits, rest)
        case Absence():
            lacks = list(itertools.takewhile(lambda row: not any(row.flags >> bits[n] & 1 for n in node.names), left))
            if then is end:
                yield from end(taken) if len(lacks) == len(left) else ()
            else:
                for count in range(len(lacks) + 1):
                    yield from then((*taken, *((row, -1) for row in lacks[:count])))
        case Repeat():
            yield from repeated(node, 0, taken, rows, bits, then)


def repeated(
    node: Repeat, done: int, taken: Taken, rows: list[Row], bits: dict[str, int], then: Then
) -> Iterator[Taken]:
    more: Then = then
    if done + 1 != node.most:
        more = lambda now: repeated(node, done + 1, now, rows, bits, then)  # noqa: E731
    once = ways(node.body, taken, rows, bits, more)
    if done < node.least:
        yield from once
    elif node.greedy:
        yield from itertools.chain(once, then(taken))
    else:
        yield from itertools.chain(then(taken), once)


def best(text: str, rows: list[Row], within: int) -> Taken:
    """The preferred match that begins with the first row, or ()."""
    node, bits = read(text, HERE), {name: bit for bit, name in enumerate(compiled(text, HERE).variables)}
    timely = [row for row in rows if row.time < rows[0].time + within]
    return next(ways(node, (), timely, bits, end), ())


def every(text: str, rows: list[Row], within: int, after: str | tuple[str, int]) -> list[Match]:
    found, start = [], 0
    while start < len(rows):
        taken = best(text, rows[start:], within)
        if not taken:
            start += 1
            continue
        found.append(Match(rows[0].key, taken))
        where = [place for place, (_, number) in enumerate(taken) if number == after[1]]
        steps = {"past last row": len(taken), "next row": 1, "first": where[:1], "last": where[-1:]}
        step = steps[after if isinstance(after, str) else after[0]]
        start += step if isinstance(step, int) else max([1, *step])
    return found


NAMES = st.sampled_from(VARIABLES)
TIMES = st.sampled_from(("*", "+", "?", "{2}", "{2,}", "{1,3}", "{,2}", "*?", "+?", "??", "{2,}?", "{1,3}?", "{,2}?"))
ABSENCES = st.one_of(NAMES.map("!{}".format), st.just("!(a | b)"))


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(st.one_of(inner, ABSENCES), min_size=2, max_size=3).map(" ".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' | '.join(parts)})"),
        st.tuples(inner, TIMES).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.tuples(NAMES, TIMES).map("".join),
    )


PATTERNS = st.recursive(st.one_of(NAMES, NAMES), larger, max_leaves=5)
AFTERS = st.sampled_from(("past last row", "next row", ("first", 0), ("last", 0), ("last", 1)))
WITHIN = st.integers(1, 9)


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Rows in order, some at the same time."""
    shape = st.tuples(st.integers(0, 2), st.integers(0, 7))
    time, rows = 0, []
    for step, flags in draw(st.lists(shape, min_size=1, max_size=9)):
        time += step
        rows.append(Row("k", time, flags))
    return sorted(rows, key=order)


def sound(text: str) -> str:
    """The pattern, if it is one."""
    try:
        compiled(text, HERE)
    except PatternInvalid:
        assume(False)
    return text


@settings(max_examples=800)
@given(PATTERNS, histories(), WITHIN, AFTERS)
def test_it_finds_what_trying_all_ways_finds(
    text: str, rows: list[Row], within: int, after: str | tuple[str, int]
) -> None:
    model = Matching(compiled(sound(text), HERE).told(), within, after)
    assert model.epoch(rows, -1).matches == []
    assert model.epoch([], FOREVER).matches == every(text, rows, within, after)


@settings(max_examples=300)
@given(PATTERNS, histories(), WITHIN, AFTERS, st.data())
def test_what_it_finds_does_not_depend_on_the_cuts(
    text: str, rows: list[Row], within: int, after: str | tuple[str, int], data: st.DataObject
) -> None:
    model = Matching(compiled(sound(text), HERE).told(), within, after)
    lateness = data.draw(st.integers(0, 3))
    arrived = sorted(rows, key=lambda row: row.time + data.draw(st.integers(0, lateness)))
    found, watermark = [], -1
    for row in arrived:
        found += model.epoch([row], watermark).matches
        watermark = max(watermark, row.time - lateness)
    found += model.epoch([], FOREVER).matches
    expected = every(text, rows, within, after)
    assert (Counter(found) if after == "next row" else found) == (
        Counter(expected) if after == "next row" else expected
    )


@settings(max_examples=200)
@given(PATTERNS, histories())
def test_it_is_decided_when_nothing_to_come_can_change_it(text: str, rows: list[Row]) -> None:
    sound(text)
    assume(len(compiled(text, HERE).places) <= 4)
    model = Matching(compiled(text, HERE).told(), FOREVER)
    decided, found = model.preferred(rows, 0)
    masks = range(1 << len(compiled(text, HERE).variables))
    later = [
        [*rows, *(Row("k", rows[-1].time + 1, flags) for flags in more)]
        for count in range(4)
        for more in itertools.product(masks, repeat=count)
    ]
    if decided:
        assert {best(text, each, FOREVER) for each in later[: 1 + len(masks) + len(masks) ** 2]} == {found}
    else:
        now = best(text, rows, FOREVER)
        assert any(best(text, each, FOREVER) != now for each in later)


def test_the_order_of_rows_at_the_same_time_is_the_patterns() -> None:
    model = Matching(compiled("a b", HERE).told(), 5)
    rows = [Row("k", 1, 0b10, (2,)), Row("k", 1, 0b01, (None,)), Row("k", 1, 0b01, (1,)), Row("k", 1, 0b10, (1,))]
    assert [row.values[0] for row in sorted(rows, key=order)] == [None, 1, 1, 2]
    assert model.epoch(rows, 0).matches == []
    (match,) = model.epoch([], 2).matches
    assert [row.values[0] for row, _ in match.rows] == [1, 1]


def test_in_order_of_arrival_a_row_is_taken_at_once_and_an_older_one_is_late() -> None:
    model = Matching(compiled("a b", HERE).told(), 5, arrival=True)
    assert model.epoch([Row("k", 3, 1)], 0).matches == []
    out = model.epoch([Row("k", 2, 2), Row("k", 4, 2)], 0)
    assert [(refused.row.time, refused.late) for refused in out.refused] == [(2, 1)]
    assert [(match.start, match.end) for match in out.matches] == [(3, 4)]
    assert [refused.late for refused in model.epoch([Row("j", 2, 1)], 9).refused] == [7]
