"""What an operator does with late rows, the same for all: it is chosen, counted, and refused rows may be kept."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.errors import LateSideOutside, OptionInvalid, Where
from millrace.flow.late import Late
from millrace.kernel import told as kernel

Side: TypeAlias = Callable[[Callable[[], DataFrame], str], DataFrame]

# What late rows were counted as, in an observation whose name begins so.
LATE_METRIC = "millrace.late."
REFUSED, ALLOWED = "refused", "allowed"

# While a flow is planned or an epoch of it written: takes what an operator with `late.side` would tell, and the topic
# for the rows it refuses, and gives what it has told.
side: ContextVar[Side | None] = ContextVar("side", default=None)

_numbers = count(1)


def chosen(operator: str, late: Late | None, where: Where) -> Late:
    """There is no silent default."""
    if not isinstance(late, Late):
        remedy = "choose what is done with late rows: mr.late.drop(), .allow(…), .side(…) or .update(…)"
        raise OptionInvalid(name=operator, option="late", given=late, remedy=remedy, where=where)
    return late


def timed(rows: DataFrame, at: Column) -> DataFrame:
    """Without rows that have no time (after an outer join, say), which are counted as refused."""
    return without(rows, at.isNull()) if rows.select(at).schema[0].nullable else rows


def without(rows: DataFrame, refused: Column) -> DataFrame:
    """Without the rows for which this is true, which are counted."""
    counted = F.count(F.when(refused, 1)).alias(REFUSED)
    return rows.observe(f"{LATE_METRIC}{next(_numbers)}", counted).where(~refused)


def told(operator: str, build: Callable[[], DataFrame], late: Late, where: Where) -> DataFrame:
    """What an operator tells, late rows counted. `build` makes it; the refused rows in it go to the policy's topic."""
    if late.topic is None:
        return _counted(build())
    divide = side.get()
    if divide is None:
        raise LateSideOutside(operator=operator, topic=late.topic, where=where)
    return divide(lambda: _counted(build()), late.topic)


def _counted(rows: DataFrame) -> DataFrame:
    kind = F.col(kernel.KIND)
    return rows.observe(
        f"{LATE_METRIC}{next(_numbers)}",
        F.count(F.when(kind.isin(kernel.REFUSED, kernel.REFUSED_CHANGE), 1)).alias(REFUSED),
        F.count(F.when(kind == kernel.ALLOWED, 1)).alias(ALLOWED),
    )
