"""A SELECT behind its FROM and WHERE: groups, the list of what is shown, DISTINCT, the first rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

from sqlglot import exp

from millrace.views import spans, types
from millrace.views.aggregates import Measures, keyed
from millrace.views.arrange import arranged, filtered, grouped
from millrace.views.dialect import CALLED
from millrace.views.expressions import AGGREGATES, Resolver, Scope, folded, settle
from millrace.views.ordering import limit_of, ordering, position
from millrace.views.refusal import only, refuse
from millrace.views.terms import Call, Ref, Term
from millrace.views.tree import First, Node, Once, Ordered, Projected, Query
from millrace.views.types import BIGINT, TEXT

UNNAMED = "?column?"


@dataclass
class Body:
    """FROM and WHERE of a SELECT: the rows, what names them, and conditions that need the query around."""

    tree: Node
    scope: Scope
    outer: list[Term] = field(default_factory=list)


class Queries(Protocol):
    """What reads the queries inside this one."""

    def fresh(self, letter: str) -> str: ...

    def scalar(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, Query], items: list[Node]) -> Term: ...


class Stage:
    def __init__(self, reader: Queries, node: exp.Select, body: Body, ctes: Mapping[str, Query]) -> None:
        self.reader, self.node, self.ctes = reader, node, ctes
        self.tree, self.scope = body.tree, body.scope
        self.items: list[Node] = []
        self.groups: dict[Term, Ref] = {}
        self.is_grouped = bool(node.args.get("group") or node.args.get("having")) or has_aggregate(node)

    def query(self) -> Query:
        rows: list[Node] = []
        inside = Resolver(self.scope, subquery=lambda each: self.reader.scalar(each, self.scope, self.ctes, rows))
        resolver = Resolver(
            self.scope, subquery=lambda each: self.reader.scalar(each, self.scope, self.ctes, self.items)
        )
        self.measures = Measures(inside, self.reader.fresh)
        shown_as = self.expanded()
        if self.is_grouped:
            resolver.aggregate = self.measures.term
            self._group(inside, shown_as)
        numbered = {name: each for name, each in shown_as if isinstance(each, exp.Window)}
        terms = [
            (name, self._numbered(each, resolver) if isinstance(each, exp.Window) else self._term(resolver, each))
            for name, each in shown_as
        ]
        having = self.node.args.get("having")
        asked = []
        if having is not None:
            asked = [self._regrouped(having.this, each) for each in spans.conditions(resolver, having.this)]
        distinct = self.node.args.get("distinct")
        on = self._distinct_on(distinct, resolver, terms)
        order = self._ordered(resolver, terms, on)
        self._joined(rows, asked)
        if len(numbered) > 1:
            refuse(self.node, "more than one row_number() is not supported", "number in nested subqueries")
        for name, term in terms:
            if isinstance(term, Numbering):
                self.tree = First(self.tree, term.by, term.order, None, term.column, term.written)
                terms = [(each, Ref(term.column, BIGINT) if each == name else other) for each, other in terms]
        return self._shown(
            [(name, term) for name, term in terms if not isinstance(term, Numbering)], order, distinct, on
        )

    def _term(self, resolver: Resolver, node: exp.Expression) -> Term:
        return settle(node, self._regrouped(node, resolver.term(node)), TEXT)

    def _joined(self, rows: list[Node], asked: list[Term]) -> None:
        """Groups of the rows, with the values of subqueries beside them."""
        if rows:
            self.tree = arranged([self.tree, *rows], [])
        if self.is_grouped:
            by = tuple((ref.column, keyed(term)) for term, ref in self.groups.items())
            self.tree = grouped(self.tree, by, self.measures.found, self.reader.fresh)
        self.tree = arranged([self.tree, *self.items], asked) if self.items else filtered(self.tree, asked)

    # the list

    def expanded(self) -> list[tuple[str, exp.Expression]]:
        """What is shown, by name; * is all columns."""
        found: list[tuple[str, exp.Expression]] = []
        for each in self.node.expressions:
            if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
                only(each, "this", "table")
                if isinstance(each, exp.Column):
                    only(each.this)
                found += self._star(each)
            elif isinstance(each, exp.Alias):
                found.append((folded(each.args["alias"]), each.this))
            else:
                found.append((_named(each), each))
        return found

    def _star(self, node: exp.Expression) -> list[tuple[str, exp.Expression]]:
        table = folded(node.args["table"]) if node.args.get("table") else ""
        found: list[tuple[str, exp.Expression]] = []
        if not table:
            found += [(name, _reference(name)) for name in self.scope.merged]
        for source in self.scope.sources:
            if table in ("", source.alias):
                found += [
                    (name, _reference(name, source.alias))
                    for name, _ in source.columns
                    if table or (source.alias, name) not in self.scope.hidden
                ]
        if not found:
            refuse(node, f"there is no table {table!r} here")
        return found

    # groups

    def _group(self, resolver: Resolver, shown_as: list[tuple[str, exp.Expression]]) -> None:
        group = self.node.args.get("group")
        if group is None:
            return
        only(group, "expressions")
        parts = [
            each for part in group.expressions for each in (part.expressions if isinstance(part, exp.Tuple) else [part])
        ]
        for each in parts:
            if isinstance(each, exp.Literal) and not each.is_string:
                each = position(each, [node for _, node in shown_as])
            elif isinstance(each, exp.Literal):
                refuse(each, "a constant in GROUP BY", "leave it out")
            elif isinstance(each, exp.Column) and not each.args.get("table") and not self._is_column(each):
                each = next((node for name, node in shown_as if name == folded(each.this)), each)
            if isinstance(each, exp.GroupingSets | exp.Rollup | exp.Cube):
                refuse(
                    each, "GROUPING SETS, ROLLUP and CUBE are not supported in a view", "write a UNION ALL of several"
                )
            term = settle(each, Resolver(self.scope, subquery=resolver.subquery).term(each), TEXT)
            if not term.type.is_compared:
                refuse(each, f"{term.type} has no comparison in a view")
            self.groups.setdefault(term, Ref(self.reader.fresh("g"), term.type))

    def _is_column(self, node: exp.Column) -> bool:
        name = folded(node.this)
        return name in self.scope.merged or any(
            name == known for each in self.scope.sources for known, _ in each.columns
        )

    def _regrouped(self, node: exp.Expression, term: Term) -> Term:
        """A term over a group's columns in place of its rows'."""
        if not self.is_grouped:
            return term
        if term in self.groups:
            return self.groups[term]
        if isinstance(term, Ref):
            if any(term.column == each.column for each in self.measures.found) or self._is_joined(term):
                return term
            if not self._depends(term):
                refuse(node, "it is neither in GROUP BY nor in an aggregate", "add it to GROUP BY, or take min() of it")
            return self.groups.setdefault(term, Ref(self.reader.fresh("g"), term.type))
        if isinstance(term, Call):
            return Call(term.name, tuple(self._regrouped(node, each) for each in term.args), term.type, term.extra)
        return term

    def _is_joined(self, ref: Ref) -> bool:
        return any(ref in item.columns for item in self.items)

    def _depends(self, ref: Ref) -> bool:
        """Whether the groups' key tells which row it is of."""
        for source in self.scope.sources:
            own = dict(source.columns)
            if source.key and ref in own.values():
                return all(own[name] in self.groups for name in source.key)
        return False

    # order

    def _ordered(self, resolver: Resolver, terms: list[Any], on: tuple[Term, ...]) -> list[Ordered]:
        """Which row of `on` is the first, its own order does not say: then that may be any."""
        order = self.node.args.get("order")
        meant = [(each, self._meant(each.this, resolver, terms)) for each in order.expressions] if order else []
        decides = any(term not in on for _, term in meant)
        return [Ordered(term, False, False) if decides and term in on else ordering(each, term) for each, term in meant]

    def _meant(self, node: exp.Expression, resolver: Resolver, terms: list[Any]) -> Any:
        """In ORDER BY and DISTINCT ON: a place in the list, a name in it, or else an expression of the rows."""
        if isinstance(node, exp.Literal) and not node.is_string:
            return position(node, [term for _, term in terms])
        if isinstance(node, exp.Column) and not node.args.get("table"):
            named = [term for name, term in terms if name == folded(node.this) and not isinstance(term, Numbering)]
            if named:
                if any(term != named[0] for term in named):
                    refuse(node, "two columns of the list have this name", "say which by its table, or rename one")
                return named[0]
        return self._term(resolver, node)

    def _numbered(self, node: exp.Expression, resolver: Resolver) -> Any:
        if not isinstance(node.this, exp.RowNumber):
            refuse(node, "window functions other than row_number() are not supported in a view")
        only(node, "this", "partition_by", "order", "over")
        order = node.args.get("order")
        if order is None:
            refuse(node, "row_number() without an order may be any", "write OVER (PARTITION BY … ORDER BY …)")
        by = tuple(keyed(self._term(resolver, each)) for each in node.args.get("partition_by") or [])
        ordered = tuple(ordering(each, self._term(resolver, each.this)) for each in order.expressions)
        return Numbering(self.reader.fresh("n"), by, ordered, node)

    def _distinct_on(self, distinct: exp.Expression | None, resolver: Resolver, terms: list[Any]) -> tuple[Term, ...]:
        on = distinct.args.get("on") if distinct is not None else None
        if on is None:
            return ()
        parts = on.expressions if isinstance(on, exp.Tuple) else [on.unnest()]
        return tuple(self._meant(each, resolver, terms) for each in parts)

    def _shown(
        self, terms: list[tuple[str, Any]], order: list[Ordered], distinct: exp.Expression | None, on: tuple[Term, ...]
    ) -> Query:
        """The projection, between what is ordered by columns that are not shown and what is shown once."""
        node = self.node
        limited = node.args.get("limit") is not None or node.args.get("offset") is not None
        if on:
            if limited:
                refuse(node, "DISTINCT ON with LIMIT is not supported", "put the DISTINCT ON in a subquery in FROM")
            if not order:
                refuse(node, "DISTINCT ON without ORDER BY may be any row", "say which with ORDER BY")
            # What is ordered by twice is ordered by once.
            order = [each for place, each in enumerate(order) if each.term not in {one.term for one in order[:place]}]
            leading = list(takewhile(lambda each: each.term in on, order))
            rest = order[len(leading) :]
            if any(each.term in on for each in rest) or (rest and {each.term for each in leading} != set(on)):
                refuse(node, "ORDER BY begins with other expressions than those of DISTINCT ON", "name those first")
            self.tree = First(self.tree, tuple(map(keyed, on)), tuple(rest or order), 1)
            order = []
        elif order or limited:
            count = limit_of(node)
            if distinct is None:
                self.tree = First(self.tree, (), tuple(order), count)
        fields = tuple((self.reader.fresh("c"), term) for _, term in terms)
        tree: Node = Projected(self.tree, fields)
        if distinct is not None and not on:
            tree = self._once(tree, order, {term: Ref(name, term.type) for name, term in fields})
        return Query(
            tree, tuple((name, Ref(own, term.type)) for (name, _), (own, term) in zip(terms, fields, strict=True))
        )

    def _once(self, tree: Node, order: list[Ordered], shown: Mapping[Term, Ref]) -> Node:
        for ref in tree.columns:
            if not ref.type.is_compared:
                refuse(self.node, f"{ref.type} has no comparison in a view", "leave out DISTINCT")
        tree = Once(tree)
        if not order:
            return tree
        if any(each.term not in shown for each in order):
            refuse(self.node, "ORDER BY of a SELECT DISTINCT needs columns that it shows")
        by = tuple(Ordered(shown[each.term], each.descending, each.nulls_first) for each in order)
        return First(tree, (), by, limit_of(self.node))


@dataclass(frozen=True)
class Numbering:
    """A row_number() on its way to becoming a column."""

    column: str
    by: tuple[Term, ...]
    order: tuple[Ordered, ...]
    written: exp.Expression

    @property
    def type(self) -> types.Type:
        return BIGINT


def has_aggregate(node: exp.Expression) -> bool:
    """In the SELECT itself, and not in one below it."""
    parts = [*node.expressions, node.args.get("having"), node.args.get("order")]
    return any(_is_aggregate(each) for part in parts if part is not None for each in _own(part))


def _is_aggregate(node: exp.Expression) -> bool:
    return isinstance(node, AGGREGATES) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == "every")


def _is_query(node: Any) -> bool:
    return isinstance(node, exp.Query | exp.Subquery)


def _own(node: exp.Expression) -> Any:
    return (each for each in node.walk(prune=_is_query) if not isinstance(each, exp.Window))


def _reference(name: str, table: str = "") -> exp.Column:
    owner = exp.to_identifier(table, quoted=True) if table else None
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=owner)


_CALLED: dict[Any, str] = {
    exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max", exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or", exp.Coalesce: "coalesce", exp.ArrayAgg: "array_agg",
}  # fmt: skip


def _named(node: exp.Expression) -> str:
    """As PostgreSQL names a column that has no name of its own, where that is simple."""
    if isinstance(node, exp.Column):
        return folded(node.this)
    if isinstance(node, exp.Cast | exp.Paren | exp.Filter):
        return _named(node.this)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return "case" if default is None or _is_nameless(default) else _named(default)
    return _CALLED.get(type(node), UNNAMED)


_NAMELESS = (exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Not, exp.In, exp.Between, exp.Binary)


def _is_nameless(node: Any) -> bool:
    """Whether nothing in it has a name: a constant, or an operator."""
    node = node.unnest()
    while isinstance(node, exp.Cast):
        node = node.this.unnest()
    return isinstance(node, _NAMELESS) and not isinstance(node, exp.Collate) and not node.meta.get(CALLED)
