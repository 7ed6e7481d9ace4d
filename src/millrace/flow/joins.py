"""Joins of streams: each row with those of the other stream that happened within an interval of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.errors import OptionInvalid, Where
from millrace.flow.columns import WATERMARK, named, time_of
from millrace.flow.late import Late, drop
from millrace.flow.nodes import caller
from millrace.flow.time import Duration, duration_ms
from millrace.kernel.calling import quoted

How: TypeAlias = Literal["inner", "left", "full"]
KINDS = ("inner", "left", "full")

_LEFT, _RIGHT = "left", "right"


def join(
    left: DataFrame,
    right: DataFrame,
    /,
    *,
    on: str | Sequence[str],
    within: tuple[Duration, Duration],
    how: How = "inner",
    prefix: str = "right_",
    times: tuple[str | None, str | None] = (None, None),
    late: Late | None = None,
) -> DataFrame:
    """Rows of two streams with equal `on` columns, the right one between `within[0]` and `within[1]` after the left one
    (both edges count; "-5 minutes" is before it).

    `how`: "inner" gives pairs; "left" also each left row that has none, once the interval has passed; "full" those of
    both sides. Columns: the left ones, then the right ones; a right one whose name is taken gets the prefix. `times`
    names the time columns where a stream has several. A row behind the watermark is counted and joins nothing; `late`
    can say so, `mr.late.drop()`, and nothing else.
    """
    where = caller()
    keys = [on] if isinstance(on, str) else list(on)
    for name, frame in ((_LEFT, left), (_RIGHT, right)):
        for key in keys or [""]:
            if key not in frame.columns:
                remedy = f"name columns that both streams have; the {name} one has {', '.join(frame.columns)}"
                raise OptionInvalid(name="join", option="on", given=key or on, remedy=remedy, where=where)
    if how not in KINDS:
        remedy = 'choose "inner", "left" or "full"'
        raise OptionInvalid(name="join", option="how", given=how, remedy=remedy, where=where)
    if late is not None and late != drop():
        remedy = "leave it out, or say mr.late.drop(): Spark's own join counts late rows, and gives them to nobody"
        raise OptionInvalid(name="join", option="late", given=late, remedy=remedy, where=where)
    first_us, last_us = _interval(within, where)
    left_at, right_at = time_of(left, times[0], "join", where), time_of(right, times[1], "join", where)
    names = named("join", left.columns, right.columns, prefix, where)
    left, right = _timed_by(left, left_at).alias(_LEFT), _timed_by(right, right_at).alias(_RIGHT)
    left_time, right_time = _of(_LEFT, left_at), _of(_RIGHT, right_at)
    fits = right_time.between(left_time + _span(first_us), left_time + _span(last_us))
    for key in keys:
        # Said explicitly because Spark 4.3 takes two nulls for equal in a full join of streams (not of batches).
        fits = fits & (_of(_LEFT, key) == _of(_RIGHT, key)) & _of(_LEFT, key).isNotNull()
    joined = left.join(right, fits, {"inner": "inner", "left": "left_outer", "full": "full_outer"}[how])
    return joined.select(
        *(
            F.coalesce(_of(_LEFT, name), _of(_RIGHT, name)).alias(name)
            if name in keys and how == "full"
            else _of(_LEFT, name)
            for name in left.columns
        ),
        *(_of(_RIGHT, name).alias(names[name]) for name in right.columns if name not in keys),
    )


def _timed_by(rows: DataFrame, at: str) -> DataFrame:
    """Spark wants one time column a side, and behind a join there are two: the other becomes a column like any."""
    for field in rows.schema:
        if WATERMARK in field.metadata and field.name != at:
            rest = {key: value for key, value in field.metadata.items() if key != WATERMARK}
            rows = rows.withMetadata(field.name, rest)
    return rows


def _interval(within: Any, where: Where) -> tuple[int, int]:
    """From and to, in µs after the left row."""
    if not isinstance(within, tuple | list) or len(within) != 2:
        remedy = (
            'an interval after the left row, ("0 seconds", "30 minutes"): otherwise all rows would be kept for ever'
        )
        raise OptionInvalid(name="join", option="within", given=within, remedy=remedy, where=where)
    first, last = (_signed_us(each, where) for each in within)
    if first > last:
        remedy = "the earlier one first"
        raise OptionInvalid(name="join", option="within", given=within, remedy=remedy, where=where)
    return first, last


def _signed_us(given: Duration, where: Where) -> int:
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration_ms("join", "within", given.strip()[1:], where) * 1_000
    return duration_ms("join", "within", given, where) * 1_000


def _span(length_us: int) -> Column:
    """Written as an interval: it is what Spark looks for when it works out how long to keep a row."""
    return F.expr(f"INTERVAL '{length_us}' MICROSECONDS")


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}")
