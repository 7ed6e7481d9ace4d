"""The plan of a view as data: which tables it reads, and the steps that their signed rows take, one after the other.

The steps are those of a chain (`kernel/signed.py`). Only `Select` computes; all others name columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from millrace.views.terms import Term
from millrace.views.types import TIMESTAMPTZ, Type

# A table that no view names: its column `now` has the times that were, the last of which is the view's.
CLOCK = "#now"
CLOCK_COLUMNS = (("now", "c_now", TIMESTAMPTZ),)


@dataclass(frozen=True)
class Input:
    """A table that is read: for each column that is needed its name, what it is called in the chain, and its type."""

    relation: str
    columns: tuple[tuple[str, str, Type], ...]


@dataclass(frozen=True)
class Select:
    table: str
    columns: tuple[tuple[str, Term], ...]
    where: Term | None
    into: str

    def __str__(self) -> str:
        listed = ", ".join(name if str(term) == name else f"{term} as {name}" for name, term in self.columns)
        return f"{self.into} = select {listed} from {self.table}{'' if self.where is None else f' where {self.where}'}"


@dataclass(frozen=True)
class Copy:
    table: str
    into: str

    def __str__(self) -> str:
        return f"{self.into} = copy of {self.table}"


@dataclass(frozen=True)
class Union:
    tables: tuple[str, ...]
    into: str

    def __str__(self) -> str:
        return f"{self.into} = union of {', '.join(self.tables)}"


@dataclass(frozen=True)
class Join:
    left: str
    right: str
    on: tuple[tuple[str, str], ...]
    how: Literal["inner", "left", "full", "semi", "anti"]
    into: str

    def __str__(self) -> str:
        keys = " and ".join(f"{one} = {other}" for one, other in self.on) or "every row"
        return f"{self.into} = {self.left} {self.how} join {self.right} on {keys}"


@dataclass(frozen=True)
class Measure:
    name: str
    kind: str
    of: tuple[str, ...]
    order: tuple[tuple[str, bool, bool], ...] = ()

    def __str__(self) -> str:
        order = f" in the order of {_spoken(self.order)}" if self.order else ""
        return f"{self.kind}({', '.join(self.of) or '*'}{order}) as {self.name}"


def _spoken(order: tuple[tuple[str, bool, bool], ...]) -> str:
    return ", ".join(f"{name}{' desc' if down else ''}{' nulls first' if first else ''}" for name, down, first in order)


@dataclass(frozen=True)
class Aggregate:
    table: str
    by: tuple[str, ...]
    measures: tuple[Measure, ...]
    into: str

    def __str__(self) -> str:
        told = ", ".join(map(str, self.measures))
        return f"{self.into} = {told or 'groups'} of {self.table} by ({', '.join(self.by)})"


@dataclass(frozen=True)
class Distinct:
    table: str
    into: str

    def __str__(self) -> str:
        return f"{self.into} = distinct {self.table}"


@dataclass(frozen=True)
class Top:
    """`order` has a column, whether the greatest is first, and whether nulls are."""

    table: str
    by: tuple[str, ...]
    order: tuple[tuple[str, bool, bool], ...]
    count: int
    number: str | None
    into: str

    def __str__(self) -> str:
        by = ", ".join(self.by)
        return f"{self.into} = first {self.count} of {self.table} by ({by}) in the order of {_spoken(self.order)}"


@dataclass(frozen=True)
class Span:
    """The rows that are in by the time that is: from each of `since` on, and before each of `until`. These have a
    column and µs that are added to it; where one is null, a row is never in."""

    table: str
    clock: str
    since: tuple[tuple[str, int], ...]
    until: tuple[tuple[str, int], ...]
    into: str

    def __str__(self) -> str:
        told = [f"now >= {_later(each)}" for each in self.since] + [f"now < {_later(each)}" for each in self.until]
        return f"{self.into} = {self.table} while {' and '.join(told)}"


def _later(bound: tuple[str, int]) -> str:
    column, us = bound
    return f"{column} {'-' if us < 0 else '+'} {abs(us)} us" if us else column


@dataclass(frozen=True)
class Consolidate:
    table: str
    into: str

    def __str__(self) -> str:
        return f"{self.into} = consolidated {self.table}"


Step: TypeAlias = Select | Copy | Union | Join | Aggregate | Distinct | Top | Span | Consolidate


@dataclass(frozen=True)
class Plan:
    """`output` is the table whose rows are the view's; `nudged` whether a row is there also of nothing. `warnings` are
    sentences about what it will cost."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    output: str
    columns: tuple[tuple[str, Type], ...]
    nudged: bool
    warnings: tuple[str, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether it changes as time passes."""
        return any(each.relation == CLOCK for each in self.inputs)

    def __str__(self) -> str:
        reads = [f"{each.relation} ({', '.join(name for name, _, _ in each.columns)})" for each in self.inputs]
        return "\n".join([f"read {', '.join(reads)}", *map(str, self.steps)])
