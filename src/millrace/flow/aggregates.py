"""Aggregates: what is counted, summed, compared of a group of rows. One definition for the kernel, for Spark's own
operators, and for the model.

`mr.count()` counts rows, `mr.count(condition)` those for which it is true; the others look at a column (its name or an
expression) and leave out nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from millrace.errors import OptionInvalid, Where

if TYPE_CHECKING:
    from pyspark.sql import Column

Kind: TypeAlias = Literal["count", "sum", "avg", "min", "max", "first", "last", "distinct"]


@dataclass(frozen=True, eq=False)
class Aggregate:
    """`of` is a column's name or an expression; None counts every row."""

    kind: Kind
    of: Column | str | None = None


def count(condition: Column | str | None = None) -> Aggregate:
    """How many rows; with a condition, for how many it is true."""
    return Aggregate("count", condition)


def sum(of: Column | str) -> Aggregate:  # noqa: A001
    """The sum: of integers a long, of decimals a decimal with ten more digits, otherwise a double."""
    return Aggregate("sum", of)


def avg(of: Column | str) -> Aggregate:
    """The mean: of decimals a decimal with four more digits, otherwise a double."""
    return Aggregate("avg", of)


def min(of: Column | str) -> Aggregate:  # noqa: A001
    return Aggregate("min", of)


def max(of: Column | str) -> Aggregate:  # noqa: A001
    return Aggregate("max", of)


def first(of: Column | str) -> Aggregate:
    """The value of the earliest event; of several at the same time, the least."""
    return Aggregate("first", of)


def last(of: Column | str) -> Aggregate:
    """The value of the latest event; of several at the same time, the greatest."""
    return Aggregate("last", of)


def distinct(of: Column | str) -> Aggregate:
    """How many different values, exactly: all of them are held until the window is over."""
    return Aggregate("distinct", of)


def checked(operator: str, aggregates: Mapping[str, object], where: Where) -> dict[str, Aggregate]:
    """At least one, each under a name of its own."""
    if not aggregates:
        remedy = "name at least one, for example views=mr.count()"
        raise OptionInvalid(name=operator, option="aggregates", given="none", remedy=remedy, where=where)
    found: dict[str, Aggregate] = {}
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            remedy = "an aggregate, for example mr.count() or mr.sum('amount')"
            raise OptionInvalid(name=operator, option=name, given=aggregate, remedy=remedy, where=where)
        found[name] = aggregate
    return found
