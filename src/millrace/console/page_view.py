"""Views: a list, and a page with a view's rows as they change, what changed, and queries over all views."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from nicegui import ui

from millrace.console import words
from millrace.console.following import MOST_CHANGES, MOST_ROWS, Following
from millrace.console.frame import Trouble, answered, empty, framed, panel, table
from millrace.console.grid import Grid
from millrace.console.page_grid import GridTable, QueryBox
from millrace.console.views import Answered
from millrace.console.watch import Watch
from millrace.errors import nearest
from millrace.flow.views import View
from millrace.serve.query import MOST_ROWS as MOST_ASKED
from millrace.serve.query import STATEMENT_MS
from millrace.serve.reading import Reached

REFRESH_S = 2.0
LOOK_S = 0.5
_COLUMNS = ("view", "key", "reads", "true as of", "age", "epoch")


def add(watch: Watch) -> None:
    @ui.page("/view")
    def views_page() -> None:
        with framed(watch, "/view", ("Views", "/view")):
            if not watch.graph.views:
                empty(
                    f"App {watch.graph.app} has no views",
                    "What to do: define one with `app.view(name, key=…, sql=…)`; see docs/guide/views.md",
                )
                return
            trouble = Trouble()
            listed = table(_COLUMNS, "view", numbers=("age", "epoch"), linked="/view/")

        async def refresh() -> None:
            doing = "It is not known what the views are true of"
            found = await answered(watch, watch.views.positions(), trouble, doing)
            listed.rows = [_summary(view, (found or {}).get(view.name)) for view in watch.graph.views]
            listed.update()

        ui.timer(0.1, refresh, once=True)
        ui.timer(REFRESH_S, refresh)

    @ui.page("/view/{name}")
    def view_page(name: str) -> None:
        with framed(watch, "/view", ("Views", "/view"), (name, f"/view/{quote(name)}")):
            view = next((each for each in watch.graph.views if each.name == name), None)
            if view is None:
                hint = nearest(name, watch.views.names)
                empty(f"App {watch.graph.app} has no view {name!r}{hint}", "What to do: choose one from the list")
                return
            _Page(watch, view)


def _summary(view: View, reached: Reached | None) -> dict[str, Any]:
    reads = ", ".join(view.names)
    if reached is None:
        return {"view": view.name, "key": ", ".join(view.key), "reads": reads, "true as of": "not filled yet"}
    told = reached.told()
    return {
        "view": view.name,
        "key": ", ".join(view.key),
        "reads": reads,
        "true as of": reached.lsn or words.clock(reached.at),
        "age": words.seconds(told["age_s"]),
        "epoch": f"{reached.epoch:,}",
    }


class _Page:
    def __init__(self, watch: Watch, view: View) -> None:
        self._watch, self._drawn = watch, (-1, False)
        self._following: Following = watch.views.enter(view.name)
        ui.context.client.on_delete(lambda: watch.views.leave(view.name))
        self._trouble = Trouble()
        self._waiting = empty("Asking the view store and Kafka …")
        with ui.row().classes("mr-figures") as self._figures:
            self._moment, self._age, self._epoch, self._count = (
                _figure(label) for label in ("true as of", "age", "epoch", "rows")
            )
            self._lsn = _figure("position in the database").classes("mr-code-figure")
        with ui.element("div").classes("mr-grid"):
            with panel("Rows", "as they change"):
                self._rows()
            with panel("Changes", f"as they come, the newest first; {MOST_CHANGES} are kept"):
                self._none = ui.label("Nothing has changed since somebody looks").classes("mr-soft")
                self._changes = ui.html("", sanitize=False).classes("mr-wide mr-rows-scroll mr-low")
        QueryBox(
            watch,
            "Query",
            f"a SELECT over {', '.join(watch.views.names)}; {STATEMENT_MS // 1_000} s and {MOST_ASKED:,} rows at most",
            f"SELECT *\nFROM {_quoted(view.name)}\nORDER BY {', '.join(_quoted(name) for name in view.key)}",
            self._ask,
        )
        with panel("Definition", f"key {', '.join(view.key)} · made at {view.where}"):
            ui.label(_unindented(view.sql)).classes("mr-source")
            ui.link(f"Flow {view.name}", f"/flow/{quote(view.name)}")
        self._tick()
        ui.timer(LOOK_S, self._tick)

    def _rows(self) -> None:
        with ui.row().classes("mr-actions"):
            self._search = ui.input("Search", on_change=self._draw).props("clearable dense")
            self._order = ui.select([], label="Order by", clearable=True, on_change=self._draw).props("dense")
            self._order.style("min-width: 130px")
            self._down = ui.switch("Descending", on_change=self._draw)
        self._said = ui.label().classes("mr-soft")
        self._table = GridTable()

    async def _ask(self, sql: str, most_rows: int) -> Answered:
        found = await self._watch.views.ask(sql, most_rows)
        known = {name: told["lsn"] or f"epoch {told['epoch']}" for name, told in found.positions.items() if name in sql}
        return Answered(found.grid, found.more, found.took_s, known)

    def _tick(self) -> None:
        seen = self._following
        self._trouble.show(seen.trouble, "The view cannot be looked at")
        self._waiting.set_visibility(seen.reached is None and seen.trouble is None)
        self._figures.set_visibility(seen.reached is not None)
        if seen.reached is not None:
            told = seen.reached.told()
            self._moment.set_text(words.clock(seen.reached.at))
            self._lsn.set_text(seen.reached.lsn or words.NOTHING)
            self._age.set_text(words.seconds(told["age_s"]))
            self._epoch.set_text(f"{seen.reached.epoch:,}")
            self._count.set_text(f"{len(seen.rows):,}{' and more' if seen.cut else ''}")
        # What is fresh has to be seen to grow old, too.
        if self._drawn != (seen.n, False):
            self._order.set_options(list(seen.columns))
            self._draw()

    def _draw(self) -> None:
        seen = self._following
        grid, fresh = seen.grid(self._search.value or "", self._order.value, bool(self._down.value))
        self._table.show(grid, fresh)
        self._said.set_text(_said(seen, len(grid.rows), bool(self._search.value)))
        self._none.set_visibility(not seen.changes)
        self._changes.set_visibility(bool(seen.changes))
        moved = tuple((f"{each.at:%H:%M:%S}", each.what, each.key, each.told) for each in seen.changes)
        drawn = Grid(("time", "what", "key", "row"), moved).html() if moved else ""
        if drawn != self._changes.content:
            self._changes.set_content(drawn)
        self._drawn = (seen.n, bool(fresh))


def _figure(label: str) -> ui.label:
    with ui.column().classes("mr-figure"):
        value = ui.label(words.NOTHING).classes("mr-figure-value")
        ui.label(label).classes("mr-soft")
    return value


def _said(seen: Following, found: int, searched: bool) -> str:
    if seen.reached is None:
        return ""
    if not seen.rows:
        return "The view has no rows"
    hits = f"{found:,} with that text, of " if searched else ""
    if seen.cut:
        return f"{hits}the first {MOST_ROWS:,} rows; ask below for others"
    return f"{hits}{words.counted(len(seen.rows), 'row')}"


def _quoted(name: str) -> str:
    """As PostgreSQL wants a name that is not all small letters."""
    return name if name.replace("_", "a").isalnum() and name.islower() else '"' + name.replace('"', '""') + '"'


def _unindented(sql: str) -> str:
    from inspect import cleandoc

    return cleandoc(sql)
