"""One thing that a check found, in words and SQL for the person who looks after the database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warning", "error"]
Findings: TypeAlias = "Iterator[Finding]"


@dataclass(frozen=True)
class Finding:
    """`error`: the capture cannot start, or would not be true. `warning`: it works, but may hurt one day.

    `sql` is what somebody with the rights runs to mend it, one statement a line. It never takes anything from others:
    where the way out is to end somebody's transaction or to drop somebody's slot, `why` says so and `sql` is None.
    """

    level: Level
    subject: str
    what: str
    sql: str | None
    why: str


def ok(subject: str, what: str, why: str = "", sql: str | None = None) -> Finding:
    return Finding("ok", subject, what, sql, why)


def warning(subject: str, what: str, why: str, sql: str | None = None) -> Finding:
    return Finding("warning", subject, what, sql, why)


def error(subject: str, what: str, why: str, sql: str | None = None) -> Finding:
    return Finding("error", subject, what, sql, why)


def listed(names: list[str], most: int = 5) -> str:
    """The first few names; a thousand partitions would fill the screen."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size(count: int) -> str:
    """Bytes as people say them: 1536 is "1.5 kB". Kilo is 1024, as in PostgreSQL's settings."""
    left = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if left < 1024:
            return f"{left:.0f} {unit}" if unit == "bytes" or left >= 100 else f"{left:.3g} {unit}"
        left /= 1024
    return f"{left:.3g} TB"
