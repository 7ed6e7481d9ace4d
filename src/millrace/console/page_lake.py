"""The lake: a list of tables, and a page with a table's versions on a time line and queries as of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from nicegui import events, run, ui

from millrace.console import lake, words
from millrace.console.frame import Trouble, answered, empty, framed, panel, table
from millrace.console.lake import NEWEST, TableFacts, TableLook, VersionFacts
from millrace.console.page_grid import QueryBox
from millrace.console.timeline import Dot, timeline
from millrace.console.views import Answered
from millrace.console.watch import Watch
from millrace.lakehouse.catalog import Unseen

REFRESH_S = 4.0
_COLUMNS = ("table", "format", "version", "written", "rows", "files", "size", "flow", "epoch", "trouble")
# Dots are told by the browser, which has them as one piece of HTML.
_CHOSEN = "(e) => { const number = e.target.dataset.number; if (number) emit(number); }"


def add(watch: Watch) -> None:
    @ui.page("/lake")
    def tables_page() -> None:
        with framed(watch, "/lake", ("Lake", "/lake")):
            trouble = Trouble()
            none = empty(
                "The lake has no tables yet",
                "What to do: give a stream or a captured table a sink, `.to(mr.lake(NAME))`, and run the app; "
                "or `millrace lake archive TOPIC`",
            )
            listed = table(_COLUMNS, "table", numbers=("version", "rows", "files", "size", "epoch"), linked="/lake/")
            none.set_visibility(False)

        async def refresh() -> None:
            found = await answered(watch, lambda: lake.tables(watch.settings), trouble, "The lake cannot be looked at")
            none.set_visibility(found == [])
            listed.set_visibility(bool(found))
            listed.rows = [_summary(each) for each in found or ()]
            listed.update()

        ui.timer(0.1, refresh, once=True)
        ui.timer(REFRESH_S, refresh)

    @ui.page("/lake/{name}")
    def table_page(name: str) -> None:
        with framed(watch, "/lake", ("Lake", "/lake"), (name, f"/lake/{quote(name)}")):
            _Page(watch, name)


def _summary(facts: TableFacts | Unseen) -> dict[str, Any]:
    if isinstance(facts, Unseen):
        return {"table": facts.name, "format": facts.format, "trouble": facts.reason}
    return {
        "table": facts.name,
        "format": facts.format,
        "version": f"{facts.version:,}",
        "written": words.clock(facts.at),
        "rows": words.count(facts.rows),
        "files": words.count(facts.files),
        "size": words.size(facts.size_bytes),
        "flow": facts.flow or words.NOTHING,
        "epoch": words.NOTHING if facts.epoch is None else f"{facts.epoch:,}",
    }


class _Page:
    def __init__(self, watch: Watch, name: str) -> None:
        self._watch, self._name = watch, name
        self._look: TableLook | None = None
        self._chosen: int | None = None  # None is the newest, whichever that is
        self._trouble = Trouble()
        with ui.column().classes("mr-wide mr-gap") as self._shown:
            self._figures = ui.row().classes("mr-figures")
            with panel("Versions", "each commit is one; choose one to ask the table as it was"):
                self._line = ui.html("", sanitize=False).classes("mr-wide")
                self._line.on("click", self._clicked, js_handler=_CHOSEN)
                with ui.row().classes("mr-actions"):
                    ui.button("Older", on_click=lambda: self._step(-1)).props("flat dense no-caps")
                    ui.button("Newer", on_click=lambda: self._step(1)).props("flat dense no-caps")
                    ui.button("Newest", on_click=lambda: self._choose(None)).props("flat dense no-caps")
                    self._about = ui.label().classes("mr-soft")
            QueryBox(
                watch,
                "Query",
                f"DuckDB's SQL over the tables of the lake; {lake.QUERY_S:.0f} s and {lake.MOST_ROWS:,} rows at most",
                f"SELECT *\nFROM {name}",
                self._ask,
                self._as_of,
            )
            with panel("Columns"):
                self._columns = table(("column", "type", "divides the files"), "column", pagination=0)
        self._shown.set_visibility(False)
        ui.timer(0.1, self._refresh, once=True)
        ui.timer(REFRESH_S, self._refresh)

    def _as_of(self) -> None:
        self._moment = ui.input("As of", value=NEWEST)
        self._moment.tooltip('newest, the number of a version, a time, or "10 minutes ago"')

    async def _ask(self, sql: str, most_rows: int) -> Answered:
        moment = str(self._moment.value or "")
        found = await run.io_bound(lake.ask, self._watch.settings, self._name, sql, moment, most_rows)
        assert found is not None
        return found

    async def _refresh(self) -> None:
        def ask() -> TableLook:
            return lake.look(self._watch.settings, self._name)

        found = await answered(self._watch, ask, self._trouble, "The table cannot be looked at")
        if found is None or found == self._look:
            return
        self._look = found
        self._shown.set_visibility(True)
        self._draw()
        self._figures.clear()
        with self._figures:
            for label, value in _figures(found):
                with ui.column().classes("mr-figure"):
                    ui.label(value).classes("mr-figure-value")
                    ui.label(label).classes("mr-soft")
        self._columns.rows = [
            {"column": name, "type": kind, "divides the files": "yes" if name in found.partition_by else ""}
            for name, kind in found.columns.items()
        ]
        self._columns.update()

    def _draw(self) -> None:
        assert self._look is not None
        versions = self._look.versions
        newest = versions[-1].number if versions else None
        shown = newest if self._chosen is None else self._chosen
        dots = [
            Dot(each.number, each.at, "epoch" if each.epoch is not None else "other", _told(each)) for each in versions
        ]
        self._line.set_content(timeline(dots, shown))
        place = next((place for place, each in enumerate(versions) if each.number == shown), None)
        older = f" · {words.counted(self._look.older, 'older version')} not shown" if self._look.older else ""
        said = "" if place is None else _told(versions[place], long=True)
        self._about.set_text(said + older)

    def _clicked(self, event: events.GenericEventArguments) -> None:
        self._choose(int(event.args))

    def _step(self, by: int) -> None:
        """To the version before or after the one that is chosen, as far as there is one."""
        numbers = [] if self._look is None else [each.number for each in self._look.versions]
        if numbers:
            at = len(numbers) - 1 if self._chosen not in numbers else numbers.index(self._chosen)
            self._choose(numbers[min(max(at + by, 0), len(numbers) - 1)])

    def _choose(self, number: int | None) -> None:
        self._chosen = number
        self._moment.set_value(NEWEST if number is None else str(number))
        if self._look is not None:
            self._draw()


def _figures(found: TableLook) -> tuple[tuple[str, str], ...]:
    facts = found.facts
    return (
        ("format", facts.format),
        ("version", f"{facts.version:,}"),
        ("rows", words.count(facts.rows)),
        ("files", words.count(facts.files)),
        ("size", words.size(facts.size_bytes)),
        ("flow", facts.flow or words.NOTHING),
        ("written", words.clock(facts.at)),
    )


def _told(version: VersionFacts, *, long: bool = False) -> str:
    epoch = f" · epoch {version.epoch}" if version.epoch is not None else ""
    holds = "; ".join(_places(topic, parts) for topic, parts in version.holds.items()) if long else ""
    held = f" · holds {holds}" if holds else ""
    return f"version {version.number} · {words.clock(version.at)} · {version.operation}{epoch}{held}"


def _places(topic: str, parts: Mapping[int, int]) -> str:
    return f"{topic} up to " + " ".join(f"{number}:{end:,}" for number, end in sorted(parts.items()))
