"""Rows of several streams within an interval of those of one of them; `model/joins.py` says what it must do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millrace.kernel.calling import operator, packed, quoted, unpacked
from millrace.kernel.clock import install
from millrace.kernel.kept import About, told_of
from millrace.kernel.told import KIND, LATE_US

# By which its state is known: "join" is the one of signed rows.
OPERATOR = "stream_join"
# A key's rows are kept in one value up to so many bytes, more of them in parts of so many, each written once.
MOST_INLINE, MOST_TOGETHER = 8_192, 65_536


@dataclass(frozen=True)
class Side:
    """A stream: its rows, the columns of their key, their time, and from when to when (µs) after one of the first
    stream they fit."""

    rows: DataFrame
    keys: Sequence[Column]
    time: Column
    within_us: tuple[int, int] = (0, 0)

    def schema(self) -> StructType:
        # Without what Spark knows of them, a watermark: what is told may be older than it.
        return StructType([StructField(field.name, field.dataType, field.nullable) for field in self.rows.schema])

    def flat(self, number: int) -> DataFrame:
        whole = F.struct(*(F.col(quoted(name)) for name in self.rows.columns))
        rows = self.rows
        for key in self.keys:
            rows = rows.where(key.isNotNull())
        return rows.select(
            *(key.alias(f"k{place}") for place, key in enumerate(self.keys)),
            F.lit(number).alias("stream"),
            F.unix_micros(self.time).alias("time"),
            packed(whole, self.schema()).alias("row"),
        )


def can_unite(left: DataFrame, right: DataFrame) -> bool:
    """Whether Spark takes the two as one stream."""
    return bool(operator(left.sparkSession, "Join").canUnite(left._jdf, right._jdf))


def row_of(side: int) -> str:
    """The column with a stream's rows."""
    return f"__row{side}"


def join(sides: Sequence[Side], about: About | None = None) -> DataFrame:
    """Each choice of one row of each stream with the same key, all within their interval of the first. Columns: KIND,
    LATE_US, and the rows as structs (`row_of`), of a late row that one only. A row with a null in its key joins
    nothing."""
    spark = sides[0].rows.sparkSession
    install(spark)
    united = sides[0].flat(0)
    for number, side in enumerate(sides[1:], 1):
        united = united.unionAll(side.flat(number))
    told = {
        "keys": len(sides[0].keys),
        "firstUs": [side.within_us[0] for side in sides],
        "lastUs": [side.within_us[1] for side in sides],
        "mostInline": MOST_INLINE,
        "mostTogether": MOST_TOGETHER,
        "schemas": [side.schema().jsonValue() for side in sides],
        **told_of(about, OPERATOR),
    }
    found = DataFrame(operator(spark, "Join").stream(united._jdf, json.dumps(told)), spark)
    return found.select(
        F.col("kind").alias(KIND),
        F.col("lateUs").alias(LATE_US),
        *(unpacked(F.col(f"r{number}"), side.schema()).alias(row_of(number)) for number, side in enumerate(sides)),
    )
