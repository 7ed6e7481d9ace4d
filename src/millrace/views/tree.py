"""A view's query as a tree of relations. Every column has a name of its own in the whole tree, so that no rename is
needed where two tables meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlglot.expressions import Expression

from millrace.views.terms import Call, Ref, Term
from millrace.views.types import BIGINT, ROW, Type

Key: TypeAlias = tuple[Term, Term]


@dataclass(frozen=True)
class Measured:
    """What is told of a group, as the kernel has it: count, sum, avg, min, max, distinct or array. `only` says of which
    rows, where nulls cannot say it (`arrange.grouped`)."""

    column: str
    kind: str
    of: tuple[Term, ...]
    type: Type
    order: tuple[Ordered, ...] = ()
    only: Term | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        return (*self.of, *(each.term for each in self.order))


@dataclass(frozen=True)
class Ordered:
    term: Term
    descending: bool
    nulls_first: bool


# Compared by identity: a shared part of the tree is the same object.
@dataclass(frozen=True, eq=False)
class Scan:
    relation: str
    fields: tuple[tuple[str, Ref], ...]

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(ref for _, ref in self.fields)


@dataclass(frozen=True, eq=False)
class Filtered:
    input: Node
    condition: Term

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.input.columns


@dataclass(frozen=True, eq=False)
class Projected:
    input: Node
    fields: tuple[tuple[str, Term], ...]

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(name, term.type) for name, term in self.fields)


@dataclass(frozen=True, eq=False)
class Joined:
    """`on` are pairs of terms that have to be equal, `rest` is what else has to be true of a pair of rows."""

    left: Node
    right: Node
    how: Literal["inner", "left", "full"]
    on: tuple[Key, ...] = ()
    rest: tuple[Term, ...] = ()

    @property
    def columns(self) -> tuple[Ref, ...]:
        return (*self.left.columns, *self.right.columns)


@dataclass(frozen=True, eq=False)
class Found:
    """Rows of the left that have a partner; with `anti`, that have none."""

    left: Node
    right: Node
    on: tuple[Key, ...]
    rest: tuple[Term, ...]
    anti: bool

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.left.columns


@dataclass(frozen=True, eq=False)
class Grouped:
    input: Node
    by: tuple[tuple[str, Term], ...]
    measures: tuple[Measured, ...]

    @property
    def columns(self) -> tuple[Ref, ...]:
        keys = (Ref(name, term.type) for name, term in self.by)
        return (*keys, *(Ref(each.column, each.type) for each in self.measures))


@dataclass(frozen=True, eq=False)
class Once:
    input: Node

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.input.columns


@dataclass(frozen=True, eq=False)
class Unified:
    """All rows of several, whose columns stand in the same order; named as `names` says."""

    inputs: tuple[Node, ...]
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Ref, ...]:
        return tuple(Ref(name, ref.type) for name, ref in zip(self.names, self.inputs[0].columns, strict=True))


@dataclass(frozen=True, eq=False)
class First:
    """The first `count` rows of each group, in an order; `number` is a column for a row's place from 1 on, and
    `written` what asks for it."""

    input: Node
    by: tuple[Term, ...]
    order: tuple[Ordered, ...]
    count: int | None
    number: str | None = None
    written: Expression | None = None

    @property
    def columns(self) -> tuple[Ref, ...]:
        return (*self.input.columns, *([Ref(self.number, BIGINT)] if self.number else []))


@dataclass(frozen=True, eq=False)
class Shared:
    """What several places read."""

    input: Node

    @property
    def columns(self) -> tuple[Ref, ...]:
        return self.input.columns


Node: TypeAlias = Scan | Filtered | Projected | Joined | Found | Grouped | Once | Unified | First | Shared


@dataclass(frozen=True)
class Query:
    """A tree, and which of its columns are shown under which names."""

    tree: Node
    outputs: tuple[tuple[str, Ref], ...]


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Scan):
        return ()
    if isinstance(node, Joined | Found):
        return node.left, node.right
    return node.inputs if isinstance(node, Unified) else (node.input,)


def walk(node: Node) -> Iterator[Node]:
    """Every node as often as it is reached."""
    yield node
    for each in children(node):
        yield from walk(each)


def names(node: Node) -> frozenset[str]:
    return frozenset(ref.column for ref in node.columns)


def row(terms: tuple[Term, ...]) -> Term:
    """Several values as one, which is never null: rows that are the same, nulls and all, are equal."""
    return Call("row", terms, ROW)


def single(node: Node) -> bool:
    """Whether it has one row at most, whatever its tables hold."""
    if isinstance(node, Grouped):
        return not node.by
    if isinstance(node, First):
        return not node.by and node.count == 1
    if isinstance(node, Joined | Found):
        return single(node.left) and (isinstance(node, Found) or single(node.right))
    return isinstance(node, Filtered | Projected | Once | Shared) and single(node.input)
