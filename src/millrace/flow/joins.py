"""Joins of streams: each row with those of the other stream that happened within an interval of it.

Pairs alone are the kernel's, where the two streams can be taken as one; otherwise, and where rows without a pair are
wanted too, the join is Spark's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from millrace import durations
from millrace.errors import OptionInvalid, Where
from millrace.flow import lateness
from millrace.flow.columns import WATERMARK, named, time_of
from millrace.flow.late import Late, drop
from millrace.flow.nodes import caller
from millrace.flow.operators import note, note_line
from millrace.flow.time import Duration, duration_ms
from millrace.kernel import join as kernel
from millrace.kernel.calling import quoted
from millrace.kernel.kept import About
from millrace.kernel.told import KIND, RESULT

How: TypeAlias = Literal["inner", "left", "full"]
KINDS = ("inner", "left", "full")

_LEFT, _RIGHT = "left", "right"

# Of a key whose values are equal where their bytes are.
_EXACT = (BinaryType, BooleanType, DateType, DecimalType, IntegralType, TimestampNTZType, TimestampType)


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
        remedy = "leave it out, or say mr.late.drop(): a join counts late rows, and gives them to nobody"
        raise OptionInvalid(name="join", option="late", given=late, remedy=remedy, where=where)
    first_us, last_us = _interval(within, where)
    left_at, right_at = time_of(left, times[0], "join", where), time_of(right, times[1], "join", where)
    names = named("join", left.columns, right.columns, prefix, where)
    middle = _middle(left, left_at, keys)
    left, right = _timed_by(left, left_at), _timed_by(right, right_at)
    if how == "inner" and middle is not None and middle.takes(right, keys):
        return _joined(middle, left, right, right_at, (first_us, last_us), names, where)
    left, right = left.alias(_LEFT), right.alias(_RIGHT)
    left_time, right_time = _of(_LEFT, left_at), _of(_RIGHT, right_at)
    fits = right_time.between(left_time + _span(first_us), left_time + _span(last_us))
    for key in keys:
        # Said explicitly because Spark 4.3 takes two nulls for equal in a full join of streams (not of batches).
        fits = fits & (_of(_LEFT, key) == _of(_RIGHT, key)) & _of(_LEFT, key).isNotNull()
    joined = left.join(right, fits, {"inner": "inner", "left": "left_outer", "full": "full_outer"}[how])
    note_line(joined, where)
    return joined.select(
        *(
            F.coalesce(_of(_LEFT, name), _of(_RIGHT, name)).alias(name)
            if name in keys and how == "full"
            else _of(_LEFT, name)
            for name in left.columns
        ),
        *(_of(_RIGHT, name).alias(names[name]) for name in right.columns if name not in keys),
    )


@dataclass(frozen=True)
class _Ours:
    """What a join of the kernel is made of: its streams, the first one in the middle, and of each column of the result
    whose it is. A further join with the same key, around the same time, is one more stream of it."""

    keys: list[str]
    sides: tuple[kernel.Side, ...]
    times: tuple[str, ...]
    columns: dict[str, tuple[int, str]]

    def takes(self, right: DataFrame, keys: list[str]) -> bool:
        """Whether another stream can be added."""
        if keys != self.keys or not right.isStreaming:
            return False
        for key in keys:
            kinds = {_kept(frame.schema[key].dataType) for frame in (self.sides[0].rows, right)}
            if len(kinds) > 1 or not (kinds == {StringType()} or isinstance(kinds.pop(), _EXACT)):
                return False
        return all(kernel.can_unite(side.rows, right) for side in self.sides)

    def told(self) -> str:
        by = ", ".join(f"{key} {_kept(self.sides[0].rows.schema[key].dataType).simpleString()}" for key in self.keys)
        each = "; ".join(
            f"{side.rows.schema.simpleString()} at {time} from {' to '.join(map(_signed, side.within_us))}"
            for side, time in zip(self.sides, self.times, strict=True)
        )
        return f"joined by {by}: {each}"


# By the very DataFrame that a join has given. One made from it has other rows.
_made: WeakKeyDictionary[DataFrame, _Ours] = WeakKeyDictionary()


def _middle(left: DataFrame, at: str, keys: list[str]) -> _Ours | None:
    """What the left stream is, if the kernel can join something with it: one stream, or what it has joined already."""
    if not left.isStreaming:
        return None
    made = _made.get(left)
    if made is not None:
        return made if made.columns[at] == (0, made.times[0]) else None
    columns = {name: (0, name) for name in left.columns}
    return _Ours(keys, (_side(left, at, keys),), (at,), columns)


def _side(frame: DataFrame, at: str, keys: list[str], within_us: tuple[int, int] = (0, 0)) -> kernel.Side:
    time = F.col(quoted(at))
    by = [F.col(quoted(key)).cast(_kept(frame.schema[key].dataType)) for key in keys]
    return kernel.Side(lateness.timed(frame, time), by, time, within_us)


def _kept(type_: DataType) -> DataType:
    """The type under which a key is kept: integers are all alike."""
    return LongType() if isinstance(type_, IntegralType) else type_


def _signed(us: int) -> str:
    return f"{'-' if us < 0 else ''}{durations.spoken(abs(us) // 1_000)}"


def _joined(
    ours: _Ours,
    left: DataFrame,
    right: DataFrame,
    at: str,
    within_us: tuple[int, int],
    names: dict[str, str],
    where: Where,
) -> DataFrame:
    number = len(ours.sides)
    others = [field for field in right.schema if field.name not in ours.keys]
    columns = ours.columns | {names[field.name]: (number, field.name) for field in others}
    sides = (*ours.sides, _side(right, at, ours.keys, within_us))
    grown = _Ours(ours.keys, sides, (*ours.times, at), columns)
    note(grown.told(), f"late rows: {drop()}")
    about = About(kernel.OPERATOR, str(where), tuple(ours.keys))
    told = lateness.told("join", lambda: kernel.join(sides, about), drop(), where)
    fields = [(field.name, field) for field in left.schema] + [(names[field.name], field) for field in others]
    joined = told.where(F.col(KIND) == RESULT).select(
        *(_as_it_was(columns[name], field, name) for name, field in fields)
    )
    _made[joined] = grown
    return joined


def _as_it_was(of: tuple[int, str], field: StructField, name: str) -> Column:
    """Spark forgets behind an operator which column has the watermark, and that a time is never null."""
    column = F.col(f"{kernel.row_of(of[0])}.{quoted(of[1])}")
    if WATERMARK in field.metadata and not field.nullable:
        column = F.coalesce(column, F.timestamp_seconds(F.lit(0)))
    return column.alias(name, metadata=field.metadata)


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
