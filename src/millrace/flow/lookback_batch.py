"""A lookback over everything there is, by Spark's own window functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType

from millrace.kernel import sketches
from millrace.kernel.lookback import Asked
from millrace.kernel.sketches import Sketch

# As in `Position.java`.
_RADIUS_KM = 6371.0088
_US_AN_HOUR = 3_600_000_000


def batch(
    rows: DataFrame, keys: Mapping[str, Column], at: Column, asked: Mapping[str, Asked], unchanged: Sequence[str]
) -> DataFrame:
    """Events with their aggregates, and the columns that say of a stream's that they are told again: here none are."""
    rows = rows.where(at.isNotNull())
    ordered = Window.partitionBy(*(keys.values() or [F.lit(0)])).orderBy(F.unix_micros(at))

    def found(each: Asked) -> Column:
        # SQL's frames have both ends in them, and times are whole microseconds.
        frame = ordered.rangeBetween(1 - each.over_us, -1 if each.kind == "speed" else 0)
        type_ = rows.select(each.columns[0]).schema[0].dataType
        if each.kind == "count":
            flag = type_ == BooleanType()
            return F.count(F.when(each.columns[0], 1) if flag else each.columns[0]).over(frame)
        return _timed(each, at, frame) if each.kind in _TIMED else _plain(each, type_, frame)

    return rows.select(
        "*",
        *(found(each).alias(name) for name, each in asked.items()),
        *(F.lit(False).alias(name) for name in unchanged),
    )


def _plain(asked: Asked, type_: DataType, frame: WindowSpec) -> Column:
    (column,) = asked.columns
    if asked.kind == "distinct":  # SQL has none over a frame
        return F.size(F.collect_set(column).over(frame)).cast("long")
    if asked.kind == "approx_distinct":
        return sketches.batch(asked.kind, column, type_, Sketch(asked.most), frame)
    functions = {"sum": F.sum, "avg": F.avg, "min": F.min, "max": F.max}
    return functions[asked.kind](column).over(frame)


# What also looks at when a value was.
_TIMED = ("first", "last", "last_n", "distance", "speed")


def _timed(asked: Asked, at: Column, frame: WindowSpec) -> Column:
    position = asked.kind in ("distance", "speed")
    columns = [column.cast("double") if position else column for column in asked.columns]
    values = [column.alias(f"v{place}") for place, column in enumerate(columns)]
    known = columns[0].isNotNull() & columns[-1].isNotNull()
    each = F.when(known, F.struct(F.unix_micros(at).alias("us"), *values))
    if asked.kind == "first":
        return F.min(each).over(frame)["v0"]
    if asked.kind == "last":
        return F.max(each).over(frame)["v0"]
    if asked.kind == "speed":
        before = F.max(each).over(frame)
        hours = (F.unix_micros(at) - before["us"]) / F.lit(_US_AN_HOUR)
        return F.when(known, _kilometres(before["v0"], before["v1"], *columns) / hours)
    sorted_ = F.array_sort(F.collect_list(each).over(frame))
    if asked.kind == "last_n":
        last = F.slice(sorted_, F.greatest(F.size(sorted_) - asked.most + 1, F.lit(1)), F.lit(asked.most))
        return F.transform(last, lambda value: value["v0"])
    legs = F.zip_with(
        F.slice(sorted_, F.lit(1), F.greatest(F.size(sorted_) - 1, F.lit(0))),
        F.slice(sorted_, F.lit(2), F.size(sorted_)),
        lambda one, two: _kilometres(one["v0"], one["v1"], two["v0"], two["v1"]),
    )
    length = F.aggregate(legs, F.lit(0.0), lambda sum_, leg: sum_ + leg)
    return F.when(F.size(sorted_) > 0, length)


def _kilometres(latitude: Column, longitude: Column, to_latitude: Column, to_longitude: Column) -> Column:
    """Along the great circle, by the haversine formula."""
    north, east = (F.radians(to - from_) / 2 for to, from_ in ((to_latitude, latitude), (to_longitude, longitude)))
    chord = F.pow(F.sin(north), F.lit(2.0)) + F.cos(F.radians(latitude)) * F.cos(F.radians(to_latitude)) * F.pow(
        F.sin(east), F.lit(2.0)
    )
    return F.lit(2 * _RADIUS_KM) * F.asin(F.least(F.lit(1.0), F.sqrt(chord)))
