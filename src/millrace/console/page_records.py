"""The browser of records: bounded, stoppable, searchable; only the page that is looked at is sent to the browser."""

from __future__ import annotations

from dataclasses import asdict
from html import escape

from nicegui import events, ui

from millrace.console import words
from millrace.console.browsing import MOST_RECORDS, NEWEST, Browse, Change
from millrace.console.frame import Trouble, answered, panel, table
from millrace.console.watch import Watch

PAGE = 50
DEFAULT = 1_000
LOOK_S = 0.3
_COLUMNS = ("time", "partition", "offset", "key", "value")


def records(watch: Watch, topic: str) -> None:
    with panel("Records", f"at most {MOST_RECORDS:,} at a time"):
        _Browser(watch, topic)


class _Browser:
    def __init__(self, watch: Watch, topic: str) -> None:
        self._watch, self._topic = watch, topic
        self._browse: Browse | None = None
        self._drawn: tuple[object, ...] = ()
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
        self._table = table(_COLUMNS, "n", pagination=0).classes("mr-records")
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
        start, limit = self._start.value or NEWEST, int(self._limit.value or 0)
        follow = bool(self._follow.value)

        def begin() -> Browse:
            made = Browse(self._watch.log, self._topic, start, limit, partition, follow=follow)
            made.start()
            return made

        self._browse = await answered(self._watch, begin, self._trouble, "It cannot be read")
        self._first_page()

    def _end(self) -> None:
        if self._browse is not None:
            self._browse.stop()

    def _tick(self) -> None:
        browse = self._browse
        self._stop.set_enabled(browse is not None and not browse.done)
        if browse is None:
            return
        if browse.trouble is not None:
            self._trouble.show(browse.trouble, "Reading ended")
        if self._drawn[:3] != (id(browse), len(browse.records), browse.done):
            self._draw()

    def _first_page(self) -> None:
        self._pages.set_value(1)
        self._draw()

    def _draw(self) -> None:
        if (browse := self._browse) is None:
            return
        done, count = browse.done, len(browse.records)
        found = browse.found(self._search.value or "")
        last = max(-(-len(found) // PAGE), 1)
        self._pages.max = last
        number = min(int(self._pages.value or 1), last)
        self._table.rows = [asdict(row) for row in browse.rows(found[(number - 1) * PAGE : number * PAGE])]
        self._table.update()
        self._table.set_visibility(bool(found))
        self._pages.set_visibility(last > 1)
        self._said.set_text(_said(browse, len(found)))
        keys = browse.keys()
        top = ", ".join(f"{key} ({times:,})" for key, times in keys.top)
        without = f", {keys.without:,} without" if keys.without else ""
        self._keys.set_text(
            f"{words.counted(keys.distinct, 'key')}{without}{': ' if top else ''}{top}" if count else ""
        )
        self._drawn = (id(browse), count, done)

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


def _said(browse: Browse, found: int) -> str:
    count = len(browse.records)
    if not browse.done:
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
