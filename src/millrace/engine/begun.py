"""When a flow began, and why: a line for each start, beside its checkpoint (`begun.jsonl`), so that one who looks later
knows of recoveries that nobody saw. Nothing else depends on it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = "begun.jsonl"
# So many lines are kept; there may be twice as many for a while.
MOST = 100


@dataclass(frozen=True)
class Begun:
    """`recovers` says what went wrong before; empty where nothing did."""

    at: datetime
    recovers: str


def note(folder: Path, at: datetime, *, left: str | None, restarts: int, error: str | None) -> None:
    """One more start. `left` is the state in which the run before this one left the flow, None if this run has run it
    before."""
    told = {"at": at.astimezone(UTC).isoformat(timespec="milliseconds"), "recovers": _recovers(left, restarts, error)}
    path = folder / FILE
    with contextlib.suppress(OSError):
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if len(lines) >= 2 * MOST:
            kept = folder / f"{FILE}.new"
            kept.write_text("".join(f"{line}\n" for line in lines[-MOST:]), encoding="utf-8")
            kept.replace(path)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def read(folder: Path) -> list[Begun]:
    """The newest starts, the oldest of them first. A line that was not written to its end is passed over."""
    try:
        lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [found for line in lines[-MOST:] if (found := _read(line)) is not None]


def _read(line: str) -> Begun | None:
    try:
        told: dict[str, Any] = json.loads(line)
        return Begun(datetime.fromisoformat(told["at"]), str(told["recovers"]))
    except (ValueError, KeyError, TypeError):
        return None


def _recovers(left: str | None, restarts: int, error: str | None) -> str:
    if restarts:
        return f"started again after a failure: {error or 'no reason told'}"
    if left in ("running", "restarting", "waiting"):
        return "the run before it did not end: it was killed, or lost"
    return "the run before it failed" if left == "failed" else ""
