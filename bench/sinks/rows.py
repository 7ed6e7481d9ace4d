"""The row that every sink is given, as Spark makes it and as Python does."""

from __future__ import annotations

from typing import Any

ROW = ("id", "concat('customer ', id) name", "id / 7 score", "id % 2 = 0 seen", "timestamp_seconds(id) at")


def row_of(number: int) -> dict[str, Any]:
    at = f"1970-01-01T00:00:00.{number % 1_000_000:06d}Z"
    return {"id": number, "name": f"customer {number}", "score": number / 7, "seen": number % 2 == 0, "at": at}
