"""The page-view demo, live: the ten pages of a minute that were looked at most, exactly and by a sketch."""

from __future__ import annotations

from html import escape

from nicegui import ui

from millrace.console import words
from millrace.console.board_pageviews import Line, PageviewBoard
from millrace.console.frame import panel
from millrace.console.live import PAGEVIEWS
from millrace.console.page_live import figures, live
from millrace.console.watch import Watch

_NEWEST = "newest"


def add(watch: Watch) -> None:
    live(watch, PAGEVIEWS, "No minute is over yet", lambda board: _Page(board).draw)


class _Page:
    def __init__(self, board: PageviewBoard) -> None:
        self._board, self._drawn = board, -1
        self._figures = figures("minute", "views of these pages", "counts within the sketch's range", "widest range")
        with panel("Most looked at", "bars are counted; the bracket is what the sketch says: at least, at most"):
            self._minute = ui.select({_NEWEST: "the newest minute"}, value=_NEWEST, label="Minute")
            self._minute.on_value_change(self._draw).props("dense").style("min-width: 220px")
            self._lines = ui.html("", sanitize=False).classes("mr-wide")

    def draw(self) -> bool:
        minutes = self._board.minutes()
        if self._drawn != self._board.n and minutes:
            self._drawn = self._board.n
            self._minute.set_options({_NEWEST: "the newest minute"} | {end: _said(end) for end in minutes})
            self._draw()
        return bool(minutes)

    def _draw(self) -> None:
        with self._board.guard:
            minutes = self._board.minutes()
            end = self._minute.value if self._minute.value in minutes else minutes[0]
            lines = self._board.lines(str(end))
        known = [line.right for line in lines if line.right is not None]
        widths = [line.most - line.least for line in lines if line.most is not None and line.least is not None]
        told = (
            _said(str(end)),
            words.count(sum(line.views or 0 for line in lines)),
            f"{sum(known)} of {len(known)}",
            words.count(max(widths, default=0)),
        )
        for label, value in zip(self._figures, told, strict=True):
            label.set_text(value)
        self._lines.set_content(lines_html(lines))


def lines_html(lines: list[Line]) -> str:
    longest = max((max(line.views or 0, line.most or 0) for line in lines), default=0) or 1
    rows = "".join(_line(line, longest) for line in lines)
    head = '<tr><th></th><th>page</th><th></th><th class="mr-right">counted</th><th>by the sketch</th></tr>'
    return f'<table class="mr-rows mr-board"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _line(line: Line, longest: int) -> str:
    bar = f'<i style="width: {100 * (line.views or 0) / longest:.2f}%"></i>'
    if line.least is not None and line.most is not None:
        width = 100 * (line.most - line.least) / longest
        bar += f'<b style="left: {100 * line.least / longest:.2f}%; width: max({width:.2f}%, 3px)"></b>'
    sketch = words.NOTHING if line.least is None else f"{line.least:,} to {line.most:,}"
    wrong = ' class="mr-wrong"' if line.right is False else ""
    counted = words.NOTHING if line.views is None else f"{line.views:,}"
    rank = words.NOTHING if line.rank is None else str(line.rank)
    return (
        f'<tr><td class="mr-right">{rank}</td><td>{escape(line.url)}</td><td class="mr-bar-cell"><div>{bar}</div></td>'
        f'<td class="mr-right">{counted}</td><td{wrong}>{sketch}</td></tr>'
    )


def _said(end: str) -> str:
    """A minute by its end, in UTC."""
    day, _, clock = end.partition("T")
    return f"{clock[:5]} of {day}" if clock else end
