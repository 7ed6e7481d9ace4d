"""Rows that come more than once, given once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace import durations
from millrace.errors import OptionInvalid, nearest
from millrace.flow import lateness
from millrace.flow.columns import keys_of, taken_out, time_of
from millrace.flow.late import Late
from millrace.flow.nodes import caller
from millrace.flow.operators import note
from millrace.flow.time import Duration, duration_ms
from millrace.kernel import dedup as kernel
from millrace.kernel.calling import quoted
from millrace.kernel.kept import About
from millrace.kernel.told import KIND, RESULT, ROW

Clock: TypeAlias = Literal["event", "processing"]
CLOCKS = ("event", "processing")


def dedup(
    rows: DataFrame,
    /,
    *,
    on: str | Sequence[str],
    ttl: Duration = "24 hours",
    late: Late | None = None,
    clock: Clock = "event",
    time: str | None = None,
) -> DataFrame:
    """The first row with these `on` columns, and the next one only when it is `ttl` or more away from it.

    By event time, which `late` belongs to: rows before the watermark are refused, since what they repeat may be
    forgotten. With `clock="processing"` by the time of day at which the flow meets the rows; nothing is late then. A
    batch is taken as a whole, by event time. Columns: those of the rows.
    """
    where = caller()
    names = [on] if isinstance(on, str) else list(on)
    for name in names or [""]:
        if name not in rows.columns:
            remedy = f"name columns of the rows{nearest(name, rows.columns)}"
            raise OptionInvalid(name="dedup", option="on", given=name or on, remedy=remedy, where=where)
    ttl_ms = duration_ms("dedup", "ttl", ttl, where)
    if ttl_ms <= 0:
        raise OptionInvalid(name="dedup", option="ttl", given=ttl, remedy="longer than nothing", where=where)
    if clock not in CLOCKS:
        remedy = 'choose "event" (when it happened) or "processing" (when the flow meets it)'
        raise OptionInvalid(name="dedup", option="clock", given=clock, remedy=remedy, where=where)
    keys = list(keys_of(rows, names, "dedup", where, "on").values())
    about = About("dedup", str(where), tuple(names))
    kept = f"first rows by {', '.join(names)} for {durations.spoken(ttl_ms)}"
    if clock == "processing" and rows.isStreaming:
        if late is not None:
            remedy = "leave it out: by the time of day nothing is late"
            raise OptionInvalid(name="dedup", option="late", given=late, remedy=remedy, where=where)
        note(f"{kept} by the time of day", "")
        told = kernel.dedup(rows, keys, None, ttl_us=ttl_ms * 1_000, grace_us=0, about=about)
        return told.select(*taken_out(ROW, rows.schema))
    at = F.col(quoted(time_of(rows, time, "dedup", where)))
    if not rows.isStreaming:
        return _batch(rows, keys, at, ttl_ms * 1_000)
    chosen = lateness.chosen("dedup", late, where)
    if chosen.corrects:
        remedy = "choose drop, allow or side: a row that was given is not taken back"
        raise OptionInvalid(name="dedup", option="late", given=late, remedy=remedy, where=where)
    rows = lateness.timed(rows, at)
    note(kept, f"late rows: {chosen}")
    grace_us = chosen.grace_ms * 1_000

    def build() -> DataFrame:
        return kernel.dedup(rows, keys, at, ttl_us=ttl_ms * 1_000, grace_us=grace_us, about=about)

    told = lateness.told("dedup", build, chosen, where)
    return told.where(F.col(KIND) == RESULT).select(*taken_out(ROW, rows.schema))


def _batch(rows: DataFrame, keys: list[Column], at: Column, ttl_us: int) -> DataFrame:
    """The same by Spark's own functions, over everything there is: all rows of a key in order, one after the other."""
    columns = [F.col(quoted(name)) for name in rows.columns]
    each = F.struct(F.unix_micros(at).alias("time"), F.xxhash64(*columns).alias("tie"), F.struct(*columns).alias("row"))
    timed = rows.where(at.isNotNull())
    nothing = F.filter(F.array(each), lambda _: F.lit(False))
    gathered = timed.groupBy(*(key.alias(f"__k{place}") for place, key in enumerate(keys))).agg(
        F.sort_array(F.collect_list(each)).alias("__all"), F.first(nothing).alias("__none")
    )
    given = F.aggregate(
        "__all",
        F.col("__none"),
        lambda found, row: F.when(
            (F.size(found) == 0) | (row["time"] - F.element_at(found, -1)["time"] >= ttl_us),
            F.concat(found, F.array(row)),
        ).otherwise(found),
    )
    return gathered.select(F.explode(given).alias("__given")).select("__given.row.*")
