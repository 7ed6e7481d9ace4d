"""The leaderboard demo, live: the best players, as scores come in."""

from __future__ import annotations

from nicegui import ui

from millrace.console import words
from millrace.console.board_leaders import Leader, LeaderBoard
from millrace.console.frame import panel
from millrace.console.grid import Grid
from millrace.console.live import LEADERS
from millrace.console.page_grid import GridTable
from millrace.console.page_live import figures, live
from millrace.console.watch import Watch


def add(watch: Watch) -> None:
    live(watch, LEADERS, "Nobody has played yet", lambda board: _Page(board).draw)


class _Page:
    def __init__(self, board: LeaderBoard) -> None:
        self._board, self._drawn = board, (-1, True)
        self._figures = figures("leader", "points", "to be among them", "changes read")
        with panel("Best players", "as they change; ranks are the flow's own") as card:
            card.classes("mr-narrow")
            self._search = ui.input("Search", on_change=self._list).props("clearable dense")
            self._table = GridTable()

    def draw(self) -> bool:
        # What is fresh has to be seen to grow old, too.
        if self._drawn != (self._board.n, False):
            self._list()
        leaders = self._board.leaders()
        if leaders:
            told = (leaders[0].player, f"{leaders[0].points:,}", f"{leaders[-1].points:,}")
            for label, value in zip(self._figures, (*told, words.count(self._board.n)), strict=True):
                label.set_text(value)
        return bool(leaders)

    def _list(self) -> None:
        with self._board.guard:
            found, n = self._board.leaders(self._search.value or ""), self._board.n
        rows = tuple((str(each.rank), each.player, f"{each.points:,}", _moved(each)) for each in found)
        fresh = [place for place, each in enumerate(found) if each.fresh]
        self._table.show(Grid(("rank", "player", "points", "moved"), rows), fresh)
        self._drawn = (n, bool(fresh))


def _moved(leader: Leader) -> str:
    if leader.rose is None:
        return "new"
    return f"▲ {leader.rose}" if leader.rose > 0 else f"▼ {-leader.rose}" if leader.rose < 0 else ""
