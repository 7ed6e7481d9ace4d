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
    live(watch, PAGEVIEWS, "Nobody has looked at a page yet", lambda board: _Page(board).draw)


class _Page:
    def __init__(self, board: PageviewBoard) -> None:
        self._board, self._drawn = board, -1
        self._figures = figures(
            "minute",
            "views of these pages",
            "counts within the sketch's range",
            "error bound of the sketch",
            "late corrections",
        )
        with ui.element("div").classes("mr-grid"):
            with panel("This minute", "the ten of the minute that runs, as they change") as self._running:
                self._until = ui.label("").classes("mr-soft")
                self._now = ui.html("", sanitize=False).classes("mr-wide")
            with panel("Most looked at", "bars are counted; the bracket is what the sketch says: at least, at most"):
                self._minute = ui.select({_NEWEST: "the newest minute"}, value=_NEWEST, label="Minute")
                self._minute.on_value_change(self._draw).props("dense").style("min-width: 220px")
                self._none = ui.label("No minute is over yet").classes("mr-soft")
                self._lines = ui.html("", sanitize=False).classes("mr-wide")

    def draw(self) -> bool:
        minutes, (running, lines) = self._board.minutes(), self._board.now()
        if self._drawn != self._board.n:
            self._drawn = self._board.n
            self._running.set_visibility(bool(lines))
            self._until.set_text(f"until {_said(running)}")
            self._now.set_content(lines_html(lines, sketched=False))
            self._minute.set_options({_NEWEST: "the newest minute"} | {end: _said(end) for end in minutes})
            self._none.set_visibility(not minutes)
            self._draw()
        return bool(minutes or lines)

    def _draw(self) -> None:
        with self._board.guard:
            minutes = self._board.minutes()
            if not minutes:
                return
            end = str(self._minute.value if self._minute.value in minutes else minutes[0])
            lines, bound, corrected = self._board.lines(end), self._board.bound(end), self._board.corrected
        known = [line.right for line in lines if line.right is not None]
        told = (
            _said(end),
            f"{sum(line.views or 0 for line in lines):,}",
            f"{sum(known)} of {len(known)}",
            bound_said(*bound),
            f"{corrected:,}",
        )
        for label, value in zip(self._figures, told, strict=True):
            label.set_text(value)
        self._lines.set_content(lines_html(lines))


def bound_said(views: int, of: int | None) -> str:
    """By how much a count of the sketch may be too small."""
    return f"{views:,} views" + (f" ({words.share(views / of)} of {of:,})" if of else "")


def lines_html(lines: list[Line], *, sketched: bool = True) -> str:
    longest = max((max(line.views or 0, line.most or 0) for line in lines), default=0) or 1
    rows = "".join(_line(line, longest, sketched=sketched) for line in lines)
    about = '<th class="mr-right">by the sketch</th>' if sketched else ""
    head = f'<tr><th></th><th>page</th><th></th><th class="mr-right">counted</th>{about}</tr>'
    return f'<table class="mr-rows mr-board"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _line(line: Line, longest: int, *, sketched: bool) -> str:
    bar = f'<i style="width: {100 * (line.views or 0) / longest:.2f}%"></i>'
    if line.least is not None and line.most is not None:
        width = 100 * (line.most - line.least) / longest
        bar += f'<b style="left: {100 * line.least / longest:.2f}%; width: max({width:.2f}%, 3px)"></b>'
    sketch = words.NOTHING if line.least is None else f"{line.least:,} to {line.most:,}"
    wrong = " mr-wrong" if line.right is False else ""
    about = f'<td class="mr-right{wrong}">{sketch}</td>' if sketched else ""
    counted = words.NOTHING if line.views is None else f"{line.views:,}"
    rank = words.NOTHING if line.rank is None else str(line.rank)
    return (
        f'<tr><td class="mr-right">{rank}</td><td>{escape(line.url)}</td><td class="mr-bar-cell"><div>{bar}</div></td>'
        f'<td class="mr-right">{counted}</td>{about}</tr>'
    )


def _said(end: str) -> str:
    """A minute by its end, in UTC."""
    day, _, clock = end.partition("T")
    return f"{clock[:5]} of {day}" if clock else end
