"""The best rows of each key, and the newest one: as they change, or of windows when they have closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from millrace import durations
from millrace.errors import OptionInvalid, TimeUnknown, Where, nearest
from millrace.flow import lateness
from millrace.flow.columns import CLOSED, WATERMARK, By, keys_of, time_of
from millrace.flow.late import Late
from millrace.flow.nodes import caller
from millrace.flow.operators import note
from millrace.flow.time import Duration, duration_ms
from millrace.flow.windows import EMISSIONS, END
from millrace.kernel import top as kernel
from millrace.kernel.calling import quoted, words
from millrace.kernel.kept import About
from millrace.kernel.told import KIND, RESULT, ROW

if TYPE_CHECKING:
    from millrace.flow.nodes import Emit

OrderBy: TypeAlias = str | Column | Sequence[str | Column]

RANK, DIFF = "rank", kernel.DIFF
# All of them are told again when the first one changes.
MOST = 1_000


@dataclass(frozen=True)
class _Asked:
    """`order` has columns, and whether the greatest is first."""

    operator: str
    n: int
    keys: dict[str, Column]
    order: list[tuple[Column, bool]]
    of: list[str] | None
    updates: bool
    time: str | None
    ttl_ms: int
    where: Where

    def refused(self, option: str, given: object, remedy: str) -> OptionInvalid:
        return OptionInvalid(name=self.operator, option=option, given=given, remedy=remedy, where=self.where)


def top(
    rows: DataFrame,
    n: int,
    /,
    *,
    by: By = (),
    order: OrderBy,
    of: str | Sequence[str] | None = None,
    emit: Emit | None = None,
    late: Late | None = None,
    time: str | None = None,
    ttl: Duration | None = None,
) -> DataFrame:
    """The first `n` rows of each key `by`, in an order: a column's name, with a minus in front for the greatest first,
    or a Column, or several of these. Nulls are last.

    `of` names the columns by which a row is known within its key: the later one (by its `time`; without one, by when it
    comes) takes the place of the earlier, until `ttl` after the last. Without it each row is its own.

    `emit="updates"` tells what has changed, as signed rows: the columns of the rows, `rank` from 1 on, and `__diff`: -1
    for what went, +1 for what came. With `window_end` among `by` this ends with the window, and `emit="final"` tells
    the rows and their `rank` once, when it has closed. `late` is needed where something ends: for rows that come after.
    A batch is taken as a whole: nothing is late and nothing ends.
    """
    where = caller()
    named = None if of is None else [of] if isinstance(of, str) else list(of)
    asked = _asked("top", rows, n, by, _order("top", rows, order, where), named or None, emit, time, ttl, where)
    for name in (RANK, DIFF):
        if name in rows.columns:
            raise asked.refused("rows", name, "rename that column: results have one of that name")
    return _ranked(rows, asked, late)


def latest(
    rows: DataFrame,
    /,
    *,
    by: By,
    order: OrderBy | None = None,
    late: Late | None = None,
    time: str | None = None,
    ttl: Duration | None = None,
) -> DataFrame:
    """The newest row of each key, as signed rows: the columns of the rows, and `__diff`: -1 for the one that was, +1
    for the one that is. The newest is the last by event time, or the greatest by `order`.

    With a `ttl`, of event time, a row goes that long after its time if none has come; rows that come when they would
    be gone are late.
    """
    where = caller()
    if order is not None and ttl is not None:
        remedy = "leave out one of them: by another order an older row may live longer, which is not kept"
        raise OptionInvalid(name="latest", option="ttl", given=ttl, remedy=remedy, where=where)
    if order is None:
        order = [f"-{time_of(rows, time, 'latest', where)}"]
        parsed = _order("latest", rows, order, where)
    else:
        parsed = [(column, not descending) for column, descending in _order("latest", rows, order, where)]
    if DIFF in rows.columns:
        remedy = "take the rows of a stream: these are changes of some"
        raise OptionInvalid(name="latest", option="rows", given=DIFF, remedy=remedy, where=where)
    asked = _asked("latest", rows, 1, by, parsed, None, "updates", time, ttl, where)
    return _ranked(rows, asked, late).drop(RANK)


def _asked(
    operator: str,
    rows: DataFrame,
    n: int,
    by: By,
    order: list[tuple[Column, bool]],
    of: list[str] | None,
    emit: Emit | None,
    time: str | None,
    ttl: Duration | None,
    where: Where,
) -> _Asked:
    keys = keys_of(rows, by, operator, where)
    ttl_ms = 0 if ttl is None else duration_ms(operator, "ttl", ttl, where)
    asked = _Asked(operator, n, keys, order, of, emit == "updates", None, ttl_ms, where)
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST:
        raise asked.refused("n", n, f"a whole number from 1 to {MOST:,}")
    if emit not in EMISSIONS:
        remedy = 'choose "updates" (what changes, as signed rows) or "final" (once, when the window has closed)'
        raise asked.refused("emit", emit, remedy)
    if not asked.updates and END not in keys:
        raise asked.refused("emit", emit, f'name "{END}" among `by`, or choose "updates": only windows close')
    for name in of or ():
        if name not in rows.columns:
            raise asked.refused("of", name, f"name columns of the rows{nearest(name, rows.columns)}")
    if ttl is not None and ttl_ms <= 0:
        raise asked.refused("ttl", ttl, "longer than nothing")
    if ttl is not None and END in keys:
        raise asked.refused("ttl", ttl, "leave it out: what is kept ends with the window")
    if ttl is not None and operator == "top" and of is None:
        raise asked.refused("ttl", ttl, "say `of` what: otherwise only the best are kept, and no others to follow them")
    if of is None and ttl is None:
        return asked
    return _Asked(operator, n, keys, order, of, asked.updates, _time(rows, time, asked), ttl_ms, where)


def _time(rows: DataFrame, given: str | None, asked: _Asked) -> str | None:
    try:
        return time_of(rows, given, asked.operator, asked.where)
    except TimeUnknown:
        several = any(WATERMARK in field.metadata for field in rows.schema)
        if asked.ttl_ms or several:
            raise
        return None


def _order(operator: str, rows: DataFrame, given: OrderBy, where: Where) -> list[tuple[Column, bool]]:
    each = [given] if isinstance(given, str | Column) else list(given)
    found = []
    for one in each:
        if isinstance(one, str):
            name, descending = (one[1:], True) if one.startswith("-") and one not in rows.columns else (one, False)
            if name not in rows.columns:
                remedy = f"name columns of the rows{nearest(name, rows.columns)}; a minus in front: the greatest first"
                raise OptionInvalid(name=operator, option="order", given=one, remedy=remedy, where=where)
            found.append((F.col(quoted(name)), descending))
        else:
            found.append((one, False))
    if not found:
        remedy = 'say which rows are first, for example "-price"'
        raise OptionInvalid(name=operator, option="order", given=given, remedy=remedy, where=where)
    return found


def _ranked(rows: DataFrame, asked: _Asked, late: Late | None) -> DataFrame:
    if not rows.isStreaming:
        return _batch(rows, asked)
    end = asked.keys.get(END)
    closed = _closed(rows, asked)
    chosen = _chosen(asked, late, ends=end is not None or asked.ttl_ms > 0, closed=closed)
    time = None if asked.time is None else F.col(quoted(asked.time))
    for needed in (end, time):
        rows = rows if needed is None else lateness.timed(rows, needed)
    grace_ms = chosen.grace_ms if chosen else 0
    note(_kept(rows, asked, grace_ms), f"emits {'updates' if asked.updates else 'final'}, late rows: {chosen}")
    # The newest of a key comes last, so nothing could be left out before.
    sieved = not asked.ttl_ms and asked.operator == "top"
    settings = kernel.TopSettings(asked.n, asked.updates, closed, grace_ms * 1_000, asked.ttl_ms * 1_000, sieved)

    def build() -> DataFrame:
        of = None if asked.of is None else [F.col(quoted(name)) for name in asked.of]
        keys = list(asked.keys.values())
        about = About(asked.operator, str(asked.where), tuple(asked.keys))
        return kernel.top(rows, keys, asked.order, of, end=end, time=time, settings=settings, about=about)

    try:
        told = lateness.told(asked.operator, build, chosen, asked.where) if chosen else build()
    except kernel.Unordered as error:
        remedy = "order by numbers, texts, times, dates, truths or bytes, and say `of` such"
        raise asked.refused("order", str(error), remedy) from None
    if chosen:
        told = told.where(F.col(KIND) == RESULT)
    closes = END if end is not None and not asked.updates else None
    return told.select(
        *(
            F.col(f"{ROW}.{quoted(name)}").alias(name, metadata={CLOSED: grace_ms} if name == closes else {})
            for name in rows.columns
        ),
        F.col(kernel.RANK).alias(RANK),
        *([F.col(kernel.DIFF).alias(DIFF)] if asked.updates else []),
    )


def _closed(rows: DataFrame, asked: _Asked) -> bool:
    """Whether the rows are what windows told when they had closed: all of a window in one epoch."""
    if END not in asked.keys:
        return False
    field = rows.select(asked.keys[END]).schema[0]
    if field.dataType != TimestampType():
        raise asked.refused("by", END, "the times at which windows end, as `mr.window` gives them")
    grace_ms = field.metadata.get(CLOSED)
    if grace_ms is None:
        return False
    if grace_ms:
        remedy = (
            'take windows with late.drop() or late.side(…), or with emit="updates" here and there: these are told again'
        )
        raise asked.refused("rows", f"windows with a grace of {durations.spoken(grace_ms)}", remedy)
    if asked.updates:
        raise asked.refused("emit", "updates", 'choose "final": the rows come when their windows have closed')
    return True


def _chosen(asked: _Asked, late: Late | None, *, ends: bool, closed: bool) -> Late | None:
    if closed or not ends:
        if late is not None:
            why = "the windows have been told what is late" if closed else "nothing ends here, so nothing is late"
            raise asked.refused("late", late, f"leave it out: {why}")
        return None
    chosen = lateness.chosen(asked.operator, late, asked.where)
    if chosen.corrects:
        raise asked.refused("late", late, "choose drop, allow or side: a ranking that is told again is told whole")
    if asked.ttl_ms and chosen.grace_ms:
        raise asked.refused("late", late, "choose drop or side: a longer ttl is the grace")
    return chosen


def _kept(rows: DataFrame, asked: _Asked, grace_ms: int) -> str:
    """In words, what the state means."""
    order = ", ".join(f"{words(column)}{' descending' if descending else ''}" for column, descending in asked.order)
    by = ", ".join(words(column) for column in asked.keys.values())
    of = f" of {', '.join(asked.of)} as of {asked.time}" if asked.of else ""
    ends = f" for {durations.spoken(asked.ttl_ms)}" if asked.ttl_ms else ""
    ends += f" until {durations.spoken(grace_ms)} after {END}" if END in asked.keys else ""
    told = "" if asked.updates else ", told then"
    return f"the first {asked.n} by {by} in order of {order}{of}{ends}{told}: {rows.schema.simpleString()}"


def _batch(rows: DataFrame, asked: _Asked) -> DataFrame:
    """The same by Spark's own functions, over everything there is."""
    keys = [column.alias(f"__k{place}") for place, column in enumerate(asked.keys.values())]
    tie = kernel.tie(rows).alias("__tie")
    order = [column.alias(f"__o{place}") for place, (column, _) in enumerate(asked.order)]
    of = [F.col(quoted(name)) for name in asked.of or ()]
    by = [F.col(f"__k{place}") for place in range(len(keys))]
    first = [
        F.col(f"__o{place}").desc_nulls_last() if descending else F.col(f"__o{place}").asc_nulls_last()
        for place, (_, descending) in enumerate(asked.order)
    ]
    place = [*first, *(column.asc_nulls_last() for column in of), F.col("__tie")]
    found = rows.select("*", *keys, *order, tie)
    if asked.time is not None:
        found = found.where(F.col(quoted(asked.time)).isNotNull())
    if END in asked.keys:
        found = found.where(asked.keys[END].isNotNull())
    if of:
        newest = [F.col(quoted(asked.time)).desc()] if asked.time else []
        last = Window.partitionBy(*by, *of).orderBy(*newest, *place)
        found = found.select("*", F.row_number().over(last).alias("__last")).where("__last = 1")
    ranked = found.select("*", F.row_number().over(Window.partitionBy(*by).orderBy(*place)).alias(RANK))
    return ranked.where(F.col(RANK) <= asked.n).select(
        *(F.col(quoted(name)) for name in rows.columns),
        F.col(RANK),
        *([F.lit(1).alias(DIFF)] if asked.updates else []),
    )
