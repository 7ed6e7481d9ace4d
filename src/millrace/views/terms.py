"""Expressions of a view, resolved and typed: what is computed, in PostgreSQL's sense, whoever computes it.

`values.py` computes them in Python and `columns.py` makes Spark's columns of them. Every conversion is written out, so
that neither has to know PostgreSQL's rules about which type meets which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import total_ordering
from typing import Any, TypeAlias

from millrace.views.types import BOOLEAN, TIMESTAMPTZ, Type


@total_ordering
@dataclass(frozen=True)
class Endless:
    """A day or moment that is later than all others, or earlier."""

    later: bool

    def __lt__(self, other: object) -> bool:
        return not self.later and self != other


@dataclass(frozen=True)
class Ref:
    """A column, by the name that is its own in the whole plan."""

    column: str
    type: Type

    def __str__(self) -> str:
        return self.column


@dataclass(frozen=True)
class Value:
    """A constant; None is null. Of a type as Python has it: int, Decimal, float, str, bool, date, datetime, bytes; or
    Endless."""

    value: Any
    type: Type

    def __str__(self) -> str:
        return "null" if self.value is None else f"{self.value!s}" if self.type.is_number else repr(self.value)


@dataclass(frozen=True)
class Call:
    """An operation by its name, as `values.py` lists them; `extra` are constants that belong to it."""

    name: str
    args: tuple[Term, ...]
    type: Type
    extra: tuple[Any, ...] = ()

    def __str__(self) -> str:
        extra = [str(each) for each in self.extra]
        if self.name == "cast":
            extra = [str(self.type)]
        return f"{self.name}({', '.join([*map(str, self.args), *extra])})"


Term: TypeAlias = Ref | Value | Call

TRUE = Value(True, BOOLEAN)
# The time that a view is true of. It is in no plan: conditions with it become `since` and `until` (`spans.py`).
NOW = Call("now", (), TIMESTAMPTZ)


def refs(term: Term) -> Iterator[Ref]:
    if isinstance(term, Ref):
        yield term
    elif isinstance(term, Call):
        for each in term.args:
            yield from refs(each)


def columns(term: Term) -> frozenset[str]:
    return frozenset(ref.column for ref in refs(term))


def replaced(term: Term, by: Mapping[str, Term]) -> Term:
    """With other terms in place of columns."""
    if isinstance(term, Ref):
        return by.get(term.column, term)
    if isinstance(term, Call):
        return Call(term.name, tuple(replaced(each, by) for each in term.args), term.type, term.extra)
    return term


def conjuncts(term: Term | None) -> list[Term]:
    if term is None or term == TRUE:
        return []
    if isinstance(term, Call) and term.name == "and":
        return [each for part in term.args for each in conjuncts(part)]
    return [term]


def all_of(terms: list[Term]) -> Term | None:
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else Call("and", tuple(terms), BOOLEAN)


def cast(term: Term, type_: Type) -> Term:
    if term.type == type_:
        return term
    if isinstance(term, Value):
        if term.value is None:
            return Value(None, type_)
        if term.type.is_whole and type_.is_whole and type_.kind != "smallint":
            return Value(term.value, type_)
        if term.type.is_whole and type_.kind == "numeric":
            found = Decimal(term.value)
            if not type_.precision or abs(found) < Decimal(10) ** (type_.precision - type_.scale):
                return Value(found.quantize(Decimal(1).scaleb(-type_.scale)), type_)
    return Call("cast", (term,), type_)
