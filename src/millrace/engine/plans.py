"""Spark's plans as Python sees them: the two pieces that everything which walks one needs."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def listed(sequence: Any) -> list[Any]:
    """A sequence of Scala's."""
    return [sequence.apply(place) for place in range(sequence.size())]
