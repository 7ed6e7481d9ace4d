"""Patterns of events: a regular expression over named conditions, by key, in the order of event time.

Names and meaning are those of SQL's MATCH_RECOGNIZE; an absence with a deadline is more than it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from millrace import durations
from millrace.errors import OptionInvalid, Where, nearest
from millrace.flow import lateness
from millrace.flow.aggregates import PLAIN, Aggregate
from millrace.flow.columns import By, keys_of, time_of
from millrace.flow.late import Late
from millrace.flow.nodes import caller
from millrace.flow.operators import note
from millrace.flow.places import Program, compiled
from millrace.flow.time import Duration, duration_ms
from millrace.kernel import match as kernel
from millrace.kernel.calling import quoted
from millrace.kernel.kept import About
from millrace.kernel.told import KIND, LATE_US, PARTIAL, RESULT
from millrace.kernel.values import Unfit

Order: TypeAlias = Literal["time", "arrival"]
Condition: TypeAlias = Column | str

START, END = "match_start", "match_end"
PAST_LAST, NEXT = "past last row", "next row"

# By how many partial matches have become more or fewer in an epoch, in an observation whose name begins so; Tally.java
# adds them up.
PARTIAL_METRIC, PARTIAL_MATCHES = "millrace.partial.", "partial"

_numbers = count(1)

# SQL's ways to look at other rows: conditions are computed before rows are put in order.
_OTHER_ROWS = re.compile(r"\b(prev|next|first|last|lag|lead)\s*\(", re.IGNORECASE)


def match(
    rows: DataFrame,
    /,
    *,
    by: By = (),
    pattern: str,
    define: Mapping[str, Condition],
    within: Duration | None = None,
    late: Late | None = None,
    measures: Mapping[str, Aggregate] | None = None,
    after: str = PAST_LAST,
    order: Order = "time",
    time: str | None = None,
) -> DataFrame:
    """Matches of a pattern among the rows of a key, in the order of their times: "small{3,} large".

    `define` says when a row is one of the pattern's variables, as SQL or a Column; one that it does not name is every
    row. A match spans less than `within`. `measures` are aggregates of a variable's rows: mr.last("large.amount"),
    mr.count("small"). `after` says where the next match may begin: "past last row", "next row", "first NAME" or "last
    NAME". `order="arrival"` takes rows as they come. Columns: the key, `match_start`, `match_end` (the times of the
    first and the last row), the measures.
    """
    where = caller()
    program = compiled(_checked_text(pattern, where), where)
    within_us = _within_us(within, where)
    late = _chosen(late, where)
    if order not in ("time", "arrival"):
        remedy = 'choose "time" (exact, once the watermark has passed a row) or "arrival" (at once, as rows come)'
        raise OptionInvalid(name="match", option="order", given=order, remedy=remedy, where=where)
    how, number = _after(after, program, where)
    at = F.col(quoted(time_of(rows, time, "match", where)))
    keys = keys_of(rows, by, "match", where)
    conditions = _conditions(rows, define, program, where)
    wanted = {name: _measure(rows, name, each, program, where) for name, each in (measures or {}).items()}
    for column in (*keys, *wanted):
        if column in (START, END) or (column in keys and column in wanted):
            remedy = "give it another name: matches have a column of that one"
            raise OptionInvalid(name="match", option=column, given="a key or measure", remedy=remedy, where=where)
    settings = kernel.MatchSettings(
        program.told(), within_us, how, number, arrival=order == "arrival", keeps_refused=late.topic is not None
    )
    streams = rows.isStreaming
    if streams:
        rows = lateness.timed(rows, at)
        span = f"within {durations.spoken(within_us // 1_000)}, after a match {after}, in order of {order}"
        note(f"matches of {pattern} {span}{_kept(rows, keys, program, conditions, wanted)}", f"late rows: {late}")
    else:
        rows = rows.where(at.isNotNull())

    def build() -> DataFrame:
        about = About("match", str(where), tuple(keys), {"variables": list(program.variables)})
        found = kernel.matches(
            rows, keys=keys, time=at, conditions=conditions, measures=wanted, settings=settings, about=about
        )
        return _counted(found) if streams else found

    try:
        told = lateness.told("match", build, late, where) if streams else build()
    except Unfit as error:
        remedy = "sums and averages are of numbers; least, greatest, first, last and distinct also of texts and times"
        raise OptionInvalid(name="match", option="measures", given=str(error), remedy=remedy, where=where) from None
    return told.where(F.col(KIND) == RESULT).select(
        *(F.col(quoted(key)) for key in keys),
        F.col(kernel.START).alias(START),
        F.col(kernel.END).alias(END),
        *(F.col(quoted(name)) for name in wanted),
    )


def _counted(told: DataFrame) -> DataFrame:
    """Without what is told of partial matches, which are counted."""
    more = F.coalesce(F.sum(F.when(F.col(KIND) == PARTIAL, F.col(LATE_US))), F.lit(0)).alias(PARTIAL_MATCHES)
    return told.observe(f"{PARTIAL_METRIC}{next(_numbers)}", more).where(F.col(KIND) != PARTIAL)


def _checked_text(pattern: object, where: Where) -> str:
    if not isinstance(pattern, str):
        remedy = 'a text, for example "small{3,} large"'
        raise OptionInvalid(name="match", option="pattern", given=pattern, remedy=remedy, where=where)
    return pattern


def _within_us(within: Duration | None, where: Where) -> int:
    if within is None:
        remedy = 'say how long a match may take, within="10 minutes": otherwise rows would be kept for ever'
        raise OptionInvalid(name="match", option="within", given=within, remedy=remedy, where=where)
    found = duration_ms("match", "within", within, where) * 1_000
    if found <= 0:
        raise OptionInvalid(name="match", option="within", given=within, remedy="longer than nothing", where=where)
    return found


def _chosen(late: Late | None, where: Where) -> Late:
    remedy = "choose mr.late.drop() or mr.late.side(…): a match that was told is not taken back"
    if not isinstance(late, Late) or late.kind not in ("drop", "side") or late.grace_ms:
        raise OptionInvalid(name="match", option="late", given=late and str(late), remedy=remedy, where=where)
    return late


def _after(after: str, program: Program, where: Where) -> tuple[str, int]:
    """How it is called, and the number of the variable that it names."""
    if after in (PAST_LAST, NEXT):
        return after, -1
    taken = [place.variable for place in program.places]
    how, _, name = after.partition(" ") if isinstance(after, str) else ("", "", "")
    if how in ("first", "last") and name in taken:
        return how, program.variables.index(name)
    remedy = 'choose "past last row", "next row", "first NAME" or "last NAME", with a name of the pattern'
    raise OptionInvalid(name="match", option="after", given=after, remedy=remedy, where=where)


def _conditions(rows: DataFrame, define: Mapping[str, Condition], program: Program, where: Where) -> list[Column]:
    if len(program.variables) > kernel.MOST_VARIABLES:
        given, remedy = len(program.variables), f"at most {kernel.MOST_VARIABLES} names in a pattern"
        raise OptionInvalid(name="match", option="pattern", given=given, remedy=remedy, where=where)
    for name, condition in define.items():
        if name not in program.variables:
            remedy = f"take it out, or name it in the pattern{nearest(name, program.variables)}"
            raise OptionInvalid(name="match", option="define", given=name, remedy=remedy, where=where)
        if isinstance(condition, str) and _OTHER_ROWS.search(condition):
            remedy = f"{name!r} can look at one row alone: add what it needs of others as a column before"
            raise OptionInvalid(name="match", option="define", given=condition, remedy=remedy, where=where)
    found = []
    for name in program.variables:
        condition = define.get(name, F.lit(True))
        column = F.expr(condition) if isinstance(condition, str) else condition
        if not isinstance(column, Column) or rows.select(column).schema[0].dataType != BooleanType():
            remedy = f"{name!r} is a condition, as SQL or a Column: \"amount > 100\", F.col('amount') > 100"
            raise OptionInvalid(name="match", option="define", given=str(condition), remedy=remedy, where=where)
        found.append(column)
    return found


def _measure(rows: DataFrame, name: str, aggregate: object, program: Program, where: Where) -> kernel.Measure:
    """A text is "variable.column", or of a count the variable alone; without a variable it looks at every row."""
    if not isinstance(aggregate, Aggregate):
        remedy = "an aggregate, for example mr.last('large.amount') or mr.count('small')"
        raise OptionInvalid(name="match", option=name, given=aggregate, remedy=remedy, where=where)
    if aggregate.kind not in PLAIN:
        remedy = f"matches have {', '.join(f'mr.{kind}' for kind in PLAIN)}"
        raise OptionInvalid(name="match", option=name, given=f"mr.{aggregate.kind}", remedy=remedy, where=where)
    if not isinstance(aggregate.of, str):
        return kernel.Measure(aggregate.kind, None, aggregate.of)
    head, dot, rest = aggregate.of.partition(".")
    numbers = {each: number for number, each in enumerate(program.variables)}
    variable, text = (numbers[head], rest) if head in numbers else (None, aggregate.of)
    if variable is not None and not dot:
        if aggregate.kind == "count":
            return kernel.Measure("count", variable, None)
        remedy = f"{head!r} is a variable: name a column of its rows, mr.{aggregate.kind}('{head}.amount')"
        raise OptionInvalid(name="match", option=name, given=aggregate.of, remedy=remedy, where=where)
    if aggregate.kind == "count":
        return kernel.Measure("count", variable, F.expr(text))
    if text not in rows.columns:
        remedy = f"name a column, or a column of a variable's rows{nearest(text, rows.columns)}"
        raise OptionInvalid(name="match", option=name, given=aggregate.of, remedy=remedy, where=where)
    return kernel.Measure(aggregate.kind, variable, F.col(quoted(text)))


def _kept(
    rows: DataFrame,
    keys: Mapping[str, Column],
    program: Program,
    conditions: Sequence[Column],
    measures: Mapping[str, kernel.Measure],
) -> str:
    """In words, what the state means: flags and values of rows, and places of the pattern."""
    types = rows.select(*keys.values()).schema.fields if keys else []
    by = "".join(f" by {field.name} {field.dataType.simpleString()}" for field in types)
    flags = ", ".join(f"{name} is {column}" for name, column in zip(program.variables, conditions, strict=True))
    values = ", ".join(
        f"{each.kind} of {each.variable} {each.of} {rows.select(each.of).schema[0].dataType.simpleString()}"
        for each in measures.values()
        if each.of is not None
    )
    return f"{by}: {flags}; {values}"
