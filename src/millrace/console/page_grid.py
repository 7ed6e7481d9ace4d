"""Rows drawn as a table with pages, and a box in which somebody asks for rows by SQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from nicegui import events, ui

from millrace.console import words
from millrace.console.frame import Trouble, answered, panel
from millrace.console.grid import Grid
from millrace.console.views import Answered
from millrace.console.watch import Watch

DEFAULT_ROWS = 500

# SQL, how many rows at most, and the answer.
Ask = Callable[[str, int], Awaitable[Answered]]


class GridTable:
    """Only the page that is looked at is sent to the browser, and only when it is another than before."""

    def __init__(self) -> None:
        self._grid, self._fresh = Grid((), ()), frozenset[int]()
        self._table = ui.html("", sanitize=False).classes("mr-wide mr-rows-scroll")
        self._pages = ui.pagination(1, 1, direction_links=True, on_change=self._draw).props("max-pages=8")
        self.show(self._grid)

    def show(self, grid: Grid, fresh: Collection[int] = (), *, first_page: bool = False) -> None:
        self._grid, self._fresh = grid, frozenset(fresh)
        self._pages.max = grid.pages
        self._pages.set_visibility(grid.pages > 1)
        if first_page:
            self._pages.set_value(1)
        self._draw()

    def _draw(self) -> None:
        page = min(int(self._pages.value or 1), self._grid.pages)
        self._table.set_visibility(bool(self._grid.rows))
        drawn = self._grid.html(page, self._fresh) if self._grid.rows else ""
        if drawn != self._table.content:
            self._table.set_content(drawn)


class QueryBox:
    """A text with SQL, a button that asks, and what was answered or why not. `beside` draws more beside the button."""

    def __init__(
        self, watch: Watch, title: str, about: str, begin: str, ask: Ask, beside: Callable[[], None] = lambda: None
    ) -> None:
        self._watch, self._ask = watch, ask
        with panel(title, about):
            self._sql = ui.textarea("SQL", value=begin).props("outlined autogrow dense").classes("mr-wide mr-sql")
            self._sql.on("keydown.ctrl.enter", self._run)
            with ui.row().classes("mr-actions"):
                beside()
                self._rows = ui.number("Rows at most", value=DEFAULT_ROWS, min=1, precision=0)
                self._button = ui.button("Run", on_click=self._run).props("no-caps")
                self._button.tooltip("Ctrl+Enter")
                self._busy = ui.spinner(size="1.4em")
            self._trouble = Trouble()
            self._said = ui.label("Nothing asked yet").classes("mr-soft")
            self._table = GridTable()
        self._busy.set_visibility(False)

    async def _run(self, _: events.EventArguments) -> None:
        self._busy.set_visibility(True)
        self._button.set_enabled(False)
        try:
            asked = self._ask(self._sql.value or "", int(self._rows.value or 0))
            found = await answered(self._watch, asked, self._trouble, "There is no answer")
        finally:
            self._busy.set_visibility(False)
            self._button.set_enabled(True)
        self._said.set_text("" if found is None else said(found))
        self._table.show(Grid((), ()) if found is None else found.grid, first_page=True)


def said(found: Answered) -> str:
    rows = words.counted(len(found.grid.rows), "row")
    more = ", and there are more" if found.more else ""
    of = "; ".join(f"{name} {what}" for name, what in found.positions.items())
    return f"{rows}{more} · {words.seconds(found.took_s)}" + (f" · as of {of}" if of else "")
