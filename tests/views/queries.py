"""Random queries of the grammar that views support: which expressions and which shapes there are."""

from __future__ import annotations

import random
from collections.abc import Sequence, Set

from tests.views.worlds import TYPES, Made, tables
from tests.views.writer import Form, Query, Shape, Source, Writer

_TRIES, _ENOUGH = 40, 1_500


def _form(name: str, template: str) -> Form:
    """A production: `{i}` and so on are expressions of that family, `[i]` literals."""

    def made(self: Writer, source: Source, depth: int) -> str:
        self.used.add(name)
        found, place = "", 0
        while place < len(template):
            if template[place] == "{":
                found += self.of(template[place + 1], source, depth)
                place += 3
            elif template[place] == "[":
                found += self.literal(template[place + 1])
                place += 3
            else:
                found += template[place]
                place += 1
        return found

    return made


def _case(family: str) -> Form:
    def made(self: Writer, source: Source, depth: int) -> str:
        self.used.add("case")
        condition, value = self.condition(source, depth), self.of(family, source, depth)
        other = f" ELSE {self.of(family, source, depth)}" if self.draw.random() < 0.7 else ""
        return f"CASE WHEN {condition} THEN {value}{other} END"

    return made


def _told(name: str, family: str, template: str) -> Form:
    """What is told of a column, if there is one of this family."""

    def made(self: Writer, source: Source, depth: int) -> str:
        own = [reference for reference, _, kind in source.columns if kind == family]
        if not own:
            return self.of("s", source, 0)
        self.used.add(f"{name} as text" if "::" in template else name)
        return template.format(self.draw.choice(own))

    return made


def _shared(family: str) -> list[Form]:
    return [
        _form("coalesce", f"coalesce({{{family}}}, {{{family}}})"),
        _form("nullif", f"nullif({{{family}}}, {{{family}}})"),
        _case(family),
    ]


FORMS: dict[str, list[Form]] = {
    "i": [
        _form("+ of whole", "({i} + {i})"),
        _form("- of whole", "({i} - {i})"),
        _form("* of whole", "({i} * [i])"),
        _form("/ of whole", "({i} / nullif({i}, 0))"),
        _form("% of whole", "({i} % nullif({i}, 0))"),
        _form("negation", "(- {i})"),
        _form("abs", "abs({i})"),
        _form("length", "length({s})"),
        _form("position", "position({s} in {s})"),
        _form("cast of numeric to whole", "({n})::integer"),
        _form("cast of double to whole", "({f} / 1e9::double precision)::integer"),
        _form("cast to bigint", "({i})::bigint"),
        _form("days", "({d} - {d})"),
        _form("greatest", "greatest({i}, {i})"),
        *_shared("i"),
    ],
    "n": [
        _form("+ of numeric", "({n} + {n})"),
        _form("- of numeric", "({n} - {i})"),
        _form("* of numeric", "({n} * {n})"),
        _form("% of numeric", "({n} % nullif({n}, 0))"),
        _form("round", "round({n}, 1)"),
        _form("round of a quotient", "round({w}, 3)"),
        _form("trunc", "trunc({n}, 1)"),
        _form("ceil", "ceil({n})"),
        _form("floor", "floor({n})"),
        _form("cast to numeric", "({n})::numeric(14,1)"),
        _form("extract", "extract(year from {d})"),
        _form("extract", "extract(dow from {m})"),
        _form("extract", "extract(second from {m})"),
        _form("extract", "extract(week from {d})"),
        _form("seconds", "extract(epoch from ({m} - {m}))"),
        _form("epoch", "extract(epoch from {z})"),
        _form("least", "least({n}, {i})"),
        _form("nullif of different types", "nullif({i}, {n})"),
        *_shared("n"),
    ],
    "w": [
        _form("/ of numeric", "({n} / nullif({n}, 0))"),
        _form("/ of numeric and whole", "({n} / nullif({i}, 0))"),
        _form("/ of quotients", "({w} / nullif({w}, 0))"),
        _form("+ of quotients", "({w} + {n})"),
        _form("* of quotients", "({w} * {i})"),
        _form("- of quotients", "(- {w} - {w})"),
        *_shared("w"),
    ],
    "f": [
        _form("+ of double", "({f} + {f})"),
        _form("* of double", "({f} * {i})"),
        _form("/ of double", "({f} / nullif({f}, 0))"),
        _form("double and numeric", "({f} - {n})"),
        _form("cast to double", "({n})::double precision"),
        _form("round of double", "round({f})"),
        _form("coalesce of double and numeric", "coalesce({f}, {n})"),
        *_shared("f"),
    ],
    "s": [
        _form("||", "({s} || {s})"),
        _form("|| with whole", "({s} || {i})"),
        _form("|| with char", "({c} || {s})"),
        _form("substring", "substring({s} from 2 for 2)"),
        _form("substring", "substring({s}, 0, 2)"),
        _form("left", "left({s}, 1)"),
        _form("trim", "trim({s})"),
        _form("replace", "replace({s}, {s}, [s])"),
        _form("lower", 'lower({s} COLLATE "C")'),
        _form("upper", 'upper({s} COLLATE "C")'),
        _form("concat", "concat({s}, {s})"),
        _form("cast to text", "({i})::text"),
        _form("cast to text", "({b})::text"),
        _form("cast to varchar", "({s})::varchar(2)"),
        _told("time", "t", "({0})::text"),
        _told("enum", "e", "({0})::text"),
        _told("uuid", "u", "({0})::text"),
        _told("member of json", "j", "({0} ->> 'a')"),
        _told("member of a member", "j", "({0} -> 'b' ->> 'c')"),
        *_shared("s"),
    ],
    "c": [_form("cast to char", "({s})::char(4)"), *_shared("c")],
    "b": [
        Writer.compared, Writer.compared, Writer.listed, Writer.between, Writer.known, Writer.same, Writer.connected,
        Writer.negated, Writer.truth, Writer.labelled, Writer.like, _form("char and a literal", "({c} = 'ab  ')"),
        _form("char and text", "({c}::text = {s})"), *_shared("b"),
    ],
    "d": [
        _form("date + whole", "({d} + [i])"),
        _form("date - whole", "({d} - [i])"),
        _form("cast to date", "({m})::date"),
        *_shared("d"),
    ],
    "m": [
        _form("date_trunc", "date_trunc('month', {m})"),
        _form("date_trunc", "date_trunc('week', {m})"),
        _form("date_trunc", "date_trunc('hour', {m})"),
        _form("timestamp + interval", "({m} + interval '1 month 2 days 03:00')"),
        _form("timestamp + interval", "({m} - interval '1 day 12:00')"),
        _form("timestamp + interval", "({m} + interval '1.5 days -2 hours')"),
        _form("timestamp + interval", "({m} + interval '2 mons 1 week ago')"),
        _form("date - interval", "({d} - interval '1 day')"),
        _form("cast to timestamp", "({d})::timestamp"),
        _form("at time zone", "({z} at time zone 'UTC')"),
        *_shared("m"),
    ],
    "z": [
        _form("timestamptz + interval", "({z} + interval '36 hours')"),
        _form("at time zone", "({m} at time zone 'UTC')"),
        *_shared("z"),
    ],
    "t": _shared("t"),
    "u": _shared("u"),
}  # fmt: skip
SHAPES: tuple[Shape, ...] = (
    Writer.plain, Writer.plain, Writer.grouped, Writer.grouped, Writer.grouped, Writer.united, Writer.topmost,
    Writer.numbered, Writer.with_, Writer.scalar, Writer.self_join, Writer.using, Writer.filtered_join,
    Writer.first_of, Writer.above, Writer.of_keys, Writer.shadowed,
)  # fmt: skip


def query(draw: random.Random, tables: list[Made], wanted: Set[str] = frozenset()) -> Query:
    """A query; one with a production that is still wanted, if a few tries find one."""
    for _ in range(_TRIES):
        writer = Writer(draw, tables, FORMS, SHAPES)
        sql, _ = writer.select(draw.choice((0, 1, 1, 2)))
        if not wanted or wanted & writer.used:
            break
    return Query(sql, writer.used)


def productions(types: Sequence[str] = TYPES) -> frozenset[str]:
    """All there are, over tables of these types."""
    draw = random.Random(0)
    found: set[str] = set()
    for _ in range(_ENOUGH):
        found |= query(draw, tables(draw, types)).used
    return frozenset(found)
