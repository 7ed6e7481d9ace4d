"""A chain of signed rows, in plain Python: what its tables hold, and what an epoch tells of them.

This is all there is to say: after every epoch a table holds what the plan gives of the tables as they then are, and the
epoch tells the difference from before. So there is no sign here but in `difference`, and no state. Columns have names;
in place of expressions stand the names alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Bag: TypeAlias = Counter[Row]

NAN = math.nan


def canonical(value: Any) -> Any:
    """What SQL takes for the same is the same: there is one zero, and one NaN, which equals itself."""
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    return value


def difference(before: Mapping[Row, int], after: Mapping[Row, int]) -> dict[Row, int]:
    """The signed rows that lead from one table to another."""
    found = {row: after.get(row, 0) - before.get(row, 0) for row in (*before, *after)}
    return {row: diff for row, diff in found.items() if diff}


def newest(diffs: Mapping[Row, int], key: int) -> dict[Row, int]:
    """Of a table in which a key, so many columns, has one row: where a row went and another came, that one alone."""
    come = {row[:key] for row, diff in diffs.items() if diff > 0}
    return {row: diff for row, diff in diffs.items() if diff > 0 or row[:key] not in come}


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: Bag

    def of(self, names: Sequence[str]) -> Callable[[Row], Row]:
        places = [self.columns.index(name) for name in names]
        return lambda row: tuple(canonical(row[place]) for place in places)


@dataclass(frozen=True)
class Measure:
    name: str
    kind: str
    of: tuple[str, ...] = ()
    order: tuple[tuple[str, bool, bool], ...] = ()


@dataclass(frozen=True)
class Chain:
    """The same steps as in `kernel/signed.py`."""

    tables: Mapping[str, Table]

    def table(self, name: str) -> Bag:
        return Counter({row: count for row, count in self.tables[name].rows.items() if count})

    def select(
        self, name: str, columns: Mapping[str, str], *, into: str, where: Callable[..., bool] | None = None
    ) -> Chain:
        """`columns` has a new name for each; `where` is given the row's values by name."""
        table, rows = self.tables[name], Bag()
        wanted = table.of(list(columns.values()))
        for row, count in table.rows.items():
            if where is None or where(**dict(zip(table.columns, row, strict=True))):
                rows[wanted(row)] += count
        return self._with({into: Table(tuple(columns), rows)}, name)

    def compute(
        self,
        name: str,
        columns: Mapping[str, Callable[[Mapping[str, Any]], Any]],
        *,
        into: str,
        where: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> Chain:
        """`select` with functions of a row."""
        table, rows = self.tables[name], Bag()
        for row, count in table.rows.items():
            values = dict(zip(table.columns, row, strict=True))
            if where is None or where(values) is True:
                rows[tuple(canonical(each(values)) for each in columns.values())] += count
        return self._with({into: Table(tuple(columns), rows)}, name)

    def copy(self, name: str, *, into: str) -> Chain:
        return self._with({into: self.tables[name]})

    def union(self, names: Sequence[str], *, into: str) -> Chain:
        rows = Bag()
        for name in names:
            rows.update(self.tables[name].rows)
        return self._with({into: Table(self.tables[names[0]].columns, rows)}, *names)

    def drop(self, name: str) -> Chain:
        return self._with({}, name)

    def join(self, left: str, right: str, *, on: Sequence[tuple[str, str]], how: str, into: str) -> Chain:
        ours, theirs = self.tables[left], self.tables[right]
        key, other_key = ours.of([mine for mine, _ in on]), theirs.of([other for _, other in on])
        partners: dict[Row, Bag] = {}
        for row, count in theirs.rows.items():
            if None not in other_key(row):
                partners.setdefault(other_key(row), Bag())[row] += count
        rows = Bag()
        for row, count in ours.rows.items():
            found = partners.get(key(row), Bag())
            if how in ("inner", "left"):
                for other, times in found.items():
                    rows[row + other] += count * times
            if how == "left" and not found:
                rows[row + (None,) * len(theirs.columns)] += count
            if how == ("semi" if found else "anti"):
                rows[row] += count
        columns = ours.columns + theirs.columns if how in ("inner", "left") else ours.columns
        return self._with({into: Table(columns, rows)}, left, right)

    def aggregate(self, name: str, *, by: Sequence[str], measures: Sequence[Measure], into: str) -> Chain:
        table = self.tables[name]
        key = table.of(by)
        groups: dict[Row, Bag] = {} if by else {(): Bag()}
        for row, count in table.rows.items():
            groups.setdefault(key(row), Bag())[row] += count
        rows = Bag(group + tuple(_measured(each, table, bag) for each in measures) for group, bag in groups.items())
        return self._with({into: Table((*by, *(each.name for each in measures)), rows)}, name)

    def distinct(self, name: str, *, into: str) -> Chain:
        return self.aggregate(name, by=self.tables[name].columns, measures=(), into=into)

    def top(
        self,
        name: str,
        *,
        by: Sequence[str],
        order: Sequence[tuple[str, bool, bool]],
        count: int,
        number: str | None,
        into: str,
    ) -> Chain:
        """The first rows of each group. `order` has a column, whether the greatest is first and whether nulls are;
        `number` is a column for a row's place from 1 on."""
        table = self.tables[name]
        key = table.of(by)
        groups: dict[Row, list[Row]] = {}
        for row in _sorted(table, table.rows, order):
            groups.setdefault(key(row), []).append(row)
        rows = Bag()
        for group in groups.values():
            for place, row in enumerate(group[:count], 1):
                rows[(*row, place) if number else row] += 1
        return self._with({into: Table((*table.columns, *([number] if number else [])), rows)}, name)

    def span(
        self, name: str, clock: str, *, since: Sequence[tuple[str, int]], until: Sequence[tuple[str, int]], into: str
    ) -> Chain:
        """The rows that are in at the last of the clock's times: from every time of `since` on, before every one of
        `until`, both with µs that are added; null is never."""
        table, rows = self.tables[name], Bag()
        now = max(_us(moment) for (moment,) in self.tables[clock].rows)
        bounds = table.of([column for column, _ in (*since, *until)])
        for row, count in table.rows.items():
            times = [None if each is None else _us(each) for each in bounds(row)]
            moved = [time + us for time, (_, us) in zip(times, (*since, *until), strict=True) if time is not None]
            from_, to = moved[: len(since)], moved[len(since) :]
            if None not in times and all(now >= each for each in from_) and all(now < each for each in to):
                rows[row] += count
        return self._with({into: Table(table.columns, rows)}, name, clock)

    def only(self, name: str, *, by: Sequence[str], into: str) -> Chain:
        """The same rows, of which no two have the same key; what is told of them is `newest`."""
        table = self.tables[name]
        assert len(set(map(table.of(by), table.rows))) == table.rows.total(), "a key with two rows"
        return self._with({into: table}, name)

    def consolidate(self, name: str, *, into: str) -> Chain:
        return self._with({into: self.tables[name]}, name)

    def _with(self, new: Mapping[str, Table], *gone: str) -> Chain:
        kept = {name: table for name, table in self.tables.items() if name not in gone}
        return Chain({**kept, **new})


def _us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@dataclass(frozen=True)
class _Way:
    """A value as it is ordered by."""

    value: Any
    way: tuple[str, bool, bool]

    def __lt__(self, other: _Way) -> bool:
        _, descending, nulls_first = self.way
        if self.value is None or other.value is None:
            return self.value is not other.value and (self.value is None) == nulls_first
        left, right = _place(self.value), _place(other.value)
        return bool(right < left if descending else left < right)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Way) and (self.value == other.value or self.value is other.value)


def _sorted(table: Table, rows: Bag, order: Sequence[tuple[str, bool, bool]]) -> list[Row]:
    placed = table.of([column for column, _, _ in order])
    return sorted(rows.elements(), key=lambda row: [_Way(*each) for each in zip(placed(row), order, strict=True)])


def _measured(measure: Measure, table: Table, rows: Bag) -> Any:
    """Of the values that are not null, as often as they are there."""
    if not measure.of:
        return rows.total()
    if measure.kind == "array":
        value = table.of(measure.of)
        return tuple(value(row)[0] for row in _sorted(table, rows, measure.order)) or None
    value, values = table.of(measure.of), Bag()
    for row, count in rows.items():
        if None not in value(row):
            values[value(row)] += count
    if measure.kind == "count":
        return values.total()
    if measure.kind == "distinct":
        return len(values)
    if not values:
        return None
    if measure.kind in ("min", "max"):
        best = min if measure.kind == "min" else max
        return best((each for (each,) in values), key=_place)
    return _sum(measure.kind, {each: count for (each,), count in values.items()})


def _sum(kind: str, values: Mapping[Any, int]) -> Any:
    count, first = sum(values.values()), next(iter(values))
    if isinstance(first, float):
        total = _real(values)
        return canonical(total if kind == "sum" else total / count)
    with localcontext(prec=100):
        whole = sum(value * times for value, times in values.items())
        if kind == "sum":
            return whole
        if isinstance(first, Decimal):
            digits = Decimal(1).scaleb(int(first.as_tuple().exponent) - 4)
            return (whole / count).quantize(digits, ROUND_HALF_UP)
        return float(whole) / count


def _real(values: Mapping[float, int]) -> float:
    """Rounded once."""
    unbounded = {value for value in values if not math.isfinite(value)}
    if unbounded:
        return sum(unbounded)
    try:
        return float(sum(Fraction(value) * times for value, times in values.items()))
    except OverflowError:
        return math.inf if sum(Fraction(value) * times for value, times in values.items()) > 0 else -math.inf


def _place(value: Any) -> Any:
    """By the bytes of a text; NaN is the greatest."""
    if isinstance(value, str):
        return value.encode()
    return (math.isnan(value), value) if isinstance(value, float) else value
