"""What to do with rows that come when their window has closed. There is no silent default: each window says.

drop    they are counted, and that is all
allow   for a grace they still count, and the result is told again; after that they are counted and dropped
side    they go to a topic of their own, with the window and how late they were
update  for a time they still count, and the new result names the ones that it replaces
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from millrace import durations
from millrace.flow.nodes import caller, checked_name
from millrace.flow.time import Duration, duration_ms

Kind: TypeAlias = Literal["drop", "allow", "side", "update"]


@dataclass(frozen=True)
class Late:
    """`grace_ms` is for how long after its end a window still takes rows; `topic` where those go that it refuses."""

    kind: Kind
    grace_ms: int = 0
    topic: str | None = None

    def __str__(self) -> str:
        grace = f" {durations.spoken(self.grace_ms)}" if self.grace_ms else ""
        return f"{self.kind}{grace}{f' to {self.topic}' if self.topic else ''}"

    @property
    def corrects(self) -> bool:
        """Whether a result names the ones that it replaces."""
        return self.kind == "update"


def drop() -> Late:
    """Late rows are counted, and nothing else."""
    return Late("drop")


def allow(grace: Duration) -> Late:
    """For so long after its end a window still takes late rows, and its result is told again."""
    return Late("allow", duration_ms("late", "allow", grace, caller()))


def side(topic: str, *, allow: Duration = "0 seconds") -> Late:
    """Late rows go to this topic, with the window and how late they were; after a grace, if one is given."""
    where = caller()
    return Late("side", duration_ms("late", "allow", allow, where), checked_name("a topic", topic, where))


def update(within: Duration) -> Late:
    """For so long after its end a window still takes late rows, and its new result names the ones it replaces."""
    return Late("update", duration_ms("late", "within", within, caller()))
