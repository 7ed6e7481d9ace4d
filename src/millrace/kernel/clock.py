"""The clock of a source: its watermark is the least over the partitions, where Spark's own is the greatest of all.

`model/clock.py` says what it must do.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.kernel.calling import operator, quoted

SEEN = "seen"
_SETTINGS = "millrace.clock"


@dataclass(frozen=True)
class Clock:
    """How far event time has come. `lag_ms` is fixed unless `quantile` says that it follows the events' delays.

    `idle_ms`: for how long a partition that was read to its end is waited for. With `once`, one that has no record is
    not waited for at all. `folder` keeps the state of each epoch; without, a restart begins anew. `time` is a
    clock of a test (`kernel.times`) instead of the time of day.
    """

    lag_ms: int
    idle_ms: int
    quantile: float | None = None
    least_ms: int = 0
    most_ms: int = 0
    margin_ms: int = 0
    once: bool = False
    folder: str | None = None
    time: str | None = None

    def _settings(self) -> str:
        words = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps({_camel(key): value for key, value in words.items()})

    def seen(self, partition: Column, time: Column, arrival: Column) -> Column:
        """The aggregate to be observed under the name `SEEN`. A record that says nothing about time has no `time`; one
        that does not count at all has no `partition`."""
        asked = (F.unix_micros(arrival), partition.cast("int"), F.unix_micros(time))
        seen = operator(SparkSession.active(), "Seen").of(*(each._jc for each in asked), self.quantile is not None)
        return Column(seen).alias(SEEN)

    def on(self, rows: DataFrame, time: str) -> DataFrame:
        """The rows with this clock's watermark on their time column. The observation has to stand below."""
        kept = rows.schema[time].metadata
        column = F.col(quoted(time)).alias(time, metadata={**kept, _SETTINGS: self._settings()})
        others = [F.col(quoted(name)) for name in rows.columns]
        placed = [column if name == time else other for name, other in zip(rows.columns, others, strict=True)]
        # Should the clock not be installed, Spark's own watermark with the greatest lag is the careful one.
        return rows.select(*placed).withWatermark(time, f"{max(self.lag_ms, self.most_ms)} milliseconds")


def install(spark: SparkSession) -> None:
    """Makes a session's queries look for clocks, and keep their pace (`Pace.java`). Each `newSession` needs it anew."""
    operator(spark, "Clocks").install(spark._jsparkSession)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
