"""SQL in PostgreSQL's dialect, resolved against the tables it reads: a tree of relations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from sqlglot import exp

from millrace.errors import nearest
from millrace.views import functions, spans, types
from millrace.views.aggregates import Measures, keyed
from millrace.views.arrange import arranged, found, paired
from millrace.views.expressions import Resolver, Scope, Source, brought_together, folded, in_one_column, settle
from millrace.views.ordering import limit_of, ordering, position
from millrace.views.refusal import only, refuse
from millrace.views.stage import Body, Stage, has_aggregate
from millrace.views.statement import full_name
from millrace.views.terms import Call, Ref, Term, cast, columns
from millrace.views.tree import (
    First,
    Found,
    Grouped,
    Joined,
    Node,
    Once,
    Projected,
    Query,
    Scan,
    Shared,
    Unified,
    names,
    row,
    walk,
)
from millrace.views.types import BIGINT, TEXT, Type

assert functions  # which the resolver knows from being imported


@dataclass(frozen=True)
class Relation:
    """A table, stream or view that can be read: PostgreSQL's types by column, and what tells its rows apart."""

    name: str
    columns: Mapping[str, Type]
    key: tuple[str, ...] = ()


def resolved(query: exp.Expression, relations: Mapping[str, Relation]) -> Query:
    return Reader(relations).query(query, Scope(), {})


def _plain(name: str) -> str:
    """Another for each name, of letters that Spark takes without quotes; it takes capitals and small ones for alike."""
    return re.sub("[^a-z0-9]", lambda odd: "__" if odd[0] == "_" else f"_{ord(odd[0]):x}_", name)


class Reader:
    """Reads queries; `ctes` are the queries that WITH named."""

    def __init__(self, relations: Mapping[str, Relation]) -> None:
        self.relations = relations
        self._numbers, self._scans = count(1), count(1)

    def fresh(self, letter: str) -> str:
        return f"{letter}{next(self._numbers)}"

    def query(self, node: exp.Expression, outer: Scope, ctes: Mapping[str, Query]) -> Query:
        if node.args.get("with_") is not None:
            ctes = self._with(node.args["with_"], outer, ctes)
        if isinstance(node, exp.Subquery):
            only(node, "this", "with_", "order", "limit", "offset", "alias")
            if any(node.args.get(each) and node.this.args.get(each) for each in ("order", "limit")):
                refuse(node, "two ORDER BY or LIMIT of one query", "put the inner one in a subquery in FROM")
            return self._limited(node, self.query(node.this, outer, ctes))
        if isinstance(node, exp.Select):
            return self.select(node, outer, ctes)
        if isinstance(node, exp.Union | exp.Except | exp.Intersect):
            return self._limited(node, self._set(node, outer, ctes))
        refuse(node, f"{type(node).__name__.upper()} is not supported in a view")

    def _with(self, node: exp.Expression, outer: Scope, ctes: Mapping[str, Query]) -> dict[str, Query]:
        if node.args.get("recursive"):
            refuse(node, "WITH RECURSIVE is not supported in a view")
        known, own = dict(ctes), set[str]()
        written: Any = node.parent
        for cte in node.expressions:
            only(cte, "this", "alias", "materialized")
            inner = self.query(cte.this, outer, known)
            name, outputs = folded(cte.args["alias"].this), _renamed(cte, inner.outputs, cte.args["alias"])
            if name in own:
                refuse(cte, f"two queries of WITH are named {name!r}", "give one another name")
            own.add(name)
            # What is read once needs no copy, and its row_number() is limited where it is read.
            is_read_once = sum(full_name(each) == name for each in written.find_all(exp.Table)) == 1
            is_inside = is_read_once and any(
                isinstance(each, First) and each.count is None for each in walk(inner.tree)
            )
            known[name] = Query(inner.tree if is_inside else Shared(inner.tree), outputs)
        return known

    # FROM

    def body(self, node: exp.Select, outer: Scope, ctes: Mapping[str, Query]) -> Body:
        if node.args.get("from_") is None:
            refuse(node, "a SELECT without FROM reads nothing")
        scope = Scope(outer=outer if outer.sources or outer.outer else None)
        items: list[Node] = []
        conditions: list[Term] = []
        group: list[exp.Expression] = [node.args["from_"].this]
        for join in (*(node.args.get("joins") or []), None):
            # A comma binds less than any JOIN.
            if join is None or not any(join.args.get(each) for each in ("side", "kind", "on", "using", "method")):
                if join is not None:
                    only(join, "this")
                self._group(group, scope, ctes, items, conditions)
                group = [] if join is None else [join.this]
            else:
                group.append(join)
        where = node.args.get("where")
        semi: list[tuple[exp.Expression, bool]] = []
        resolver = Resolver(scope, subquery=lambda each: self.scalar(each, scope, ctes, items))
        for each in _parts(where.this if where is not None else None):
            is_found = _wanted(each)
            if is_found is not None:
                semi.append(is_found)
            else:
                conditions += spans.conditions(resolver, each)
        own = frozenset(name for item in items for name in names(item))
        away = [each for each in conditions if not columns(each) <= own]
        tree = arranged(items, [each for each in conditions if columns(each) <= own])
        for each, anti in semi:
            tree = self._found(each, anti, Body(tree, scope), ctes)
        return Body(tree, scope, away)

    def _group(
        self,
        group: list[exp.Expression],
        scope: Scope,
        ctes: Mapping[str, Query],
        items: list[Node],
        conditions: list[Term],
    ) -> None:
        """One part of a FROM between commas."""
        own = Scope(outer=scope.outer)
        found, asked = self._chained(group, own, ctes)
        items += found
        conditions += asked
        for source in own.sources:
            if any(source.alias == known.alias for known in scope.sources):
                refuse(group[0], f"two tables are named {source.alias!r} here", "give one an alias")
        scope.sources += own.sources
        scope.merged.update(own.merged)
        scope.hidden |= own.hidden

    def _chained(
        self, group: list[exp.Expression], own: Scope, ctes: Mapping[str, Query]
    ) -> tuple[list[Node], list[Term]]:
        """Tables joined one after the other: those that are not yet, and what is asked of them."""
        found: list[Node] = [self._item(group[0], own, ctes)]
        asked: list[Term] = []
        for join in group[1:]:
            only(join, "this", "side", "kind", "on", "using")
            left_names = frozenset(name for item in found for name in names(item))
            right = self._item(join.this, own, ctes)
            side = (join.args.get("side") or "").upper()
            beside: list[Node] = []
            on = self._on(join, own, side, ctes, beside)
            kind = (join.args.get("kind") or "").upper()
            if kind not in ("", "INNER", "CROSS", "OUTER") or (kind == "OUTER" and not side):
                refuse(join, f"{join.args['kind']} JOIN is not supported in a view")
            is_asked = bool(join.args.get("on") or join.args.get("using"))
            if is_asked == (kind == "CROSS"):
                refuse(
                    join,
                    "CROSS JOIN has no condition, and every other JOIN has one",
                    "write JOIN … ON …, and put a join inside of another in parentheses",
                )
            if not side:
                found += [right, *beside]
                asked += on
                continue
            if beside:
                refuse(join, "a subquery in the condition of an outer join", "join it in FROM, and name its column")
            left = arranged(found, asked)
            if side == "RIGHT":
                left, right, left_names = right, left, names(right)
            keys, rest = paired(on, left_names, names(right))
            for each in rest:
                if not columns(each) <= left_names | names(right):
                    refuse(join, "a condition of an outer join names a table outside of it")
            found, asked = [Joined(left, right, "full" if side == "FULL" else "left", keys, rest)], []
        return found, asked

    def _nested(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, Query]) -> Node:
        """A join inside of a join."""
        joins = node.args.pop("joins")
        inner = Scope(outer=scope.outer)
        tree = arranged(*self._chained([node, *joins], inner, ctes))
        if inner.merged:
            refuse(node, "USING inside of another join is not supported", "put that join in a subquery in FROM")
        scope.sources += inner.sources
        return tree

    def _on(
        self, join: exp.Expression, scope: Scope, side: str, ctes: Mapping[str, Query], beside: list[Node]
    ) -> list[Term]:
        """The conditions of a join; the subqueries in them come to be `beside` it."""
        if join.args.get("using"):
            return [self._using(join, folded(name), scope, side) for name in join.args["using"]]
        on = join.args.get("on")
        if on is None:
            return []
        resolver = Resolver(scope, subquery=lambda each: self.scalar(each, scope, ctes, beside))
        return [resolver.condition(each) for each in _parts(on)]

    def _using(self, join: exp.Expression, name: str, scope: Scope, side: str) -> Term:
        right = scope.sources[-1]
        theirs = dict(right.columns).get(name)
        mine = scope.merged.get(name)
        if mine is None:
            found = [(source, ref) for source in scope.sources[:-1] for known, ref in source.columns if known == name]
            if len(found) != 1 or theirs is None:
                refuse(join, f"USING needs {name!r} once on each side")
            scope.hidden.add((found[0][0].alias, name))
            mine = found[0][1]
        if theirs is None:
            refuse(join, f"USING needs {name!r} once on each side")
        scope.hidden.add((right.alias, name))
        (one, other), shared = brought_together(join, [mine, theirs])
        kinds = {mine.type.kind, theirs.type.kind}
        if "real" in kinds and len(kinds - {"double"}) > 1:  # compared as double precision, and shown as real
            refuse(join, f"USING of {mine.type} and {theirs.type}", "write ON, and cast one of them")
        chosen = {"RIGHT": other, "FULL": Call("coalesce", (one, other), shared)}
        scope.merged[name] = chosen.get(side.upper(), one)
        return Call("=", (one, other), types.BOOLEAN)

    def _item(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, Query]) -> Node:
        alias = node.args.get("alias")
        key: tuple[str, ...] = ()
        while isinstance(node, exp.Paren | exp.Subquery) and isinstance(node.this, exp.Table) and alias is None:
            only(node, "this")
            node = node.this
            alias = node.args.get("alias")
        if node.args.get("joins"):
            return self._nested(node, scope, ctes)
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias", "order", "limit", "offset", "with_")
            inner = self._limited(node, self.query(node.this, Scope(outer=None), ctes))
            name = folded(alias.this) if alias is not None else self.fresh("_")
            tree, outputs = inner.tree, inner.outputs
        elif isinstance(node, exp.Table):
            only(node, "this", "db", "alias")
            full = full_name(node)
            name = folded(alias.this) if alias is not None and alias.this is not None else folded(node.this)
            if node.args.get("db") is None and full in ctes:
                tree, outputs = self._again(ctes[full])
            else:
                tree, outputs, key = self._scan(node, full)
        else:
            refuse(node, f"{type(node).__name__.upper()} in FROM is not supported in a view")
        outputs = _renamed(node, outputs, alias)
        if any(source.alias == name for source in scope.sources):
            refuse(node, f"two tables are named {name!r} here", "give one an alias")
        scope.sources.append(Source(name, outputs, key))
        return tree

    def _again(self, query: Query) -> tuple[Node, tuple[tuple[str, Ref], ...]]:
        """What WITH named, with columns of its own for this use of it."""
        fields = tuple((self.fresh("c"), ref) for ref in query.tree.columns)
        new = {ref.column: Ref(name, ref.type) for name, ref in fields}
        return Projected(query.tree, fields), tuple((name, new[ref.column]) for name, ref in query.outputs)

    def _scan(self, node: exp.Expression, name: str) -> tuple[Node, tuple[tuple[str, Ref], ...], tuple[str, ...]]:
        relation = self.relations.get(name)
        if relation is None:
            known = ", ".join(self.relations)
            refuse(node, f"there is no table {name!r}{nearest(name, self.relations)}", f"choose from {known}")
        # By their own names: a checkpoint knows its plan by its words, and a table may get a column that nobody reads.
        scan = next(self._scans)
        fields = tuple((column, Ref(f"s{scan}_{_plain(column)}", type_)) for column, type_ in relation.columns.items())
        return Scan(name, fields), fields, relation.key

    # subqueries in WHERE

    def scalar(self, node: exp.Expression, scope: Scope, ctes: Mapping[str, Query], items: list[Node]) -> Term:
        """A subquery as a value: one row, joined to all. Of none it is null, and of two an error."""
        inner = self.query(node, scope, ctes)
        if len(inner.outputs) != 1:
            refuse(node, "a subquery that is a value has one column")
        (_, ref), tree = inner.outputs[0], inner.tree
        if not _is_one_row(tree):
            if not ref.type.is_ordered:
                refuse(node, f"a subquery of {ref.type} that may have several rows", "aggregate it, or join it in FROM")
            measures = Measures(Resolver(Scope()), self.fresh)
            number = measures.measure("count", (), BIGINT)
            value = measures.measure("min", (ref,), ref.type)
            grouped = Grouped(tree, (), tuple(measures.found))
            checked = Call("single", (number, value), ref.type)
            name = self.fresh("c")
            tree, ref = Projected(grouped, ((name, checked),)), Ref(name, ref.type)
        items.append(tree)
        return ref

    def _found(self, node: exp.Expression, anti: bool, around: Body, ctes: Mapping[str, Query]) -> Node:
        """EXISTS and IN beside AND in WHERE."""
        query: Any = node.this if isinstance(node, exp.Exists) else node.args["query"]
        query = query.unnest() if isinstance(query, exp.Subquery) and not query.args.get("alias") else query
        wanted = None if isinstance(node, exp.Exists) else Resolver(around.scope).term(node.this)
        ordered = _unordered(query, isinstance(node, exp.Exists)) if isinstance(query, exp.Select) else []
        if isinstance(node, exp.In) and anti:
            refuse(
                node.parent if isinstance(node.parent, exp.Not) else node,
                "NOT IN (SELECT …) is not true of anything as soon as one row is null",
                "write NOT EXISTS (SELECT … WHERE … = …)",
            )
        values: list[Term]
        if isinstance(query, exp.Select) and _is_plain(query):
            only(query, "expressions", "from_", "joins", "where", "distinct")
            inner = self.body(query, around.scope, ctes)
            tree, conditions = inner.tree, inner.outer
            values = self._listed(query, inner, ctes)
            for by in ordered:
                Resolver(inner.scope).term(by.this)
        else:
            plain = self.query(query, around.scope, ctes)
            tree, conditions = plain.tree, []
            values = [ref for _, ref in plain.outputs]
        keys, rest = paired(conditions, names(around.tree), names(tree))
        if wanted is not None:
            if len(values) != 1:
                refuse(node, "IN (SELECT …) has one column")
            (one, other), _ = brought_together(node, [wanted, values[0]])
            keys = (*keys, (keyed(one), keyed(other)))
        own = names(around.tree) | names(tree)
        for each in rest:
            if spans.is_span(each) and not columns(each) <= names(tree):
                refuse(node, "now() meets a column of the query around it", "write that condition in the query around")
            if not columns(each) <= own:
                refuse(node, "a subquery that looks two queries outwards is not supported", "join what it looks at")
        return found(around.tree, tree, keys, rest, anti)

    def _listed(self, node: exp.Select, inner: Body, ctes: Mapping[str, Query]) -> list[Term]:
        """The list of such a SELECT: of EXISTS nobody looks at its values, and it has to be right all the same."""
        unread: list[Node] = []
        resolver = Resolver(inner.scope, subquery=lambda each: self.scalar(each, inner.scope, ctes, unread))
        shown_as = Stage(self, node, inner, ctes).expanded()
        found = [settle(each, resolver.term(each), TEXT) for _, each in shown_as]
        if unread and not isinstance(node.parent, exp.Exists):
            refuse(node, "a subquery in the list of IN (SELECT …)", "join it in FROM")
        return found

    # SELECT

    def select(self, node: exp.Select, outer: Scope, ctes: Mapping[str, Query]) -> Query:
        only(
            node, "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit", "with_",
            "offset",
        )  # fmt: skip
        body = self.body(node, outer, ctes)
        if body.outer:
            refuse(node, "a subquery that names columns of the query around it", "write it as a join, or as EXISTS")
        stage = Stage(self, node, body, ctes)
        return stage.query()

    def _set(self, node: exp.Expression, outer: Scope, ctes: Mapping[str, Query]) -> Query:
        only(node, "this", "expression", "distinct", "order", "limit", "offset", "with_")
        left, right = self.query(node.this, outer, ctes), self.query(node.expression, outer, ctes)
        if len(left.outputs) != len(right.outputs):
            refuse(node, "both sides need the same number of columns")
        sides: list[list[Term]] = [[], []]
        for (_, mine), (_, other) in zip(left.outputs, right.outputs, strict=True):
            terms, shared = in_one_column(node, [mine, other])
            if shared.kind == "unknown":
                terms = [cast(each, TEXT) for each in terms]
            for side, term in zip(sides, terms, strict=True):
                side.append(term)
        one, other_one = (self._projected(query.tree, side) for query, side in zip((left, right), sides, strict=True))
        shown_as = [name for name, _ in left.outputs]
        distinct = bool(node.args.get("distinct"))
        tree: Node
        if isinstance(node, exp.Union):
            tree = Unified((one, other_one), tuple(self.fresh("c") for _ in shown_as))
            tree = Once(_comparable(node, tree)) if distinct else tree
        else:
            if not distinct:
                refuse(
                    node,
                    f"{type(node).__name__.upper()} ALL is not supported in a view",
                    "leave out ALL, or count rows by GROUP BY",
                )
            _comparable(node, one)
            keys = (row(tuple(keyed(ref) for ref in one.columns)), row(tuple(keyed(ref) for ref in other_one.columns)))
            tree = Found(Once(one), other_one, (keys,), (), isinstance(node, exp.Except))
        return Query(tree, tuple(zip(shown_as, tree.columns, strict=True)))

    def _projected(self, tree: Node, terms: list[Term]) -> Projected:
        return Projected(tree, tuple((self.fresh("c"), term) for term in terms))

    def _limited(self, node: exp.Expression, query: Query) -> Query:
        """ORDER BY … LIMIT of what is not a SELECT by itself: by the columns that it shows."""
        order, limit = node.args.get("order"), node.args.get("limit")
        if order is None and limit is None and node.args.get("offset") is None:
            return query
        shown_as = dict(query.outputs)
        scope = Scope([Source("", query.outputs)])

        def term(each: exp.Expression) -> Term:
            if isinstance(each, exp.Literal) and not each.is_string:
                at: Term = position(each, [ref for _, ref in query.outputs])
                return at
            if isinstance(each, exp.Column) and not each.args.get("table") and folded(each.this) in shown_as:
                return shown_as[folded(each.this)]
            if isinstance(node, exp.SetOperation):
                refuse(each, "the rows of a UNION are ordered by its columns alone", "order a subquery in FROM")
            return Resolver(scope).term(each)

        counted = limit_of(node)
        ordered = tuple(ordering(each, term(each.this)) for each in order.expressions) if order is not None else ()
        return replace(query, tree=First(query.tree, (), ordered, counted))


def _unordered(node: exp.Select, is_exists: bool) -> list[exp.Expression]:
    """Takes away what changes nothing where only it counts whether rows are there: their order, which is given back,
    and of EXISTS how many there may be at most."""
    limit, distinct = node.args.get("limit"), node.args.get("distinct")
    if node.args.get("offset") or (distinct is not None and distinct.args.get("on")):
        return []
    most = limit.expression if isinstance(limit, exp.Limit) else None
    if is_exists and isinstance(most, exp.Literal) and most.this.isdigit() and int(most.this) > 0:
        node.set("limit", None)
    if node.args.get("limit") or has_aggregate(node) or node.args.get("group"):
        return []
    order = node.args.get("order")
    node.set("order", None)
    return [] if order is None else list(order.expressions)


def _is_plain(node: exp.Select) -> bool:
    """Whether it is rows of a FROM as they are, which may then be looked for by what the query around has."""
    distinct = node.args.get("distinct")
    return not (
        has_aggregate(node)
        or any(node.args.get(each) for each in ("group", "having", "order", "limit", "offset", "with_"))
        or (distinct is not None and distinct.args.get("on"))
    )


def _comparable(node: exp.Expression, tree: Node) -> Node:
    for ref in tree.columns:
        if not ref.type.is_compared:
            refuse(node, f"{ref.type} has no comparison in a view")
    return tree


def _is_one_row(tree: Node) -> bool:
    while isinstance(tree, Projected):
        tree = tree.input
    return isinstance(tree, Grouped) and not tree.by


def _parts(node: Any) -> list[exp.Expression]:
    """What stands beside AND."""
    if node is None:
        return []
    if isinstance(node, exp.Paren) and isinstance(node.this, exp.And | exp.Exists | exp.In | exp.Not):
        return _parts(node.this)
    if isinstance(node, exp.And):
        return [part for each in node.flatten(unnest=False) for part in _parts(each)]
    return [node]


def _wanted(node: exp.Expression) -> tuple[exp.Expression, bool] | None:
    """EXISTS or IN (SELECT …), and whether it is negated."""
    anti = False
    while isinstance(node, exp.Not | exp.Paren):
        anti ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None):
        return node, anti ^ bool(node.args.get("negate"))
    if (
        isinstance(node, exp.EQ)
        and isinstance(node.expression, exp.Any)
        and isinstance(node.expression.this.unnest(), exp.Query)
    ):
        return exp.In(this=node.this, query=node.expression.this), anti
    return None


def _renamed(
    node: exp.Expression, outputs: tuple[tuple[str, Ref], ...], alias: exp.Expression | None
) -> tuple[tuple[str, Ref], ...]:
    names_ = [folded(each) for each in (alias.args.get("columns") or [])] if alias is not None else []
    if len(names_) > len(outputs):
        refuse(node, "more names than columns")
    return tuple((names_[n] if n < len(names_) else name, ref) for n, (name, ref) in enumerate(outputs))
