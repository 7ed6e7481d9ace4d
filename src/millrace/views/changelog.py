"""The changelog of a view: a compacted topic of upserts and tombstones by the view's key, and marks beside it.

A record's key is a JSON object of the key columns, its value `{"op": "u", "after": {…}, "source": {"lsn": …}}`, as
Debezium writes changes, or nothing for a row that is gone. A mark, in a topic of its own, says after each epoch where
the changelog then ends and which position of the database that is: between two marks nothing is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace.views.types import Type

# A header of changelog records, and of those of captured tables (`Places.java`): after which position they came.
AFTER = "millrace.after"
PARTITIONS = 2

# A value is the row's JSON between these, then JSON of the epoch, and a brace.
HEAD, TAIL = '{"op":"u","after":', ',"source":'


def marks_topic(view: str) -> str:
    return f"_millrace.marks.view.{view}"


def tentative_topic(view: str) -> str:
    """Where rows of a view in real time are before their epoch is committed."""
    return f"_millrace.tentative.view.{view}"


@dataclass(frozen=True)
class Mark:
    """`lsn` is the position that the view is true of: of the captured `database`, or if its tables are of none or
    several, one of its own that only grows. `ends` are the changelog's offsets by partition, `at_ms` when the epoch
    began, or the time that now() is in it. Until a view is `whole` its tables are still being read for the first
    time."""

    epoch: int
    database: str | None
    lsn: int
    at_ms: int
    ends: Mapping[int, int]
    whole: bool

    def as_json(self) -> dict[str, Any]:
        ends = {str(number): end for number, end in self.ends.items()}
        told = {"epoch": self.epoch, "database": self.database, "lsn": self.lsn, "at_ms": self.at_ms}
        return {**told, "ends": ends, "whole": self.whole}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Mark:
        ends = {int(number): int(end) for number, end in raw["ends"].items()}
        return cls(raw["epoch"], raw["database"], raw["lsn"], raw["at_ms"], ends, raw["whole"])


def row_text(value: bytes) -> str:
    """The row's JSON as it stands in a record's value, every digit of it."""
    text = value.decode()
    return text[len(HEAD) : text.rindex(TAIL)]


def postgres_type(type_: Type) -> str:
    """The column's type in the view store. A numeric whose values have scales of their own has no scale."""
    if type_.element is not None:
        return f"{postgres_type(type_.element)}[]"
    if type_.kind == "numeric" and type_.mixed:
        return "numeric"
    return "text" if type_.kind in ("opaque", "json", "time", "enum", "unknown") else str(type_)


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
