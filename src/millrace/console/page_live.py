"""What all live pages share: a board while somebody looks, why there is none, and what to start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from millrace.console import words
from millrace.console.board import LivePage
from millrace.console.frame import Trouble, empty, framed
from millrace.console.watch import Watch

LOOK_S = 0.5

# Draws what the board has now; whether there is anything.
Draw = Callable[[], bool]


def live(watch: Watch, page: LivePage, nothing: str, build: Callable[[Any], Draw]) -> None:
    """A page for a board, if the app has what it needs. `build` makes its elements, and gives what draws them."""
    if page not in watch.live:
        return

    @ui.page(page.path)
    def live_page() -> None:
        with framed(watch, page.path, (page.title, page.path)):
            looked = watch.boards.enter(page)
            ui.context.client.on_delete(lambda: watch.boards.leave(page))
            trouble = Trouble()
            misfits = ui.label().classes("mr-misfits")
            misfits.set_visibility(False)
            waiting = empty(nothing, f"What to do: `millrace run {watch.reference}`, in another terminal")
            with ui.column().classes("mr-wide mr-gap") as shown:
                draw = build(looked.board)
        shown.set_visibility(False)

        def tick() -> None:
            trouble.show(looked.trouble, "It cannot be read")
            with looked.board.guard:
                something, wrong = draw(), looked.board.misfits.total()
            shown.set_visibility(something)
            waiting.set_visibility(not something)
            misfits.set_visibility(wrong > 0)
            misfits.set_text(misfits_said(wrong))

        ui.timer(LOOK_S, tick)


def misfits_said(count: int) -> str:
    """Of records that a board could make nothing of."""
    does, its = ("record does", "its") if count == 1 else ("records do", "their")
    return f"{count:,} {does} not fit: {its} fields are missing or of another kind than this page knows"


def figures(*labels: str) -> list[ui.label]:
    """Labels for large figures in a row."""
    made = []
    with ui.row().classes("mr-figures"):
        for label in labels:
            with ui.column().classes("mr-figure"):
                made.append(ui.label(words.NOTHING).classes("mr-figure-value"))
                ui.label(label).classes("mr-soft")
    return made
