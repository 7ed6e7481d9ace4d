"""Expressions of the SQL, resolved: names to columns, operators to operations, with every conversion written out.

What Spark would compute otherwise than PostgreSQL is either an operation of its own here, which `columns.py` knows how
to have computed, or is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from sqlglot import exp

from millrace.errors import nearest
from millrace.views import literals, types
from millrace.views.called import refuse_foreign
from millrace.views.intervals import interval
from millrace.views.refusal import only, refuse, shown
from millrace.views.terms import NOW, Call, Ref, Term, Value, cast
from millrace.views.types import BOOLEAN, DATE, INTEGER, NUMERIC, TEXT, TIMESTAMP, UNKNOWN, Type


@dataclass(frozen=True)
class Source:
    """What a FROM brings: columns by name, in order. `key` are those that tell its rows apart, if it is a table."""

    alias: str
    columns: tuple[tuple[str, Ref], ...]
    key: tuple[str, ...] = ()


@dataclass
class Scope:
    """The columns that an expression may name. Those of `outer` belong to the query around a subquery; `merged` are
    those that JOIN … USING made of two."""

    sources: list[Source] = field(default_factory=list)
    outer: Scope | None = None
    merged: dict[str, Term] = field(default_factory=dict)
    hidden: set[tuple[str, str]] = field(default_factory=set)

    def find(self, node: exp.Column) -> Term:
        name, table = folded(node.this), folded(node.args["table"]) if node.args.get("table") else ""
        scope: Scope | None = self
        while scope is not None:
            if not table and name in scope.merged:
                return scope.merged[name]
            found = [
                ref
                for source in scope.sources
                if table in ("", source.alias)
                for known, ref in source.columns
                if known == name and (table or (source.alias, known) not in scope.hidden)
            ]
            if len(found) == 1:
                return found[0]
            if found:
                refuse(node, "more than one table has this column", f"say which: {scope.sources[0].alias}.{name}")
            if table and any(source.alias == table for source in scope.sources):
                break
            scope = scope.outer
        known_names = [known for source in self.sources for known, _ in source.columns]
        if table and not any(source.alias == table for source in self.sources):
            known_tables = [each.alias for each in self.sources]
            refuse(node, f"there is no table {table!r} here{nearest(table, known_tables)}", _choose(known_tables))
        refuse(node, f"there is no such column{nearest(name, known_names)}", _choose(known_names))


def _choose(known: Sequence[str]) -> str:
    return f"choose from {', '.join(dict.fromkeys(known))}" if known else ""


def folded(node: Any) -> str:
    """A name as PostgreSQL takes it: in small letters, unless it is quoted."""
    if isinstance(node, exp.Identifier):
        return str(node.this) if node.args.get("quoted") else str(node.this).lower()
    return str(node).lower()


@dataclass
class Resolver:
    """`aggregate` and `subquery` take what is more than an expression of one row, where that is allowed; with `clock`
    now() is a term, which whoever asks for it has to take out again (`spans.py`)."""

    scope: Scope
    aggregate: Callable[[exp.Expression], Term] | None = None
    subquery: Callable[[exp.Expression], Term] | None = None
    clock: bool = False

    def term(self, node: exp.Expression) -> Term:
        refuse_foreign(node)
        if isinstance(node, AGGREGATES) or _is_anonymous_aggregate(node):
            if self.aggregate is None:
                refuse(node, "an aggregate is not allowed here", "compute it in a subquery in FROM, or ask in HAVING")
            return self.aggregate(node)
        # Not of its superclasses: for the parser concat_ws() is a kind of concat().
        reader = _READERS.get(type(node))
        if reader is None:
            refuse(node, f"{_word(node)} is not supported in a view")
        return reader(self, node)

    def terms(self, nodes: Sequence[exp.Expression]) -> list[Term]:
        return [self.term(node) for node in nodes]

    def condition(self, node: exp.Expression) -> Term:
        found = self.settled(node, BOOLEAN)
        if found.type.kind != "boolean":
            refuse(node, f"a condition is expected, and this is {found.type}")
        return found

    def settled(self, node: exp.Expression, type_: Type) -> Term:
        """A term, of this type if it is a literal that has none of its own."""
        return settle(node, self.term(node), type_)

    def alike(self, node: exp.Expression, parts: Sequence[exp.Expression]) -> tuple[list[Term], Type]:
        """Several terms in the type that they have in common."""
        return in_one_column(node, self.terms(parts))


def settle(node: exp.Expression, term: Term, type_: Type) -> Term:
    """A literal as a value of a type; of a numeric it has the digits that are written, and no fewer."""
    if term.type.kind != "unknown":
        return term
    assert isinstance(term, Value)
    if term.value is None:
        return Value(None, type_)
    if type_.kind == "opaque":
        refuse(node, f"{type_}: it can be shown, and no more", "ask for it where the view is read")
    return literals.exact(node, term.value) if type_.kind == "numeric" else literals.text(node, term.value, type_)


def in_one_column(node: exp.Expression, found: Sequence[Term]) -> tuple[list[Term], Type]:
    """Brought together where the result is shown: how far a char(n) is filled up then depends on all of them."""
    sizes = {term.type.length if term.type.kind == "char" else 0 for term in found if _is_written(term)}
    if len(sizes) > 1:
        refuse(node, "char(n) meets another type of text", "cast it: …::text")
    if {"real"} < {term.type.kind for term in found} <= {"real", "unknown", "numeric", *types.WHOLE}:
        # In one column they are real; compared with each other they are double precision.
        found = [cast(settle(node, term, types.REAL), types.REAL) for term in found]
    return brought_together(node, found)


def _is_written(term: Term) -> bool:
    return not (isinstance(term, Value) and term.value is None)


def brought_together(node: exp.Expression, found: Sequence[Term]) -> tuple[list[Term], Type]:
    shared = types.common([term.type for term in found])
    if shared is None:
        met = sorted({str(term.type) for term in found})
        if {"timestamp without time zone", "timestamptz"} & {term.type.kind for term in found}:
            refuse(node, f"{' and '.join(met)} meet by the session's time zone", "convert one: … AT TIME ZONE 'UTC'")
        refuse(node, f"{' and '.join(met)} do not fit together", "cast one of them")
    settled = [settle(node, term, shared) for term in found]
    # A literal may have more digits than the others.
    wide_enough = types.common([term.type for term in settled]) or shared
    return [cast(term, wide_enough) for term in settled], wide_enough


def compared(node: exp.Expression, name: str, left: Term, right: Term) -> Term:
    (one, other), shared = brought_together(node, [left, right])
    if not shared.is_compared:
        refuse(node, f"{shared} has no comparison in a view")
    if name not in ("=", "<>", "same") and not (shared.is_ordered or shared.is_wide):
        unordered(node, shared)
    return Call(name, (one, other), BOOLEAN)


def unordered(node: exp.Expression, type_: Type) -> None:
    """Says that values cannot be put in order."""
    if type_.is_text:
        refuse(node, "the order of texts depends on the database's collation", f'write {shown(node)} with COLLATE "C"')
    if type_.is_wide:
        refuse(node, "a numeric without a scale has no order in a view's state", "cast it: (…)::numeric(38,10)")
    if type_.kind == "enum":
        refuse(
            node, f"the order in which {type_} was declared is not known here", "say it: CASE … WHEN 'a' THEN 1 … END"
        )
    refuse(node, f"{type_} has no order in a view")


def _binary(name: str) -> Reader:
    def read(self: Resolver, node: exp.Expression) -> Term:
        only(node, "this", "expression", "typed", "safe")
        left, right = self.term(node.this), self.term(node.expression)
        left, right = settle(node, left, right.type), settle(node, right, left.type)
        return computed(node, name, left, right)

    return read


def computed(node: exp.Expression, name: str, left: Term, right: Term) -> Term:
    """Arithmetic in the type that PostgreSQL does it in."""
    shared = types.arithmetic(left.type, right.type)
    if shared is None:
        return _of_moments(node, name, left, right)
    if shared != NUMERIC:
        if name == "%" and not shared.is_whole:
            refuse(node, f"there is no % of {shared}")
        return Call(name, (cast(left, shared), cast(right, shared)), shared)
    one, other = types.as_numeric(left.type), types.as_numeric(right.type)
    if name == "/":
        return Call("/", (cast(left, one), cast(right, other)), NUMERIC)
    found = types.multiplied(one, other) if name == "*" else types.added(one, other)
    if found.is_wide:
        one, other = NUMERIC, NUMERIC
    return Call(name, (cast(left, one), cast(right, other)), found)


def _of_moments(node: exp.Expression, name: str, left: Term, right: Term) -> Term:
    kinds = (left.type.kind, right.type.kind)
    if name == "+" and (kinds[0] == "interval" or left.type.is_whole):
        left, right, kinds = right, left, (kinds[1], kinds[0])
    if name in ("+", "-") and kinds[0] == "date" and right.type.is_whole:
        return Call(f"date {name}", (left, cast(right, INTEGER)), DATE)
    if name == "-" and kinds == ("date", "date"):
        return Call("days", (left, right), INTEGER)
    if name in ("+", "-") and kinds[1] == "interval" and isinstance(right, Value):
        sign = 1 if name == "+" else -1
        months, days, micros = (sign * each for each in right.value)
        if kinds[0] == "timestamptz" and (months or days):
            refuse(
                node,
                "days and months of a timestamptz depend on the session's time zone",
                "write hours, or … AT TIME ZONE 'UTC' + …",
            )
        if kinds[0] in ("date", "timestamp", "timestamptz"):
            moment = cast(left, TIMESTAMP) if kinds[0] == "date" else left
            return Call("shift", (moment,), moment.type, (months, days, micros))
    if name == "-" and kinds[0] == kinds[1] and kinds[0] in ("timestamp", "timestamptz"):
        instead = "write EXTRACT(EPOCH FROM (a - b)), which is in seconds"
        refuse(node, "an interval cannot be in a view", _COMPARED if NOW in (left, right) else instead)
    refuse(node, f"there is no {left.type} {name} {right.type} in a view")


def _comparison(name: str) -> Reader:
    def read(self: Resolver, node: exp.Expression) -> Term:
        only(node, "this", "expression")
        for each in (node.this, node.expression):
            if isinstance(each, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
                refuse(node, "one comparison of another", "put the inner one in parentheses")
        if isinstance(node.this, exp.Tuple) or isinstance(node.expression, exp.Tuple):
            refuse(node, "a comparison of rows is not supported", "compare their columns one by one")
        return compared(node, name, self.term(node.this), self.term(node.expression))

    return read


def _connected(name: str) -> Reader:
    def read(self: Resolver, node: exp.Expression) -> Term:
        only(node, "this", "expression")
        beside: list[Any] = list(node.flatten(unnest=False))
        return Call(name, tuple(self.condition(each) for each in beside), BOOLEAN)

    return read


def negated(term: Term) -> Term:
    return Call("not", (term,), BOOLEAN)


def _not(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this")
    return negated(self.condition(node.this))


def _is(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression", "negate")
    if isinstance(node.expression, exp.Null):
        found: Term = Call("is null", (settle(node, self.term(node.this), TEXT),), BOOLEAN)
    elif isinstance(node.expression, exp.Boolean):
        found = Call("same", (self.condition(node.this), Value(bool(node.expression.this), BOOLEAN)), BOOLEAN)
    else:
        refuse(node, "IS is supported with NULL, TRUE, FALSE and DISTINCT FROM")
    return negated(found) if node.args.get("negate") else found


_LONGEST_LIST = 1_000


def _in(self: Resolver, node: exp.Expression) -> Term:
    if node.args.get("query") is not None:
        refuse(node, "IN (SELECT …) is supported where it stands alone or beside AND in WHERE", "write a join")
    only(node, "this", "expressions", "negate")
    if not node.expressions:
        refuse(node, "IN of nothing", "write false")
    this = self.term(node.this)
    if len(node.expressions) > _LONGEST_LIST:
        refuse(node, f"IN of more than {_LONGEST_LIST} values", "join a table that has them")
    terms = self.terms(node.expressions)
    kinds = {this.type.kind, *(each.type.kind for each in terms)}
    if this.type.kind == "real" and len(terms) > 1 and "numeric" in kinds and "double" not in kinds:
        # One alone is compared in double precision, several in the type that they have in common.
        refuse(node, "a list of numerics that real is compared with", "cast each: 0.1::real")
    equal = tuple(compared(node, "=", this, each) for each in terms)
    found = Call("or", equal, BOOLEAN) if len(equal) > 1 else equal[0]
    return negated(found) if node.args.get("negate") else found


def _between(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "low", "high", "negate")
    this = self.term(node.this)
    low = compared(node, ">=", this, self.term(node.args["low"]))
    found = Call("and", (low, compared(node, "<=", this, self.term(node.args["high"]))), BOOLEAN)
    return negated(found) if node.args.get("negate") else found


def _case(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "ifs", "default")
    branches, default = node.args["ifs"], node.args.get("default") or exp.Null()
    values, shared = self.alike(node, [*(each.args["true"] for each in branches), default])
    parts: list[Term] = []
    for each, value in zip(branches, values, strict=False):
        if node.this is not None:
            parts += [compared(node, "=", self.term(node.this), self.term(each.this)), value]
        else:
            parts += [self.condition(each.this), value]
    return Call("case", (*parts, values[-1]), shared)


def _coalesce(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expressions")
    values, shared = self.alike(node, [node.this, *node.expressions])
    return Call("coalesce", tuple(values), shared)


def _nullif(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression")
    first = self.term(node.this)
    equal = compared(node, "=", first, self.term(node.expression))
    assert isinstance(equal, Call)
    if first.type.kind == "unknown" and equal.args[0].type.kind == "char":
        refuse(node, "a literal as a char(n)", "cast it: '…'::text")
    # The first as the operator takes it: PostgreSQL has one for numbers of different size, and none for 1 = 2.5.
    value = first if _has_operator(first.type, self.term(node.expression).type) else equal.args[0]
    return Call("case", (equal, Value(None, value.type), value), value.type)


def _has_operator(one: Type, other: Type) -> bool:
    kinds = {one.kind, other.kind}
    own = (types.WHOLE, ("real", "double"), ("date", "timestamp"), ("numeric",), ("text",))
    return any(kinds <= set(each) for each in own)


def _column(self: Resolver, node: exp.Expression) -> Term:
    assert isinstance(node, exp.Column)
    only(node, "this", "table")
    if isinstance(node.this, exp.Star):
        refuse(node, "* is supported in the list of a SELECT and in count(*)")
    return self.scope.find(node)


def _literal(self: Resolver, node: exp.Expression) -> Term:
    assert isinstance(node, exp.Literal)
    return Value(node.this, UNKNOWN) if node.is_string else literals.number(node)


def _inside(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this")
    return self.term(node.this)


def _neg(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this")
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        found = literals.number(node.this)
        if found.value == 2**31 or found.value == 2**63:
            refuse(node, "the least value of its type", "write it one greater, minus one")
        return Value(-found.value, found.type)
    term = self.term(node.this)
    if not term.type.is_number:
        refuse(node, f"there is no - {term.type}")
    return Call("neg", (term,), term.type)


def _collate(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "expression")
    term = settle(node, self.term(node.this), TEXT)
    if not term.type.is_text:
        refuse(node, f"{term.type} has no collation")
    if folded(node.expression) != "C":
        refuse(node, "a collation that Spark does not have", 'COLLATE "C" orders by bytes')
    return cast(term, replace(term.type, collation="C"))


_INTERVAL = "write INTERVAL '1 day 2 hours'"


def _interval(self: Resolver, node: exp.Expression) -> Term:
    only(node, "this", "unit")
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        refuse(node, "an interval from one unit to another is not supported in a view", _INTERVAL)
    try:
        return Value(interval(node.this.this, "" if unit is None else unit.this), types.INTERVAL)
    except ValueError:
        refuse(node, "an interval that is not understood", _INTERVAL)


def _subquery(self: Resolver, node: exp.Expression) -> Term:
    if self.subquery is None:
        refuse(node, "a subquery is not supported here", "join it in FROM")
    return self.subquery(node)


def _exists(self: Resolver, node: exp.Expression) -> Term:
    refuse(node, "EXISTS is supported where it stands alone or beside AND in WHERE", "write a join, or a UNION of two")


_COMPARED = "compare the row's time with it: at > now() - interval '1 hour'"


def _now(self: Resolver, node: exp.Expression) -> Term:
    if not self.clock:
        refuse(
            node,
            "now() can only say while which rows are in a view",
            "write it beside AND in WHERE or HAVING: at > now() - interval '1 hour'",
        )
    if not isinstance(node, exp.CurrentTimestamp) or node.this is not None:
        refuse(node, "it depends on the session's time zone, or is rounded", "write now()")
    return NOW


def _word(node: exp.Expression) -> str:
    """What it is called in SQL, as far as the parser tells."""
    written = node.sql(dialect="postgres").partition("(")[0].strip().lower()
    return f"{written}()" if isinstance(node, exp.Func) and written.isidentifier() else type(node).__name__.upper()


Reader: TypeAlias = Callable[[Resolver, exp.Expression], Term]

AGGREGATES = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.Stddev, exp.StddevSamp,
    exp.StddevPop, exp.Variance, exp.VariancePop, exp.ArrayAgg, exp.Filter, exp.GroupConcat, exp.AggFunc,
)  # fmt: skip


def _is_anonymous_aggregate(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "every"


_READERS: dict[Any, Reader] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: lambda _, node: Value(bool(node.this), BOOLEAN),
    exp.Null: lambda _, node: Value(None, UNKNOWN),
    exp.Paren: _inside,
    exp.Add: _binary("+"),
    exp.Sub: _binary("-"),
    exp.Mul: _binary("*"),
    exp.Div: _binary("/"),
    exp.Mod: _binary("%"),
    exp.Neg: _neg,
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.NullSafeEQ: _comparison("same"),
    exp.NullSafeNEQ: lambda self, node: negated(_comparison("same")(self, node)),
    exp.And: _connected("and"),
    exp.Or: _connected("or"),
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Case: _case,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Collate: _collate,
    exp.Interval: _interval,
    exp.Subquery: _subquery,
    exp.Select: _subquery,
    exp.Exists: _exists,
    exp.CurrentTimestamp: _now,
    exp.CurrentDate: _now,
    exp.CurrentTime: _now,
    exp.Localtime: _now,
    exp.Localtimestamp: _now,
}


def also(readers: dict[Any, Reader]) -> None:
    """Functions, which are in a file of their own."""
    _READERS.update(readers)
