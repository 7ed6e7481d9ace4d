"""Aggregates that are about right, in little state; `model/sketches.py` says how wrong they may be."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column, SparkSession, WindowSpec
from pyspark.sql.types import DataType

from millrace.kernel.calling import operator
from millrace.kernel.values import carried, hashed, held_type, restored

# How the room of ranks grows as the error shrinks. Seen over streams of 40,000 values, random and ascending, put
# together from up to 60 parts: the rank of a quantile is off by less than 0.7 of the error in 99 of 100.
_ROOM, _ROOM_GROWS = 1.5, 1.0285


@dataclass(frozen=True)
class Sketch:
    """How much is held, at which ranks values are asked for, and how many of them."""

    size: int
    ranks: tuple[float, ...] = ()
    most: int = 0

    def told(self) -> dict[str, Any]:
        return asdict(self)


def size_of(kind: str, error: float) -> int:
    """What a sketch has to hold: of distinct values the logarithm of how many registers (their standard error is
    1.04 / sqrt(registers)), of ranks the room of the highest level, of frequent values how many are counted."""
    if kind == "approx_distinct":
        return max(4, math.ceil(2 * math.log2(1.04 / error)))
    return math.ceil(1 / error) if kind == "frequent" else max(8, math.ceil(_ROOM / error**_ROOM_GROWS))


def batch(kind: str, column: Column, type_: DataType, sketch: Sketch, frame: WindowSpec | None = None) -> Column:
    """The same sketch as one of Spark's own aggregates, over a group or a frame."""
    java = operator(SparkSession.active(), "Sketches")
    value = hashed(column) if kind == "approx_distinct" else carried(column, type_)
    found = Column(java.batch(kind, held_type(kind, type_).json(), json.dumps(sketch.told()), value._jc))
    return restored((found if frame is None else found.over(frame))["value"], kind, type_)
