"""Aggregates that are about right, in little state: how many different values, values at ranks, frequent values.

What they hold is small however many rows there are, and what several parts hold can be put together, so they work over
windows of every kind. `error` says how wrong they may be, and thereby how much they hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millrace.errors import OptionInvalid, Where
from millrace.flow.aggregates import Aggregate
from millrace.flow.time import Duration
from millrace.kernel.sketches import Sketch, size_of

if TYPE_CHECKING:
    from pyspark.sql import Column

# With less the state of one window would be larger than a message may be; with more the answer means little.
_LEAST_ERROR = {"approx_distinct": 0.004, "quantile": 0.0005, "quantiles": 0.0005, "frequent": 0.0001}
_MOST_ERROR = 0.25


def approx_distinct(of: Column | str, *, error: float = 0.02, over: Duration | None = None) -> Aggregate:
    """About how many different values, of any type: off by less than `error` in two windows of three, by less than
    twice that in nineteen of twenty. Some hundred values are counted exactly."""
    return Aggregate("approx_distinct", of, over, error=error)


def quantile(of: Column | str, rank: float, *, error: float = 0.01) -> Aggregate:
    """The value that a share `rank` of all values is not above, 0.5 for the median. It is one of the values; its rank
    is off by less than `error` in 99 of 100 windows. The least (0) and the greatest (1) are exact."""
    return Aggregate("quantile", of, error=error, ranks=(rank,))


def quantiles(of: Column | str, ranks: Sequence[float], *, error: float = 0.01) -> Aggregate:
    """As `quantile`, for several ranks: an array in their order."""
    return Aggregate("quantiles", of, error=error, ranks=tuple(ranks))


def frequent(of: Column | str, k: int, *, error: float = 0.01) -> Aggregate:
    """The `k` most frequent values, as an array of structs of `value` and `count`, the most frequent first. A value
    came at least `count` times, and at most `error` of all rows more; one that came more often is not missed."""
    return Aggregate("frequent", of, most=k, error=error)


def sketch_of(operator: str, name: str, aggregate: Aggregate, where: Where) -> Sketch | None:
    """How large it has to be for its error, and what it is asked; None of an exact aggregate."""
    if aggregate.kind not in _LEAST_ERROR:
        return None

    def refuse(option: str, given: object, remedy: str) -> OptionInvalid:
        return OptionInvalid(name=operator, option=f"{name}'s {option}", given=given, remedy=remedy, where=where)

    least, error = _LEAST_ERROR[aggregate.kind], aggregate.error
    if not _is_number(error) or not least <= error <= _MOST_ERROR:
        raise refuse("error", error, f"a number from {least} to {_MOST_ERROR}: 0.01 is one in a hundred")
    if aggregate.kind in ("quantile", "quantiles"):
        wrong = [rank for rank in aggregate.ranks if not _is_number(rank) or not 0 <= rank <= 1]
        if wrong or not aggregate.ranks:
            raise refuse("ranks", wrong[0] if wrong else "none", "from 0 (the least value) to 1 (the greatest)")
    if aggregate.kind == "frequent":
        most = math.floor(1 / error)
        if type(aggregate.most) is not int or not 1 <= aggregate.most <= most:
            remedy = f"a whole number from 1 to {most}: with an error of {error} no more are told apart"
            raise refuse("k", aggregate.most, remedy)
    return Sketch(size_of(aggregate.kind, error), tuple(float(rank) for rank in aggregate.ranks), aggregate.most)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)
