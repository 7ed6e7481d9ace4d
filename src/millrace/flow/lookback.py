"""Looking back from each event: aggregates over its key's events in the last minutes or hours of event time, exactly.

On a stream it is the kernel's; on a batch it is Spark's own window functions, and nothing is late.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace import durations
from millrace.errors import OptionInvalid, Where
from millrace.flow import lateness
from millrace.flow.aggregates import Aggregate, checked
from millrace.flow.columns import CLOSED, By, keys_of, looked_at, spoken, taken_out, time_of
from millrace.flow.late import Late
from millrace.flow.lookback_batch import batch
from millrace.flow.nodes import caller
from millrace.flow.operators import note
from millrace.flow.sketches import sketch_of
from millrace.flow.time import duration_ms
from millrace.flow.windows import END
from millrace.kernel import lookback as kernel
from millrace.kernel.calling import quoted
from millrace.kernel.kept import About
from millrace.kernel.told import ALLOWED, KIND, RESULT, ROW
from millrace.kernel.values import Unfit

CORRECTED = "corrected"


def lookback(
    rows: DataFrame,
    /,
    *,
    by: By,
    late: Late | None = None,
    time: str | None = None,
    correct: bool = False,
    **aggregates: Aggregate,
) -> DataFrame:
    """Each event with aggregates over the events of its key that happened in the time before it.

    `by` names the columns of the key. Each aggregate has its own `over`: of an event at time t it takes the events
    after t - over, up to t, itself and others at t among them. An event that comes out of order gets the result of its
    own time; with `correct` the events behind it whose results it changes are told again. `late` says what is done with
    events that come after the watermark: `mr.late.drop()`, `.allow(…)`, `.side(…)`. Columns: the event's, the
    aggregates and, with `correct`, `corrected`: whether the event was told before.

    Results that windows or `mr.top` told once, when they had closed, are events too, with `time="window_end"`: each
    comes when its window has closed, so none is late and `late` is not taken.
    """
    where = caller()
    wanted = checked("lookback", aggregates, where)
    closed = _closed(rows, time, late, where)
    chosen = _chosen(late, closed, where)
    at = F.col(quoted(END if closed else time_of(rows, time, "lookback", where)))
    keys = keys_of(rows, by, "lookback", where)
    _named(rows, wanted, correct, where)
    asked = {name: _asked(name, each, where) for name, each in wanted.items()}
    try:
        shape = kernel.Shape.of(rows, list(asked.values()))
    except Unfit as error:
        remedy = "sums, averages and positions are of numbers; the others also of texts and times"
        raise OptionInvalid(
            name="lookback", option="aggregates", given=str(error), remedy=remedy, where=where
        ) from None
    if not rows.isStreaming:
        return batch(rows, keys, at, asked, [CORRECTED] if correct else [])
    rows = lateness.timed(rows, at)
    grace_ms = chosen.grace_ms if chosen else 0
    note(_kept(rows, keys, shape, asked, grace_ms, correct), f"looks back, late rows: {chosen}")

    def build() -> DataFrame:
        about = About("lookback", str(where), tuple(keys))
        return kernel.lookback(
            rows,
            keys=keys,
            time=at,
            asked=asked,
            grace_us=grace_ms * 1_000,
            corrects=correct,
            closed=closed,
            about=about,
        )

    told = lateness.told("lookback", build, chosen, where) if chosen else build()
    return told.where(F.col(KIND).isin(RESULT, ALLOWED)).select(
        *taken_out(ROW, rows.schema),
        *(F.col(quoted(name)) for name in asked),
        *([F.col(kernel.CORRECTED).alias(CORRECTED)] if correct else []),
    )


def _closed(rows: DataFrame, time: str | None, late: Late | None, where: Where) -> bool:
    """Whether the rows are what windows told when they had closed. A batch does not say, and has nothing late."""
    if time != END or END not in rows.columns:
        return False
    grace_ms = rows.schema[END].metadata.get(CLOSED)
    if grace_ms:
        given = f"windows with a grace of {durations.spoken(grace_ms)}"
        remedy = "take windows with late.drop() or late.side(…): these are told again"
        raise OptionInvalid(name="lookback", option="rows", given=given, remedy=remedy, where=where)
    return grace_ms is not None or (late is None and not rows.isStreaming)


def _chosen(late: Late | None, closed: bool, where: Where) -> Late | None:
    if closed:
        if late is not None:
            remedy = "leave it out: the windows have been told what is late"
            raise OptionInvalid(name="lookback", option="late", given=late, remedy=remedy, where=where)
        return None
    chosen = lateness.chosen("lookback", late, where)
    if chosen.corrects:
        remedy = "mr.late.drop(), .allow(…) or .side(…); correct=True tells again what late events change"
        raise OptionInvalid(name="lookback", option="late", given=str(late), remedy=remedy, where=where)
    return chosen


def _named(rows: DataFrame, wanted: dict[str, Aggregate], correct: bool, where: Where) -> None:
    """Aggregates stand beside the event's columns. Spark takes names that differ only in case for the same."""
    taken = {name.casefold() for name in rows.columns}
    given = [*wanted, *([CORRECTED] if correct else [])]
    for name in given:
        if name.casefold() in taken:
            remedy = "give it another name: results have a column of that one"
            raise OptionInvalid(name="lookback", option=name, given="an aggregate", remedy=remedy, where=where)
        taken.add(name.casefold())


def _asked(name: str, aggregate: Aggregate, where: Where) -> kernel.Asked:
    assert aggregate.over is not None
    over_us = duration_ms("lookback", f"{name}'s over", aggregate.over, where) * 1_000
    if over_us <= 0:
        given = aggregate.over
        raise OptionInvalid(name="lookback", option=f"{name}'s over", given=given, remedy="longer than 0", where=where)
    if aggregate.kind == "last_n" and not (type(aggregate.most) is int and 1 <= aggregate.most <= kernel.MOST_VALUES):
        remedy = f"a whole number from 1 to {kernel.MOST_VALUES}"
        raise OptionInvalid(name="lookback", option=f"{name}'s n", given=aggregate.most, remedy=remedy, where=where)
    sketch = sketch_of("lookback", name, aggregate, where)
    return kernel.Asked(aggregate.kind, looked_at(aggregate), over_us, sketch.size if sketch else aggregate.most)


def _kept(
    rows: DataFrame,
    keys: dict[str, Column],
    shape: kernel.Shape,
    asked: dict[str, kernel.Asked],
    grace_ms: int,
    correct: bool,
) -> str:
    """In words, what the state means. With a longer interval or grace, events would be gone that it asks for."""
    longest = durations.spoken(max(each.over_us for each in asked.values()) // 1_000)
    by = spoken(rows, keys)
    grace = f", and for {durations.spoken(grace_ms)} more" if grace_ms else ""
    whole = f"; whole rows: {rows.schema.simpleString()}" if correct else ""
    return f"events of the last {longest}{grace}{by}: {shape}{whole}"
