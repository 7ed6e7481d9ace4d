"""A tree of relations as a linear chain of signed steps. Frozen data: no Spark.

Selections wait until a step needs them, so that a filter, a projection and the keys of a join are one select.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

from millrace.views.aggregates import keyed
from millrace.views.refusal import Refused
from millrace.views.spans import SINCE, is_span
from millrace.views.steps import (
    CLOCK,
    CLOCK_COLUMNS,
    Aggregate,
    Consolidate,
    Copy,
    Distinct,
    Input,
    Join,
    Measure,
    Plan,
    Select,
    Span,
    Step,
    Top,
    Union,
)
from millrace.views.terms import TRUE, Call, Ref, Term, Value, all_of, columns, conjuncts, replaced
from millrace.views.tree import (
    Filtered,
    First,
    Found,
    Grouped,
    Joined,
    Key,
    Node,
    Once,
    Projected,
    Query,
    Scan,
    Shared,
    Unified,
    children,
    names,
    row,
    single,
)
from millrace.views.types import BOOLEAN, Type

# A row as one value, in the table whose rows are looked for and in the one in which they are.
_ROW, _OTHER_ROW = "r_row", "r_other"
_CROSSED = "every row of one meets every row of the other"


@dataclass
class Pending:
    """A table of the chain and what is still to be selected of it: its columns are those of `fields`, as terms over the
    table's, of rows for which all of `where` is true. `whole` are the table's own columns."""

    table: str
    fields: dict[str, Term]
    whole: tuple[str, ...]
    where: list[Term] = field(default_factory=list)

    def term(self, term: Term) -> Term:
        missing = columns(term) - set(self.fields)
        if missing:
            raise Refused(
                "a subquery that names columns of the query around it",
                instead="write it as a join, or as EXISTS beside AND",
            )
        return replaced(term, self.fields)


def planned(query: Query) -> Plan:
    return Planner(query).plan()


class Planner:
    def __init__(self, query: Query) -> None:
        self.query = query
        self.steps: list[Step] = []
        self.warnings: list[str] = []
        self.nudged = False
        self._numbers = count(1)
        self._uses: Counter[str] = Counter()
        self._inputs: dict[str, dict[str, tuple[str, Type]]] = {}
        self._shared: dict[Node, Pending] = {}
        self._left: Counter[Node] = Counter()
        self._types: dict[str, Type] = {}
        self._read: defaultdict[str, set[str]] = defaultdict(set)

    def plan(self) -> Plan:
        self._count(self.query.tree, set())
        wanted = frozenset(ref.column for _, ref in self.query.outputs)
        found = self.of(self.query.tree, wanted)
        outputs = tuple((name, _printed(found.term(ref))) for name, ref in self.query.outputs)
        # Rows that were different may be alike now, if not every column of theirs is shown.
        kept = {term.column for _, term in outputs if isinstance(term, Ref)}
        table = self._select(found, dict(outputs))
        if not kept >= set(found.whole):
            table = self._step(Consolidate(table, self._table()))
        inputs = tuple(
            Input(name, tuple((source, *own) for source, own in known.items() if own[0] in self._read[name]))
            for name, known in self._inputs.items()
        )
        shown = tuple((name, ref.type) for name, ref in self.query.outputs)
        if any(isinstance(step, Span) for step in self.steps):
            inputs = (*inputs, Input(CLOCK, CLOCK_COLUMNS))
        return Plan(inputs, tuple(self._clocked()), table, shown, self.nudged, tuple(self.warnings))

    def _clocked(self) -> Iterable[Step]:
        """Each span but the last has a copy of the clock: a step takes what it reads."""
        left = sum(isinstance(step, Span) for step in self.steps)
        for step in self.steps:
            if isinstance(step, Span):
                left -= 1
                if left:
                    copy = Copy(CLOCK, self._table())
                    yield copy
                    step = replace(step, clock=copy.into)
            yield step

    def _count(self, node: Node, seen: set[Node]) -> None:
        """How often each table and each shared part is read: all but the last time it is copied first."""
        for each in _reached(node, seen):
            if isinstance(each, Scan):
                self._uses[each.relation] += 1
                own = self._inputs.setdefault(each.relation, {})
                for name, ref in each.fields:
                    own.setdefault(name, (_apart(name, own), ref.type))
            elif isinstance(each, Shared):
                self._left[each] += 1

    def of(self, node: Node, needed: frozenset[str]) -> Pending:
        """What is pending of a node, with at least the needed columns."""
        if isinstance(node, Scan):
            return self._scan(node, needed)
        if isinstance(node, Filtered):
            found = self.of(node.input, needed | columns(node.condition))
            found.where.append(found.term(node.condition))
            return found
        if isinstance(node, Projected):
            fields = {name: term for name, term in node.fields if name in needed}
            found = self.of(node.input, frozenset(each for term in fields.values() for each in columns(term)))
            found.fields = {name: found.term(term) for name, term in fields.items()}
            return found
        if isinstance(node, Joined):
            return self._join(node, needed)
        if isinstance(node, Found):
            return self._found(node, needed)
        if isinstance(node, Grouped):
            return self._group(node)
        if isinstance(node, Once):
            found = self.of(node.input, names(node))
            fields = {ref.column: keyed(found.fields[ref.column]) for ref in node.columns}
            return self._whole(self._step(Distinct(self._select(found, fields), self._table())), node.columns)
        if isinstance(node, Unified):
            return self._union(node)
        if isinstance(node, First):
            return self._first(node, needed)
        return self._read_again(node)

    # tables

    def _scan(self, node: Scan, needed: frozenset[str]) -> Pending:
        self._uses[node.relation] -= 1
        own = self._inputs[node.relation]
        table = node.relation
        if self._uses[node.relation]:
            table = self._step(Copy(node.relation, self._table()))
        fields: dict[str, Term] = {}
        for name, ref in node.fields:
            column = Ref(own[name][0], ref.type)
            if ref.column in needed:
                self._read[node.relation].add(column.column)
                fields[ref.column] = Call("rtrim", (column,), ref.type) if ref.type.kind == "char" else column
        if not fields:  # a row without columns cannot be
            self._read[node.relation].add(next(iter(own.values()))[0])
        return Pending(table, fields, tuple(name for name, _ in own.values()))

    def _read_again(self, node: Shared) -> Pending:
        self._left[node] -= 1
        if node not in self._shared:
            found = self.of(node.input, names(node))
            table = self._select(found, dict(found.fields))
            self._shared[node] = self._whole(table, node.columns)
        kept = self._shared[node]
        table = self._step(Copy(kept.table, self._table())) if self._left[node] else kept.table
        return self._whole(table, node.columns)

    # joins

    def _join(self, node: Joined, needed: frozenset[str]) -> Pending:
        asked = needed.union(
            *(columns(each) for key in node.on for each in key), *(columns(each) for each in node.rest)
        )
        left = self.of(node.left, asked & names(node.left))
        right = self.of(node.right, asked & names(node.right))
        if not node.on and not (single(node.left) or single(node.right)):
            self.warnings.append(f"two tables are joined without an equality: {_CROSSED}")
        if node.how == "inner":
            sides = self._sides(left, right, node.on)
            found = self._joined(sides, "inner")
            found.where += [found.term(each) for each in node.rest]
            return found
        return self._outer(node, left, right)

    def _outer(self, node: Joined, left: Pending, right: Pending) -> Pending:
        """A condition over one side of an outer join makes its key null where it is not true: such a row is alone."""
        keys, both = list(node.on), []
        for each in node.rest:
            if columns(each) <= names(node.right) and node.how == "left" and columns(each):
                right.where.append(right.term(each))
            elif columns(each) <= names(node.left):
                keys.append((_true_or_null(each), TRUE))
            elif columns(each) <= names(node.right):
                keys.append((TRUE, _true_or_null(each)))
            else:
                both.append(each)
        sides = self._sides(left, right, keys)
        if not both:
            return self._joined(sides, node.how)
        copies = sides.copied(self)
        found = self._joined(sides, "inner")
        found.where += [found.term(each) for each in both]
        table = self._select(found, dict(found.fields))
        lone = self._alone(table, copies.left, copies.left_fields)
        tables = [(table, tuple(found.fields)), (lone, copies.left_fields)]
        if node.how == "full":
            tables.append((self._alone(table, copies.right, copies.right_fields), copies.right_fields))
        return self._padded(tables, found.fields)

    def _alone(self, pairs: str, table: str, own: tuple[str, ...], *, anti: bool = True) -> str:
        """The rows of a table that are in none of the pairs. Rows that are the same have the same partners."""
        types = {name: type_ for name, type_ in self._types.items() if name in own}
        every = {name: Ref(name, types[name]) for name in own}
        met = self._step(Copy(pairs, self._table()))
        met = self._emit(met, {_OTHER_ROW: row(tuple(map(keyed, every.values())))}, None)
        met = self._step(Distinct(met, self._table()))
        name = _ROW
        mine = self._emit(table, {**every, name: row(tuple(map(keyed, every.values())))}, None)
        return self._step(Join(mine, met, ((name, _OTHER_ROW),), "anti" if anti else "semi", self._table()))

    def _shown(self, table: str, own: tuple[str, ...]) -> Pending:
        """What `_alone` gives: the rows' columns, and one for all of them."""
        return Pending(table, {name: Ref(name, self._types[name]) for name in own}, (*own, _ROW))

    def _padded(self, tables: list[tuple[str, tuple[str, ...]]], fields: Mapping[str, Term]) -> Pending:
        """All of them together, with nulls where a table lacks a column."""
        made = []
        for table, own in tables:
            terms: dict[str, Term] = {
                name: Ref(name, term.type) if name in own else Value(None, term.type) for name, term in fields.items()
            }
            made.append(self._emit(table, terms, None))
        table = self._step(Union(tuple(made), self._table()))
        return self._whole(table, [Ref(name, term.type) for name, term in fields.items()])

    def _sides(self, left: Pending, right: Pending, keys: Iterable[Key], *, right_shown: bool = True) -> Sides:
        on, mine, theirs = [], dict(left.fields), dict(right.fields) if right_shown else {}
        shown = tuple(mine), tuple(theirs)
        for one, other in keys:
            on.append((self._keyed(left, mine, one), self._keyed(right, theirs, other)))
        for fields in (mine, theirs):
            if not fields:  # a row without columns cannot be
                fields[self._column()] = TRUE
        tables = self._select(left, mine), self._select(right, theirs)
        return Sides(*tables, tuple(on), *shown, tuple(mine), tuple(theirs))

    def _keyed(self, side: Pending, fields: dict[str, Term], key: Term) -> str:
        if isinstance(key, Ref) and key.column in fields and not key.type.is_wide:
            return key.column
        name = self._column()
        fields[name] = side.term(key)
        return name

    def _joined(self, sides: Sides, how: Literal["inner", "left", "full"]) -> Pending:
        own = (*sides.left_fields, *sides.right_fields)
        refs = {name: Ref(name, self._types[name]) for name in own}
        if how == "full":
            copies = sides.copied(self)
            both = self._step(Join(sides.left, sides.right, sides.on, "left", self._table()))
            turned = tuple((other, one) for one, other in sides.on)
            lone = self._step(Join(copies.right, copies.left, turned, "anti", self._table()))
            return self._padded([(both, own), (lone, sides.right_fields)], refs)
        table = self._step(Join(sides.left, sides.right, sides.on, how, self._table()))
        return Pending(table, dict(refs), sides.whole)

    def _found(self, node: Found, needed: frozenset[str]) -> Pending:
        asked = needed.union(
            *(columns(each) for key in node.on for each in key), *(columns(each) for each in node.rest)
        )
        left = self.of(node.left, asked & names(node.left))
        right = self.of(node.right, asked & names(node.right))
        keys, both = list(node.on), []
        for each in node.rest:
            if columns(each) <= names(node.left):
                keys.append((_true_or_null(each), TRUE))
            else:
                both.append(each)
        if not node.on and not (single(node.left) or single(node.right)):
            self.warnings.append(f"EXISTS or IN looks for rows without an equality: {_CROSSED}")
        sides = self._sides(left, right, keys, right_shown=bool(both))
        if not both:
            table = self._step(Join(sides.left, sides.right, sides.on, "anti" if node.anti else "semi", self._table()))
            refs: dict[str, Term] = {name: Ref(name, self._types[name]) for name in sides.left_fields}
            return Pending(table, refs, sides.left_whole)
        copies = sides.copied(self, right=False)
        pairs = self._joined(sides, "inner")
        pairs.where += [pairs.term(each) for each in both]
        table = self._select(pairs, {name: pairs.fields[name] for name in sides.left_fields})
        table = self._alone(table, copies.left, sides.left_fields, anti=node.anti)
        return self._shown(table, sides.left_fields)

    # groups

    def _group(self, node: Grouped) -> Pending:
        terms = [term for _, term in node.by] + [term for each in node.measures for term in each.terms]
        found = self.of(node.input, frozenset(each for term in terms for each in columns(term)))
        fields = {name: found.term(term) for name, term in node.by}
        measures = []
        known: dict[Term, str] = {}
        for each in node.measures:
            for term in each.terms:
                if term not in known:
                    known[term] = self._column()
                    fields[known[term]] = found.term(term)
            order = tuple((known[by.term], by.descending, by.nulls_first) for by in each.order)
            measures.append(Measure(each.column, each.kind, tuple(known[term] for term in each.of), order))
        self.nudged |= not node.by
        by = tuple(name for name, _ in node.by)
        table = self._step(Aggregate(self._select(found, fields), by, tuple(measures), self._table()))
        return self._whole(table, node.columns)

    def _union(self, node: Unified) -> Pending:
        tables = []
        for each in node.inputs:
            found = self.of(each, names(each))
            fields = {name: found.fields[ref.column] for name, ref in zip(node.names, each.columns, strict=True)}
            tables.append(self._select(found, fields))
        return self._whole(self._step(Union(tuple(tables), self._table())), node.columns)

    def _first(self, node: First, needed: frozenset[str]) -> Pending:
        if node.count is None:
            raise Refused(
                "row_number() has to be limited where the subquery is read",
                instead="write WHERE rn <= 10 around it",
                node=node.written,
            )
        terms = [*node.by, *(each.term for each in node.order)]
        found = self.of(node.input, needed.union(*(columns(term) for term in terms)) & names(node.input))
        fields = dict(found.fields)
        by = tuple(self._keyed(found, fields, term) for term in node.by)
        order = tuple((self._keyed(found, fields, each.term), each.descending, each.nulls_first) for each in node.order)
        table = self._select(found, fields)
        table = self._step(Top(table, by, order, node.count, node.number, self._table()))
        own = [Ref(name, term.type) for name, term in fields.items()]
        return self._whole(table, [*own, *(ref for ref in node.columns if ref.column == node.number)])

    # steps

    def _select(self, found: Pending, fields: dict[str, Term]) -> str:
        """The table with just these columns; as it is, if it has them already."""
        as_it_is = tuple(fields) == found.whole and all(
            isinstance(term, Ref) and term.column == name for name, term in fields.items()
        )
        if as_it_is and not found.where:
            self._types.update({name: term.type for name, term in fields.items()})
            return found.table
        asked = [each for condition in found.where for each in conjuncts(condition)]
        bounds = [each for each in asked if is_span(each)]
        where = all_of([each for each in asked if not is_span(each)])
        return self._spanned(found, fields, bounds, where) if bounds else self._emit(found.table, fields, where)

    def _spanned(self, found: Pending, fields: dict[str, Term], bounds: list[Term], where: Term | None) -> str:
        """First with the times beside what is shown, then without those that are not shown."""
        more = dict(fields)
        since: list[tuple[str, int]] = []
        until: list[tuple[str, int]] = []
        for each in bounds:
            assert isinstance(each, Call)
            (moment,), (us,) = each.args, each.extra
            name = next((name for name, term in more.items() if term == moment), None)
            if name is None:
                name = self._column()
                more[name] = moment
            (since if each.name == SINCE else until).append((name, us))
        table = self._emit(found.table, more, where)
        table = self._step(Span(table, CLOCK, tuple(since), tuple(until), self._table()))
        if len(more) == len(fields) and fields:
            return table
        return self._emit(table, {name: Ref(name, self._types[name]) for name in fields}, None)

    def _emit(self, table: str, fields: Mapping[str, Term], where: Term | None) -> str:
        # A row without columns cannot be.
        chosen: dict[str, Term] = dict(fields) or {self._column(): TRUE}
        self._types.update({name: term.type for name, term in chosen.items()})
        return self._step(Select(table, tuple(chosen.items()), where, self._table()))

    def _whole(self, table: str, own: Iterable[Ref]) -> Pending:
        own = list(own)
        self._types.update({ref.column: ref.type for ref in own})
        return Pending(table, {ref.column: ref for ref in own}, tuple(ref.column for ref in own))

    def _step(self, step: Step) -> str:
        self.steps.append(step)
        return step.into

    def _table(self) -> str:
        # No table has such a name.
        return f"#{next(self._numbers)}"

    def _column(self) -> str:
        return f"k{next(self._numbers)}"


@dataclass(frozen=True)
class Sides:
    """Two tables that are to be joined, and their columns."""

    left: str
    right: str
    on: tuple[tuple[str, str], ...]
    left_fields: tuple[str, ...]
    right_fields: tuple[str, ...]
    left_whole: tuple[str, ...]
    right_whole: tuple[str, ...]

    @property
    def whole(self) -> tuple[str, ...]:
        return (*self.left_whole, *self.right_whole)

    def copied(self, planner: Planner, *, right: bool = True) -> Sides:
        left = planner._step(Copy(self.left, planner._table()))
        other = planner._step(Copy(self.right, planner._table())) if right else self.right
        return replace(self, left=left, right=other)


def _reached(node: Node, seen: set[Node]) -> Iterable[Node]:
    """Every node as often as it is planned: what is shared is planned once."""
    yield node
    if isinstance(node, Shared):
        if node in seen:
            return
        seen.add(node)
    for each in children(node):
        yield from _reached(each, seen)


def _apart(name: str, known: Mapping[str, tuple[str, Type]]) -> str:
    """What a column is called in the chain: not like one of the chain's own. Spark takes names that differ in the size
    of letters for one."""
    taken = {own.lower() for own, _ in known.values()}
    return f"c_{name}" if f"c_{name}".lower() not in taken else f"c_{name}_{len(known)}"


def _true_or_null(condition: Term) -> Term:
    return Call("case", (condition, TRUE, Value(None, BOOLEAN)), BOOLEAN)


def _printed(term: Term) -> Term:
    """As PostgreSQL shows it: a char(n) with its spaces."""
    return Call("pad", (term,), term.type) if term.type.kind == "char" else term
