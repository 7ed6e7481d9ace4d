"""Aggregates of the SQL: which measures of a group they need, and what is computed of those afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from millrace.views import types
from millrace.views.called import refuse_foreign
from millrace.views.expressions import Resolver, settle, unordered
from millrace.views.ordering import ordering
from millrace.views.refusal import only, refuse
from millrace.views.terms import Call, Ref, Term, Value, cast
from millrace.views.tree import Measured, Ordered
from millrace.views.types import BIGINT, BOOLEAN, DOUBLE, NUMERIC, TEXT, Type

_NAMES: dict[Any, str] = {exp.Min: "min", exp.Max: "max"}
# (of a sample, the root of it)
_SPREADS: dict[Any, tuple[bool, bool]] = {
    exp.Stddev: (True, True), exp.StddevSamp: (True, True), exp.StddevPop: (False, True),
    exp.Variance: (True, False), exp.VariancePop: (False, False),
}  # fmt: skip


class Measures:
    """Collects what is asked of the groups of one SELECT; the same question is asked once."""

    def __init__(self, rows: Resolver, fresh: Callable[[str], str]) -> None:
        self.rows, self.fresh = rows, fresh
        self.found: list[Measured] = []

    def term(self, node: exp.Expression) -> Term:
        """An aggregate as a term over measures."""
        only_if: Term | None = None
        if isinstance(node, exp.Filter):
            only(node, "this", "expression")
            only_if = self.rows.condition(node.expression.this)
            node = node.this
            refuse_foreign(node)
            if isinstance(node, exp.Anonymous) and str(node.this).lower() != "every":
                refuse(node, f"{node.this}() is not supported in a view")
        if isinstance(node, exp.Count):
            return self._count(node, only_if)
        if isinstance(node, exp.ArrayAgg):
            return self._array(node, only_if)
        if isinstance(node, exp.Max | exp.Min):
            return self._end(node, only_if)
        if isinstance(node, exp.LogicalAnd | exp.LogicalOr | exp.Anonymous):
            return self._truth(node, only_if)
        if isinstance(node, exp.Sum | exp.Avg):
            return self._sum(node, only_if)
        if type(node) in _SPREADS:
            return self._spread(node, only_if, *_SPREADS[type(node)])
        refuse(node, f"the aggregate {type(node).__name__.upper()} is not supported in a view")

    def measure(
        self, kind: str, of: tuple[Term, ...], type_: Type, order: tuple[Ordered, ...] = (), only: Term | None = None
    ) -> Ref:
        for known in self.found:
            if (known.kind, known.of, known.type, known.order, known.only) == (kind, of, type_, order, only):
                return Ref(known.column, type_)
        self.found.append(Measured(self.fresh("m"), kind, of, type_, order, only))
        return Ref(self.found[-1].column, type_)

    def _argument(self, node: exp.Expression, part: exp.Expression, only_if: Term | None) -> Term:
        term = settle(node, self.rows.term(part), TEXT)
        return _if(only_if, term)

    def _one(self, node: exp.Expression, only_if: Term | None) -> Term:
        only(node, "this")
        if isinstance(node.this, exp.Distinct | exp.Order):
            refuse(
                node, "DISTINCT and ORDER BY are not supported in this aggregate", "aggregate a SELECT DISTINCT in FROM"
            )
        return self._argument(node, node.this, only_if)

    def _count(self, node: exp.Expression, only_if: Term | None) -> Term:
        only(node, "this", "big_int")
        if node.this is None:
            refuse(node, "count() of nothing", "write count(*)")
        if isinstance(node.this, exp.Star):
            return self.measure("count", () if only_if is None else (_if(only_if, Value(True, BOOLEAN)),), BIGINT)
        if isinstance(node.this, exp.Distinct):
            (of,) = node.this.expressions if len(node.this.expressions) == 1 else (node.this,)
            if isinstance(of, exp.Tuple | exp.Distinct):
                refuse(node, "count(DISTINCT …) of several columns is not supported", "count a SELECT DISTINCT in FROM")
            term = self._argument(node, of, only_if)
            if not term.type.is_compared:
                refuse(node, f"{term.type} has no comparison in a view")
            return self.measure("distinct", (keyed(term),), BIGINT)
        return self.measure("count", (self._argument(node, node.this, only_if),), BIGINT)

    def _end(self, node: exp.Expression, only_if: Term | None) -> Term:
        if isinstance(node.this, exp.Distinct):
            node.this.replace(node.this.expressions[0])
        term = self._one(node, only_if)
        if term.type.kind in ("boolean", "uuid", "bytea"):
            refuse(node, f"there is no {_NAMES[type(node)]} of {term.type}", "bool_and and bool_or are of booleans")
        if not term.type.is_ordered:
            unordered(node.this, term.type)
        return self.measure(_NAMES[type(node)], (term,), term.type)

    def _truth(self, node: exp.Expression, only_if: Term | None) -> Term:
        part = node.expressions[0] if isinstance(node, exp.Anonymous) and len(node.expressions) == 1 else node.this
        if not isinstance(part, exp.Expression):
            refuse(node, "one condition is expected in every()")
        term = self._argument(node, part, only_if)
        if term.type.kind != "boolean":
            refuse(node, f"a condition is expected, and this is {term.type}")
        is_any = isinstance(node, exp.LogicalOr)
        known = self.measure("count", (term,), BIGINT)
        decisive = term if is_any else Call("not", (term,), BOOLEAN)
        telling = self.measure("count", (_if(decisive, Value(True, BOOLEAN)),), BIGINT)
        nothing = Value(0, BIGINT)
        answer = Call("<>" if is_any else "=", (telling, nothing), BOOLEAN)
        return Call("case", (Call("=", (known, nothing), BOOLEAN), Value(None, BOOLEAN), answer), BOOLEAN)

    def _sum(self, node: exp.Expression, only_if: Term | None) -> Term:
        term = self._one(node, only_if)
        if not term.type.is_number:
            refuse(node, f"there is no sum of {term.type}", "cast what is summed")
        if term.type.kind in ("real", "double"):
            kind = "avg" if isinstance(node, exp.Avg) else "sum"
            found = self.measure(kind, (cast(term, DOUBLE),), DOUBLE)
            return cast(found, term.type) if kind == "sum" else found
        is_small = term.type.kind in ("smallint", "integer")
        total = self.measure("sum", (cast(term, BIGINT),), BIGINT) if is_small else self._exact(node, term)
        if isinstance(node, exp.Sum):
            return total
        number = self.measure("count", (term,), BIGINT)
        return Call("/", (cast(total, types.as_numeric(total.type)), cast(number, types.numeric(19, 0))), NUMERIC)

    def _exact(self, node: exp.Expression, term: Term) -> Ref:
        """The sum of a numeric."""
        exact = types.as_numeric(term.type)
        if exact.is_wide:
            refuse(
                node,
                "a sum of a numeric without a scale is not supported in a view",
                "cast what is summed: (…)::numeric(20,6)",
            )
        wider = min(types.MOST_DIGITS, exact.precision + 10)
        return self.measure("sum", (cast(term, exact),), types.numeric(wider, exact.scale, mixed=exact.mixed))

    def _spread(self, node: exp.Expression, only_if: Term | None, sample: bool, root: bool) -> Term:
        term = self._one(node, only_if)
        exact = types.as_numeric(term.type)
        if exact.kind != "numeric":
            refuse(
                node,
                "stddev and variance of what is not exact are not supported",
                "round it first: stddev(round(x)::integer)",
            )
        squared = types.multiplied(exact, exact)
        if exact.is_wide or squared.is_wide:
            refuse(
                node,
                "stddev and variance of numbers of so many digits are not supported",
                "cast it: stddev(x::numeric(15,2))",
            )
        term = cast(term, exact)
        number = self.measure("count", (term,), BIGINT)
        total = self._exact(node, term)
        squares = self._exact(node, Call("*", (term, term), squared))
        return Call("spread", (number, total, squares), NUMERIC, (sample, root))

    def _array(self, node: exp.Expression, only_if: Term | None) -> Term:
        if not isinstance(node.this, exp.Order):
            refuse(node, "array_agg without an order may be in any", "write array_agg(x ORDER BY …)")
        only(node, "this")
        if isinstance(node.this.this, exp.Distinct):
            refuse(node, "array_agg(DISTINCT …) is not supported", "aggregate a SELECT DISTINCT in FROM")
        term = self.rows.term(node.this.this)
        if term.type.kind == "unknown":
            refuse(node, "PostgreSQL does not say which type a literal in array_agg has", "cast it: 'x'::text")
        if term.type.kind in ("char", "opaque", "json", "time", "enum", "array") or term.type.is_wide:
            refuse(node, f"an array of {term.type} is not supported in a view", "cast it, for example to text")
        order = tuple(ordering(each, self.rows.term(each.this)) for each in node.this.expressions)
        return self.measure("array", (term,), Type("array", element=term.type), order, only_if)


def _if(condition: Term | None, term: Term) -> Term:
    return term if condition is None else Call("case", (condition, term, Value(None, term.type)), term.type)


def keyed(term: Term) -> Term:
    """A term as rows are told apart by it: of numerics that print differently and are equal, one."""
    return Call("key", (term,), term.type) if term.type.is_wide else term
