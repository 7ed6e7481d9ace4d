"""Aggregates that are about right: the exact answers, and how far from them an answer may be.

- distinct values: within the error in two of three, within twice that in nineteen of twenty; few values exactly.
- a quantile is one of the values. Its rank is the shares of values that are below it and not above it, and all between;
  the rank that was asked for is at most the error away from that. Of few values it is exact, as are the least and the
  greatest value.

      values 1 1 2 3 5                 |  1  1  |  2  |  3  |  5  |
      ranks of them                    0       0.4   0.6   0.8    1        the median (0.5) is 2

- a frequent value came at least as often as is told, and at most the error's share of all values more often. Whatever
  is not told came at most that much more often than the last one that is; if fewer were told than asked for, at most
  that often.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

Told = Sequence[tuple[Any, int]]


def quantile(values: Sequence[Any], rank: float, key: Callable[[Any], Any] | None = None) -> Any:
    """The least value that at least this share of all is not above; None of none."""
    if not values:
        return None
    place = math.ceil(rank * len(values) - 1e-9)
    return sorted(values, key=key)[max(1, place) - 1]


def rank_error(values: Sequence[Any], rank: float, told: Any) -> float:
    """How far the rank is from those of the value that was told."""
    assert told in values, f"{told} is none of the values"
    least = sum(1 for each in values if each < told)
    most = sum(1 for each in values if each <= told)
    place = max(1, math.ceil(rank * len(values) - 1e-9))
    return max(0, least + 1 - place, place - most) / len(values)


def frequent(values: Sequence[Any], k: int) -> list[tuple[Any, int]]:
    """The most frequent ones; of those that came as often, the least."""
    return sorted(Counter(values).items(), key=lambda each: (-each[1], each[0]))[:k]


def frequent_faults(values: Sequence[Any], k: int, error: float, told: Told) -> list[str]:
    """What is wrong with values that were told as the most frequent."""
    counts, allowed = Counter(values), error * len(values)
    found = [f"{value}: {count} of {counts[value]}" for value, count in told
             if not counts[value] - allowed <= count <= counts[value]]  # fmt: skip
    if [*told] != sorted(told, key=lambda each: (-each[1], each[0])) or len({value for value, _ in told}) < len(told):
        found.append("not in order")
    least = told[-1][1] if len(told) == k else 0
    known = {value for value, _ in told}
    found += [
        f"{value} is missing" for value, count in counts.items() if value not in known and count > least + allowed
    ]
    return found
