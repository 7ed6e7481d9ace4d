"""A flow's figures over time, as charts take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from millrace.console.histories import PHASE_WORDS, RATE_S, History, Point


@dataclass(frozen=True)
class Series:
    """A flow's figures over time, as charts take them: for each look its time in ms and what was seen then."""

    rows_in: list[tuple[float, float]]
    rows_out: list[tuple[float, float]]
    gap_s: list[tuple[float, float]]
    state_rows: list[tuple[float, float]]
    state_bytes: list[tuple[float, float]]
    late: list[tuple[float, float]]
    dead: list[tuple[float, float]]
    phases_ms: dict[str, list[tuple[float, float]]]


def series(history: History) -> Series:
    made = Series([], [], [], [], [], [], [], {word: [] for word in PHASE_WORDS})
    lately: deque[Point] = deque()  # those over which a rate is measured: epochs come in jumps
    for before, point in pairwise(list(history.points)):
        at_ms = point.at * 1_000
        if point.run != before.run or point.at <= before.at:
            lately.clear()
            continue
        lately.append(before)
        while point.at - lately[0].at > RATE_S and len(lately) > 1:
            lately.popleft()
        first, took_s = lately[0], point.at - lately[0].at
        made.rows_in.append((at_ms, max(point.rows_in - first.rows_in, 0) / took_s))
        if point.rows_out is not None:
            made.rows_out.append((at_ms, max(point.rows_out - (first.rows_out or 0), 0) / took_s))
        made.late.append((at_ms, point.late))
        made.dead.append((at_ms, point.dead))
        if point.gap_s is not None:
            made.gap_s.append((at_ms, point.gap_s))
        if point.epoch is None:
            continue
        made.state_rows.append((at_ms, point.state_rows))
        made.state_bytes.append((at_ms, point.state_bytes))
        if point.epoch != before.epoch:
            for word, spent_ms in zip(PHASE_WORDS, point.phases_ms, strict=True):
                made.phases_ms[word].append((at_ms, spent_ms))
    return made


def thinned(line: Sequence[tuple[float, float]], most: int = 300) -> list[tuple[float, float]]:
    """At most so many points, evenly taken, the newest among them."""
    step = -(-len(line) // most) or 1
    return list(line[::-1][::step][::-1])
