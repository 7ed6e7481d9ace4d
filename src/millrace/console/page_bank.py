"""The bank demo, live: its events on the left, what follows from them on the right, at any moment of its time."""

from __future__ import annotations

from typing import Any

from nicegui import events, ui

from millrace.console import words
from millrace.console.board_bank import BankBoard, Books, read_again
from millrace.console.frame import Trouble, answered, panel
from millrace.console.grid import Grid
from millrace.console.live import BANK
from millrace.console.page_grid import GridTable
from millrace.console.page_live import figures, live
from millrace.console.watch import Watch

MOST_SHOWN = 500
# A replay is for people to look at: it takes so many looks, however many events there are.
REPLAY_LOOKS = 16


def add(watch: Watch) -> None:
    live(watch, BANK, "Nothing has happened at the bank yet", lambda board: _Page(watch, board).draw)


class _Page:
    """`moment` is after how many events it looks; None for now, whatever comes. `again` are the books of a replay."""

    def __init__(self, watch: Watch, board: BankBoard) -> None:
        self._watch, self._board = watch, board
        self._again: BankBoard | None = None
        self._moment: int | None = None
        self._replaying = False
        self._drawn = (-1, -1)
        self._figures = figures("events", "moment", "in accounts", "on its way", "transfers open")
        with panel("Time", "the books after any event; a replay reads the whole topic once more and makes them anew"):
            self._slider = ui.slider(min=0, max=1, value=1, on_change=self._slid).props("label").classes("mr-wide")
            with ui.row().classes("mr-actions"):
                ui.button("Now", on_click=self._now).props("no-caps flat")
                ui.button("Replay from scratch", on_click=self._replay).props("no-caps")
                self._outcome = ui.label("").classes("mr-soft")
            self._trouble = Trouble()
        with ui.row().classes("mr-wide mr-sides"):
            with panel("Events", "what happened, the newest first: the only record"):
                self._log = GridTable()
            with panel("Books", "what follows from them"):
                self._books = GridTable()

    def draw(self) -> bool:
        count = self._board.live.events
        if not count:
            return False
        if self._replaying and self._moment is not None:
            self._moment = min(count, self._moment + max(1, (count - self._board.oldest) // REPLAY_LOOKS))
            if self._moment >= count:
                self._finish()
        self._show(count)
        return True

    def _show(self, count: int) -> None:
        moment = count if self._moment is None else max(self._board.oldest, min(self._moment, count))
        if self._drawn == (count, moment):
            return
        self._drawn = (count, moment)
        self._slider._props["min"], self._slider._props["max"] = self._board.oldest, count
        self._slider.set_value(moment)
        self._slider.update()
        books = self._board.after(moment)
        happened = list(self._board.before(moment, MOST_SHOWN))
        told = (
            f"{moment:,} of {count:,}",
            happened[0].at[:19].replace("T", " ") if happened else words.NOTHING,
            f"${books.held:,.2f}",
            f"${books.on_its_way:,.2f}",
            words.count(len(books.transfers)),
        )
        for label, value in zip(self._figures, told, strict=True):
            label.set_text(value)
        rows = tuple((str(each.position), each.type, each.id, each.said) for each in happened)
        self._log.show(Grid(("position", "event", "of", "with"), rows))
        self._books.show(Grid(("account", "balance"), _accounts(books)))

    def _finish(self) -> None:
        """The books that were made anew have to be those that were kept up event by event."""
        if self._again is None or (same := self._board.same(self._again)) is None:
            return
        word = "the same books as before" if same else "other books than before: what follows is not what happened"
        self._outcome.set_text(f"{words.count(self._again.live.events)} events read again, {word}")
        self._moment, self._replaying = None, False

    def _slid(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if int(event.value) == self._drawn[1]:  # set by us, not by somebody who looks
            return
        self._replaying = False
        with self._board.guard:
            self._moment = int(event.value)
            self._show(self._board.live.events)

    def _now(self) -> None:
        self._moment, self._replaying = None, False

    async def _replay(self) -> None:
        """People see the books grow from the events that are here, while the topic is read."""
        self._again = None
        self._outcome.set_text("Reading the topic from its beginning …")
        with self._board.guard:
            self._moment, self._replaying = self._board.oldest, True
            self._show(self._board.live.events)
        self._again = await answered(
            self._watch, lambda: read_again(self._watch.log), self._trouble, "The topic cannot be read again"
        )
        if self._again is None:
            self._outcome.set_text("")
            self._now()


def _accounts(books: Books) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"${amount:,.2f}") for name, amount in sorted(books.balances.items(), key=_by_number))


def _by_number(account: tuple[str, object]) -> tuple[int, str]:
    return len(account[0]), account[0]
