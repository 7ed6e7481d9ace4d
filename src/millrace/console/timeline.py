"""A time line as HTML: a dot for each moment, at its place between the first and the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

from millrace.console import words

# Ends of the line, in percent: a dot there is still whole.
_FROM, _TO = 1.0, 99.0
_SHORT = timedelta(seconds=10)


@dataclass(frozen=True)
class Dot:
    """`kind` is how it looks, `title` is what it says when it is pointed at."""

    number: int
    at: datetime
    kind: str
    title: str


def timeline(dots: Sequence[Dot], chosen: int | None) -> str:
    """Each dot is a button that has its number as `data-number`."""
    if not dots:
        return ""
    first, last = dots[0].at, dots[-1].at
    drawn = "".join(
        f'<button class="mr-version {escape(dot.kind)}{" chosen" if dot.number == chosen else ""}"'
        f' style="left: {_place(dot.at, first, last):.3f}%" data-number="{dot.number}" title="{escape(dot.title)}"'
        f' aria-label="version {dot.number}"></button>'
        for dot in dots
    )
    ends = "".join(f"<span>{_said(each, last - first)}</span>" for each in (first, last))
    return f'<div class="mr-line"><div class="mr-line-bar"></div>{drawn}</div><div class="mr-line-ends">{ends}</div>'


def _said(at: datetime, whole: timedelta) -> str:
    """To the millisecond where seconds would hardly tell the ends apart."""
    return words.clock(at) + (f".{at.microsecond // 1_000:03}" if whole < _SHORT else "")


def _place(at: datetime, first: datetime, last: datetime) -> float:
    whole = (last - first).total_seconds()
    return _TO if not whole else _FROM + (at - first).total_seconds() / whole * (_TO - _FROM)
