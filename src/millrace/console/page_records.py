"""The browser of records: bounded, stoppable, searchable; only the page that is looked at is sent to the browser."""

from __future__ import annotations

from dataclasses import asdict
from html import escape

from nicegui import events, run, ui

from millrace.console import words
from millrace.console.browsing import MOST_RECORDS, NEWEST, Browse, Change, Shown
from millrace.console.frame import Trouble, answered, panel, table
from millrace.console.watch import Watch

PAGE = 50
DEFAULT = 1_000
LOOK_S = 0.3
_COLUMNS = ("time", "partition", "offset", "key", "value")


def place(said: str | None) -> str:
    """Where to begin: an offset may be typed as it is shown, with its thousands apart."""
    return (said or "").replace(",", "")


def records(watch: Watch, topic: str) -> None:
    with panel("Records", f"at most {MOST_RECORDS:,} at a time"):
        _Browser(watch, topic)


class _Browser:
    def __init__(self, watch: Watch, topic: str) -> None:
        self._watch, self._topic = watch, topic
        self._browse: Browse | None = None
        self._drawn: tuple[object, ...] = ()
        self._drawing = self._asked = False
        with ui.row().classes("mr-actions"):
            self._start = ui.input("From", value=NEWEST, placeholder="newest, earliest, an offset, a time")
            self._start.tooltip('newest, earliest, an offset, a time, or "10 minutes ago"')
            self._limit = ui.number("Records", value=DEFAULT, min=1, max=MOST_RECORDS, precision=0)
            self._partition = ui.number("Partition", min=0, precision=0).props("clearable")
            self._follow = ui.switch("Follow")
            self._read = ui.button("Read", on_click=self._begin).props("no-caps")
            self._stop = ui.button("Stop", on_click=self._end).props("outline no-caps")
            self._search = ui.input("Search", on_change=self._first_page).props("clearable")
        self._trouble = Trouble()
        self._said = ui.label("Nothing read yet: choose where to begin, and press Read").classes("mr-soft")
        self._keys = ui.label().classes("mr-soft")
        self._table = table(_COLUMNS, "n", numbers=("partition", "offset"), pagination=0).classes("mr-records")
        self._table.props("hide-pagination").on("row-click", self._open)
        self._pages = ui.pagination(1, 1, direction_links=True, on_change=self._draw).props("max-pages=8")
        self._table.set_visibility(False)
        self._pages.set_visibility(False)
        self._stop.set_enabled(False)
        with ui.dialog() as self._dialog, ui.card().style("min-width: min(900px, 92vw); max-width: 92vw"):
            self._record = ui.column().classes("mr-wide")
        ui.timer(LOOK_S, self._tick)
        ui.context.client.on_delete(self._end)

    async def _begin(self) -> None:
        self._end()
        partition = None if self._partition.value is None else int(self._partition.value)
        start, limit = place(self._start.value) or NEWEST, int(self._limit.value or 0)
        follow = bool(self._follow.value)

        def begin() -> Browse:
            made = Browse(self._watch.log, self._topic, start, limit, partition, follow=follow)
            made.start()
            return made

        self._browse = await answered(self._watch, begin, self._trouble, "It cannot be read")
        await self._first_page()

    def _end(self) -> None:
        if self._browse is not None:
            self._browse.stop()

    async def _tick(self) -> None:
        browse = self._browse
        self._stop.set_enabled(browse is not None and not browse.done)
        if browse is None:
            return
        if browse.trouble is not None:
            self._trouble.show(browse.trouble, "Reading ended")
        if self._drawn != (id(browse), len(browse.records), browse.done):
            await self._draw()

    async def _first_page(self) -> None:
        self._pages.set_value(1)
        await self._draw()

    async def _draw(self) -> None:
        """Beside the pages: all records are looked at. What is asked for meanwhile comes after it, once."""
        self._asked = True
        if self._drawing:
            return
        self._drawing = True
        try:
            while self._asked and (browse := self._browse) is not None:
                self._asked = False
                search, number = self._search.value or "", int(self._pages.value or 1)
                shown = await run.io_bound(browse.shown, search, number, PAGE)
                if shown is not None and browse is self._browse:  # None: the console ends
                    self._show(browse, shown)
        finally:
            self._drawing = False

    def _show(self, browse: Browse, shown: Shown) -> None:
        self._pages.max = shown.pages
        self._table.rows = [{**asdict(row), "offset": f"{row.offset:,}"} for row in shown.rows]
        self._table.update()
        self._table.set_visibility(bool(shown.found))
        self._pages.set_visibility(shown.pages > 1)
        self._said.set_text(_said(browse, shown))
        keys = shown.keys
        top = ", ".join(f"{key} ({times:,})" for key, times in keys.top)
        without = f", {keys.without:,} without" if keys.without else ""
        told = f"{words.counted(keys.distinct, 'key')}{without}{': ' if top else ''}{top}"
        self._keys.set_text(told if shown.count else "")
        self._drawn = (id(browse), shown.count, shown.done)

    def _open(self, event: events.GenericEventArguments) -> None:
        if (browse := self._browse) is None:
            return
        n = int(event.args[1]["n"])
        change = browse.change(n)
        self._record.clear()
        with self._record:
            record = browse.records[n]
            ui.label(f"{self._topic} {record.partition}/{record.offset}").classes("mr-title")
            if change is not None:
                ui.label(f"{change.what} · before: {change.source}").classes("mr-soft")
                ui.html(change_table(change), sanitize=False).classes("mr-wide")
            ui.label(browse.whole(n)).classes("mr-text")
            ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
        self._dialog.open()


def _said(browse: Browse, shown: Shown) -> str:
    count, found = shown.count, shown.found
    if not shown.done:
        return f"Reading: {words.counted(count, 'record')} so far"
    if not count:
        return "There are no records there: choose another place to begin"
    how = " (stopped)" if browse.stopped else " (ended by their size)" if browse.cut else ""
    hits = "" if found == count else f", {found:,} of them with that text"
    return f"{words.counted(count, 'record')} read{how}{hits}; the newest first"


def change_table(change: Change) -> str:
    rows = "".join(
        f"<tr{' class=mr-changed' if field.changed else ''}><td>{escape(field.name)}</td>"
        f"<td>{escape(field.before)}</td><td>{escape(field.after)}</td></tr>"
        for field in change.fields
    )
    return f"<table class=mr-changes><tr><th>field</th><th>before</th><th>after</th></tr>{rows}</table>"
