"""Windows of event time over a DataFrame: tumbling, hopping, sessions.

On a stream they are the kernel's, which tells late rows apart; on a batch they are Spark's own, and nothing is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType

from millrace import durations
from millrace.errors import OptionInvalid, Where
from millrace.flow import lateness
from millrace.flow.aggregates import Aggregate, checked
from millrace.flow.columns import CLOSED, By, keys_of, looked_at, spoken, time_of
from millrace.flow.edges import Edges, edges
from millrace.flow.late import Late
from millrace.flow.nodes import caller
from millrace.flow.operators import note
from millrace.flow.sketches import sketch_of
from millrace.flow.time import Duration, duration_ms
from millrace.kernel import sketches
from millrace.kernel import windows as kernel
from millrace.kernel.calling import quoted, words
from millrace.kernel.kept import About
from millrace.kernel.told import KIND, RESULT
from millrace.kernel.values import Unfit

if TYPE_CHECKING:
    from millrace.flow.nodes import Emit

START, END, REPLACES = "window_start", "window_end", "replaces"
EMISSIONS = ("final", "updates")


def window(
    rows: DataFrame,
    size: Duration,
    /,
    *,
    by: By = (),
    every: Duration | None = None,
    offset: Duration = "0 seconds",
    zone: str | None = None,
    emit: Emit | None = None,
    late: Late | None = None,
    time: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """Aggregates of windows that are `size` long; a new one begins every `every` (as long as they are, unless said).

    `by` names the columns of a key. `emit` says when results are told: "final", once, when the window has closed, or
    "updates", whenever they change. `late` says what is done with rows that come after: `mr.late.drop()`, `.allow(…)`,
    `.side(…)`, `.update(…)`. Columns: the key, `window_start`, `window_end`, the aggregates.
    """
    where = caller()
    return _windows(rows, edges(size, every, offset, zone, where), 0, by, emit, late, time, aggregates, where)


def session(
    rows: DataFrame,
    gap: Duration,
    /,
    *,
    by: By = (),
    emit: Emit | None = None,
    late: Late | None = None,
    time: str | None = None,
    **aggregates: Aggregate,
) -> DataFrame:
    """Aggregates of sessions: the events of a key with less than `gap` between each and the next. A session ends `gap`
    after its last event. Where results can change after they were told, `replaces` names those that are no longer true:
    an event between two sessions makes them one."""
    where = caller()
    gap_us = duration_ms("session", "gap", gap, where) * 1_000
    if gap_us <= 0:
        raise OptionInvalid(name="session", option="gap", given=gap, remedy="longer than nothing", where=where)
    return _windows(rows, None, gap_us, by, emit, late, time, aggregates, where)


def _windows(
    rows: DataFrame,
    shape: Edges | None,
    gap_us: int,
    by: By,
    emit: Emit | None,
    late: Late | None,
    time: str | None,
    given: dict[str, Aggregate],
    where: Where,
) -> DataFrame:
    name = "window" if shape else "session"
    wanted = checked(name, given, where)
    if emit not in EMISSIONS:
        remedy = 'choose "final" (once, when the window has closed) or "updates" (whenever results change)'
        raise OptionInvalid(name=name, option="emit", given=emit, remedy=remedy, where=where)
    late = lateness.chosen(name, late, where)
    at = F.col(quoted(time_of(rows, time, name, where)))
    keys = keys_of(rows, by, name, where)
    for column in (*keys, *wanted):
        if column in (START, END, REPLACES) or (column in keys and column in wanted):
            remedy = "give it another name: results have a column of that one"
            raise OptionInvalid(name=name, option=column, given="a key or aggregate", remedy=remedy, where=where)
    values = {column: _value(name, column, each, where) for column, each in wanted.items()}
    if not rows.isStreaming:
        with _fitting(name, where):
            return _batch(rows, shape, gap_us, keys, at, values)
    # A longer grace would find the state of windows gone that it still takes rows for.
    until = f", until {durations.spoken(late.grace_ms)} after their end" if late.grace_ms else ""
    rows = lateness.timed(rows, at)
    # Slices are shared by windows, so none of these may take rows after its end, nor know what it told before.
    slices = shape.slices if shape is not None and not late.grace_ms and not late.corrects else (0, 0)
    parts = " in slices" if any(slices) else ""
    note(f"{_kept(rows, shape, gap_us, keys, values)}{until}{parts}", f"emits {emit}, late rows: {late}")
    settings = kernel.WindowSettings(
        gap_us,
        late.grace_ms * 1_000,
        once=emit == "final",
        keeps_refused=late.topic is not None,
        slices=slices,
    )

    def build() -> DataFrame:
        about = About(name, str(where), tuple(keys))
        return kernel.windows(rows, keys=keys, time=at, edges=shape, values=values, settings=settings, about=about)

    with _fitting(name, where):
        told = lateness.told(name, build, late, where)
    # A session's edges move, so whoever holds its results by them has to be told which are gone.
    replaced = late.corrects or (shape is None and (emit == "updates" or late.grace_ms > 0))
    return told.where(F.col(KIND) == RESULT).select(
        *(F.col(quoted(key)) for key in keys),
        F.col(kernel.START).alias(START),
        F.col(kernel.END).alias(END, metadata={CLOSED: late.grace_ms} if emit == "final" else {}),
        *(F.col(quoted(column)) for column in values),
        *([F.col(kernel.REPLACES).alias(REPLACES)] if replaced else []),
    )


def _value(operator: str, name: str, aggregate: Aggregate, where: Where) -> kernel.Value:
    (column,) = looked_at(aggregate)
    return kernel.Value(aggregate.kind, column, sketch_of(operator, name, aggregate, where))


@contextmanager
def _fitting(operator: str, where: Where) -> Iterator[None]:
    """Says of an aggregate over a type that it cannot take what it can."""
    try:
        yield
    except Unfit as error:
        remedy = "sums and averages are of numbers, quantiles of numbers and times; the others also of texts"
        raise OptionInvalid(name=operator, option="aggregates", given=str(error), remedy=remedy, where=where) from None


def _kept(
    rows: DataFrame,
    shape: Edges | None,
    gap_us: int,
    keys: dict[str, Column],
    values: dict[str, kernel.Value],
) -> str:
    """In words, what the window's state means."""
    what = f"windows of {shape}" if shape else f"sessions with a gap of {durations.spoken(gap_us // 1_000)}"
    by = spoken(rows, keys)
    held = ", ".join(_words(value, rows.select(value.column).schema[0].dataType) for value in values.values())
    return f"{what}{by}: {held}"


def _words(value: kernel.Value, type_: DataType) -> str:
    # Which ranks are asked for, and how many values, may change: what is held is the same.
    kind = f"{value.kind.removesuffix('s')} {value.sketch.size}" if value.sketch else value.kind
    return f"{kind} of {words(value.column)} {type_.simpleString()}"


def _batch(
    rows: DataFrame,
    shape: Edges | None,
    gap_us: int,
    keys: dict[str, Column],
    at: Column,
    values: dict[str, kernel.Value],
) -> DataFrame:
    """The same by Spark's own operators, over everything there is."""
    types = {name: rows.select(value.column).schema[0].dataType for name, value in values.items()}
    wanted = [_native(value, at, types[name]).alias(name) for name, value in values.items()]
    named = [column.alias(name) for name, column in keys.items()]
    if shape is None:
        # Spark's own session also takes an event that comes exactly the gap after the last one.
        own = F.session_window(at, f"{gap_us - 1} microseconds")
        found = rows.groupBy(*named, own.alias("__window")).agg(*wanted)
        start, end = F.col("__window.start"), F.timestamp_micros(F.unix_micros("__window.end") + 1)
    else:
        placed = rows.select("*", F.explode(shape.of(at)).alias("__window"))
        found = placed.groupBy(*named, "__window").agg(*wanted)
        start, end = F.timestamp_micros("__window.start"), F.timestamp_micros("__window.end")
    return found.select(
        *(F.col(quoted(key)) for key in keys),
        start.alias(START),
        end.alias(END),
        *(F.col(quoted(name)) for name in values),
    )


def _native(value: kernel.Value, at: Column, type_: DataType) -> Column:
    kind, column = value.kind, value.column
    if value.sketch is not None:
        return sketches.batch(kind, column, type_, value.sketch)
    if kind == "count":
        return F.count(F.when(column, 1)) if isinstance(type_, BooleanType) else F.count(column)
    if kind in ("first", "last"):
        pair = F.when(column.isNotNull(), F.struct(at.alias("at"), column.alias("value")))
        return (F.min(pair) if kind == "first" else F.max(pair))["value"]
    functions = {"sum": F.sum, "avg": F.avg, "min": F.min, "max": F.max, "distinct": F.count_distinct}
    return functions[kind](column)
