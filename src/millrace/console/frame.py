"""What all pages share: the bar on top, cards for what is wrong and for what is not there yet, asking in the
background."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from nicegui import run, ui

from millrace.console import words
from millrace.console.watch import Watch
from millrace.errors import MillraceError

Answer = TypeVar("Answer")

_LINKS = (
    ("Map", "/"),
    ("Flows", "/flow"),
    ("Topics", "/topic"),
    ("Views", "/view"),
    ("Lake", "/lake"),
    ("Captures", "/capture"),
)


def prepared() -> None:
    """Once for the process: the style of all pages."""
    ui.add_css(Path(__file__).with_name("style.css"), shared=True)


@contextmanager
def framed(watch: Watch, here: str, *trail: tuple[str, str]) -> Iterator[None]:
    """A page under the bar. `here` is the path of its link there, `trail` what stands above the page's title."""
    ui.colors(primary="#1f6feb", positive="#2e8b57", negative="#cf3b2e")
    ui.page_title(" · ".join([*(name for name, _ in trail[::-1]), watch.graph.app, "Millrace"]))
    with ui.header().classes("mr-bar"):
        ui.label(watch.graph.app).classes("mr-app")
        with ui.row().classes("mr-links"):
            for name, path in (*_LINKS, *((page.title, page.path) for page in watch.live)):
                ui.link(name, path).classes("mr-link" + (" mr-here" if path == here else ""))
        ui.space()
        state = ui.label().classes("mr-state")
    with ui.column().classes("mr-page"):
        if trail:
            with ui.row().classes("mr-trail"):
                for name, path in trail[:-1]:
                    ui.link(name, path)
                    ui.label("›")
                ui.label(trail[-1][0]).classes("mr-title")
        yield

    def refresh() -> None:
        looks = [each.look for each in watch.histories.flows.values()]
        running = sum(look is not None and look.state == "running" for look in looks)
        state.set_text(f"{running} of {words.counted(len(looks), 'flow')} running" if looks else "")

    ui.timer(1.0, refresh)


class Trouble:
    """A card for an error: what happened, what to do, its code. It is there while there is one."""

    def __init__(self) -> None:
        with ui.card().classes("mr-trouble") as self._card:
            self._what = ui.label().classes("mr-what")
            self._remedy = ui.label().classes("mr-remedy")
            self._code = ui.label().classes("mr-code")
        self._card.set_visibility(False)

    def show(self, error: MillraceError | None, doing: str = "") -> None:
        self._card.set_visibility(error is not None)
        if error is not None:
            what = f"{doing}: {error.what}" if doing else error.what
            self._what.set_text(what[:1].upper() + what[1:])
            self._remedy.set_text(f"What to do: {error.remedy}")
            self._code.set_text(error.code)


def empty(text: str, todo: str = "") -> ui.card:
    """A card for what is not there yet, and how to get it."""
    with ui.card().classes("mr-empty") as card:
        ui.label(text).classes("mr-what")
        if todo:
            ui.label(todo).classes("mr-remedy")
    return card


@contextmanager
def panel(title: str, about: str = "") -> Iterator[ui.card]:
    with ui.card().classes("mr-panel") as card:
        with ui.row().classes("mr-panel-head"):
            ui.label(title).classes("mr-panel-title")
            if about:
                ui.label(about).classes("mr-about")
        yield card


async def answered(
    watch: Watch, ask: Callable[[], Answer] | Awaitable[Answer], trouble: Trouble, doing: str = ""
) -> Answer | None:
    """What a server says, asked beside the pages; None when the card shows why there is no answer."""
    try:
        found = await ask if inspect.isawaitable(ask) else await run.io_bound(ask)
    except MillraceError as error:
        watch.failed()
        trouble.show(error, doing)
        return None
    trouble.show(None)
    return found


def noted(text: str, *, well: bool = True) -> None:
    ui.notify(text, type="positive" if well else "warning", position="bottom")


def table(
    columns: Sequence[str], key: str, *, numbers: Collection[str] = (), linked: str = "", pagination: int = 20
) -> ui.table:
    """An empty table; `numbers` are the columns that stand right; `linked` is the path before the values of its key,
    which then lead to a page each."""
    made = [
        {"name": name, "label": name, "field": name, "align": "right" if name in numbers else "left"}
        for name in columns
    ]
    found = ui.table(columns=made, rows=[], row_key=key, pagination=pagination).props("flat dense").classes("mr-wide")
    if linked:
        link = f"<a :href=\"'{linked}' + encodeURIComponent(props.value)\">{{{{ props.value }}}}</a>"
        found.add_slot(f"body-cell-{key}", f'<q-td :props="props">{link}</q-td>')
    return found
