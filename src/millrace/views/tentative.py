"""Tentative rows of a view in real time: records of a topic beside the changelog, which say whose they are.

A record is as in the changelog, but for its source, which nobody knows before the epoch has ended; a header says the
incarnation and the epoch, as `3 17` or, of a view whose epochs another generation began to count, `3 12+5`. Of each key
they are in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Of a record: the incarnation, a space, the epoch; or two numbers that are to be added.
TENTATIVE = "millrace.tentative"
# A row that becomes another one is told in two or more records, one right behind the other.
GATHER_S = 0.003


@dataclass(frozen=True, order=True)
class Told:
    """By which incarnation of a view's flow, and in which of its epochs."""

    incarnation: int
    epoch: int

    @classmethod
    def of(cls, message: Any) -> Told:
        headers = dict(message.headers() or ())
        incarnation, _, epoch = headers[TENTATIVE].decode().partition(" ")
        return cls(int(incarnation), sum(int(part) for part in epoch.split("+")))


def headed(incarnation: int, shift: int) -> str:
    """What a header says before the number of the flow's epoch."""
    return f"{incarnation} {shift}+" if shift else f"{incarnation} "


def newest(messages: Sequence[Any]) -> int:
    """The last incarnation that speaks in them; one of before that still does has not noticed its end."""
    return max(Told.of(message).incarnation for message in messages)
