"""Random expressions over the columns of a source, as text."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.views.families import FAMILY, LITERALS
from tests.views.worlds import LABELS, Made

COMPARED = ("=", "<>", "<", "<=", ">", ">=")


@dataclass
class Source:
    """What is in FROM: SQL, and columns as (reference, name, family). `ids` together tell its rows apart."""

    sql: str
    columns: list[tuple[str, str, str]]
    ids: list[str]


@dataclass
class Query:
    sql: str
    used: set[str] = field(default_factory=set)


Form: TypeAlias = "Callable[[Any, Source, int], str]"


class Expressions:
    """Of a query: `forms` are those of each family."""

    def __init__(self, draw: random.Random, tables: list[Made], forms: Mapping[str, Sequence[Form]]) -> None:
        self.draw, self.tables, self.forms = draw, tables, forms
        self.used: set[str] = set()
        # Families of types that not every world has; enums, JSON and bytes come as columns alone.
        self._more = {FAMILY[type_] for each in tables for type_ in each.columns.values()} & set("teuyj")

    def family(self, usual: str, more: str, source: Source) -> str:
        """One of the usual families, or of those others that the source has."""
        own = {kind for _, _, kind in source.columns}
        found = [each for each in more if each in self._more and (each in own or each in "tu")]
        return self.draw.choice([*usual, *found])

    def of(self, family: str, source: Source, depth: int = 2) -> str:
        """An expression of a family over the columns of a source."""
        own = [reference for reference, _, kind in source.columns if kind == family]
        if family in "eyj":
            return self.draw.choice(own)
        if own and (self.draw.random() < 0.9 if depth <= 0 else self.draw.random() < 0.4):
            return self.draw.choice(own)
        if depth <= 0:
            return self.literal(family)
        made = self.draw.choice(self.forms[family])
        return made(self, source, depth - 1)

    def literal(self, family: str) -> str:
        return self.draw.choice(LITERALS[family])

    def _use(self, name: str, sql: str) -> str:
        self.used.add(name)
        return sql

    def condition(self, source: Source, depth: int = 2) -> str:
        return self.of("b", source, depth)

    def test(self, source: Source) -> str:
        """A condition that is true of some rows and not of others, mostly."""
        own = [(reference, kind) for reference, _, kind in source.columns if kind in "infdm"]
        if not own or self.draw.random() < 0.3:
            return self.condition(source)
        reference, family = self.draw.choice(own)
        if self.draw.random() < 0.2:
            return self._use("is null", f"({reference} IS NULL)")
        operator = self.draw.choice(("<>", "<=", ">", ">=", "<"))
        return self._use("comparison", f"({reference} {operator} {self.of(family, source, 0)})")

    def compared(self, source: Source, depth: int) -> str:
        family = self.family("iinnfsdmzcw", "teuy", source)
        left, right = self.of(family, source, depth), self.of(family, source, depth)
        if family in "ey":
            name = {"e": "enum", "y": "bytea"}[family]
            return self._use(f"comparison of {name}", f"({left} {self.draw.choice(('=', '<>'))} {right})")
        if family in "tu":
            self.used.add(f"comparison of {'time' if family == 't' else 'uuid'}")
        if family in "sc":
            operator = self.draw.choice(COMPARED)
            return self._use("text order", f'({left} {operator} {right} COLLATE "C")')
        return self._use("comparison", f"({left} {self.draw.choice(COMPARED)} {right})")

    def listed(self, source: Source, depth: int) -> str:
        family = self.family("inscd", "teu", source)
        no = self.draw.choice(("", "NOT "))
        if family == "e":
            labels = ", ".join(repr(each) for each in self.draw.sample(LABELS, 2))
            return self._use("enum in labels", f"({self.of('e', source, depth)} {no}IN ({labels}))")
        return self._use(
            "in list", f"({self.of(family, source, depth)} {no}IN ({self.literal(family)}, {self.literal(family)}))"
        )

    def between(self, source: Source, depth: int) -> str:
        family = self.family("infdm", "t", source)
        return self._use(
            "between",
            f"({self.of(family, source, depth)} BETWEEN {self.literal(family)} AND {self.of(family, source, depth)})",
        )

    def known(self, source: Source, depth: int) -> str:
        family = self.family("insbdfc", "teuyj", source)
        no = self.draw.choice(("", "NOT "))
        return self._use("is null", f"({self.of(family, source, depth)} IS {no}NULL)")

    def same(self, source: Source, depth: int) -> str:
        family = self.family("insdf", "teuy", source)
        no = self.draw.choice(("", "NOT "))
        return self._use(
            "distinct from", f"({self.of(family, source, depth)} IS {no}DISTINCT FROM {self.of(family, source, depth)})"
        )

    def connected(self, source: Source, depth: int) -> str:
        word = self.draw.choice(("AND", "OR"))
        return self._use(word.lower(), f"({self.condition(source, depth)} {word} {self.condition(source, depth)})")

    def negated(self, source: Source, depth: int) -> str:
        return self._use("not", f"(NOT {self.condition(source, depth)})")

    def labelled(self, source: Source, depth: int) -> str:
        if all(kind != "e" for _, _, kind in source.columns):
            return self.compared(source, depth)
        value, label = self.of("e", source, depth), repr(self.draw.choice(LABELS))
        case = f"(CASE {value} WHEN {label} THEN TRUE WHEN 'ok' THEN {self.condition(source, depth)} END)"
        return self._use(
            *self.draw.choice(
                (
                    ("enum and a label", f"({value} {self.draw.choice(('=', '<>'))} {label})"),
                    ("case of enum", case),
                    ("enum as text", f"({value}::text = {self.of('s', source, depth)})"),
                )
            )
        )

    def truth(self, source: Source, depth: int) -> str:
        return self._use(
            "is true",
            f"({self.condition(source, depth)} IS {self.draw.choice(('TRUE', 'FALSE', 'NOT TRUE', 'NOT FALSE'))})",
        )

    def like(self, source: Source, depth: int) -> str:
        pattern = self.draw.choice(("'a%'", "'%b%'", "'_'", "'%'", "'a_c'"))
        return self._use("like", f"({self.of('s', source, depth)} {self.draw.choice(('', 'NOT '))}LIKE {pattern})")
