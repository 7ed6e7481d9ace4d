"""Aggregates: what is counted, summed, compared of a group of rows. One definition for the kernel, for Spark's own
operators, and for the model.

`mr.count()` counts rows, `mr.count(condition)` those for which it is true; the others look at a column (its name or an
expression) and leave out nulls. `over` is for `mr.lookback`, whose aggregates each have an interval of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from millrace.errors import OptionInvalid, Where
from millrace.flow.time import Duration

if TYPE_CHECKING:
    from pyspark.sql import Column

Kind: TypeAlias = Literal[
    "count", "sum", "avg", "min", "max", "first", "last", "distinct", "last_n", "distance", "speed",
    "approx_distinct", "quantile", "quantiles", "frequent",
]  # fmt: skip

# Those that every operator has, those that `mr.lookback` alone has, and those that it does not have.
PLAIN = ("count", "sum", "avg", "min", "max", "first", "last", "distinct")
TRAILING = ("last_n", "distance", "speed")
WHOLE = ("quantile", "quantiles", "frequent")


@dataclass(frozen=True, eq=False)
class Aggregate:
    """`of` is a column's name or an expression; None counts every row. Of a position it is the latitude, and `beside`
    the longitude. `most` is how many values a `last_n` or a `frequent` gives. `error` and `ranks` are of sketches."""

    kind: Kind
    of: Column | str | None = None
    over: Duration | None = None
    beside: Column | str | None = None
    most: int = 0
    error: float = 0.0
    ranks: tuple[float, ...] = ()


def count(condition: Column | str | None = None, *, over: Duration | None = None) -> Aggregate:
    """How many rows; with a condition, for how many it is true."""
    return Aggregate("count", condition, over)


def sum(of: Column | str, *, over: Duration | None = None) -> Aggregate:  # noqa: A001
    """The sum: of integers a long, of decimals a decimal with ten more digits, otherwise a double."""
    return Aggregate("sum", of, over)


def avg(of: Column | str, *, over: Duration | None = None) -> Aggregate:
    """The mean: of decimals a decimal with four more digits, otherwise a double."""
    return Aggregate("avg", of, over)


def min(of: Column | str, *, over: Duration | None = None) -> Aggregate:  # noqa: A001
    return Aggregate("min", of, over)


def max(of: Column | str, *, over: Duration | None = None) -> Aggregate:  # noqa: A001
    return Aggregate("max", of, over)


def first(of: Column | str, *, over: Duration | None = None) -> Aggregate:
    """The value of the earliest event; of several at the same time, the least."""
    return Aggregate("first", of, over)


def last(of: Column | str, *, over: Duration | None = None) -> Aggregate:
    """The value of the latest event; of several at the same time, the greatest."""
    return Aggregate("last", of, over)


def distinct(of: Column | str, *, over: Duration | None = None) -> Aggregate:
    """How many different values, exactly: all of them are held until the window is over."""
    return Aggregate("distinct", of, over)


def last_n(of: Column | str, n: int, *, over: Duration | None = None) -> Aggregate:
    """The values of the latest `n` events that have one (100 at most), as an array, the oldest in front; at the same
    time the least."""
    return Aggregate("last_n", of, over, most=n)


def distance(latitude: Column | str, longitude: Column | str, *, over: Duration | None = None) -> Aggregate:
    """Kilometres from each event to the next, added up; of one event 0. Events without a position do not count, and
    those at the same time are taken in the order of latitude and longitude."""
    return Aggregate("distance", latitude, over, beside=longitude)


def speed(latitude: Column | str, longitude: Column | str, *, over: Duration | None = None) -> Aggregate:
    """Kilometres an hour from the event before to this one; null where none is. The event before is the latest one that
    happened earlier and has a position."""
    return Aggregate("speed", latitude, over, beside=longitude)


def checked(operator: str, aggregates: Mapping[str, object], where: Where) -> dict[str, Aggregate]:
    """At least one, each under a name of its own."""
    trailing = operator == "lookback"
    if not aggregates:
        example = 'views=mr.count(over="10 minutes")' if trailing else "views=mr.count()"
        remedy = f"name at least one, for example {example}"
        raise OptionInvalid(name=operator, option="aggregates", given="none", remedy=remedy, where=where)
    found: dict[str, Aggregate] = {}
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            remedy = "an aggregate, for example mr.count() or mr.sum('amount')"
            raise OptionInvalid(name=operator, option=name, given=aggregate, remedy=remedy, where=where)
        if trailing and aggregate.kind in WHOLE:
            remedy = "only windows and sessions have it: here it would depend on how a key's events happen to be kept"
            raise OptionInvalid(name=operator, option=name, given=f"mr.{aggregate.kind}", remedy=remedy, where=where)
        if trailing and aggregate.over is None:
            remedy = 'say how far back it looks: over="10 minutes"'
            raise OptionInvalid(name=operator, option=name, given=f"mr.{aggregate.kind}", remedy=remedy, where=where)
        if not trailing and (aggregate.over is not None or aggregate.kind in TRAILING):
            remedy = f"only mr.lookback has mr.{aggregate.kind}"
            if aggregate.over is not None:
                remedy = f"leave its `over` out: it is over the {operator}; only mr.lookback looks back from each event"
            raise OptionInvalid(name=operator, option=name, given=f"mr.{aggregate.kind}", remedy=remedy, where=where)
        found[name] = aggregate
    return found
