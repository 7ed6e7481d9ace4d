"""The leaderboard demo, live: the best players, as scores come in."""

from __future__ import annotations

from nicegui import ui

from millrace.console import words
from millrace.console.board_leaders import LEADERS as TOPIC
from millrace.console.board_leaders import Leader, LeaderBoard
from millrace.console.frame import Trouble, answered, panel
from millrace.console.grid import Grid
from millrace.console.live import LEADERS
from millrace.console.page_grid import GridTable
from millrace.console.page_live import figures, live
from millrace.console.ranks import Rank, rank_of, ranking_of
from millrace.console.watch import Watch
from millrace.sinks.redis import RedisRanking

# How often it is looked whether the topic has its beginning.
BEGINNING_S = 30.0


def add(watch: Watch) -> None:
    live(watch, LEADERS, "Nobody has played yet", lambda board: _Page(watch, board).draw)


class _Page:
    def __init__(self, watch: Watch, board: LeaderBoard) -> None:
        self._watch, self._board, self._drawn = watch, board, (-1, True)
        self._figures = figures("leader", "points", "to be among them", "changes read")
        self._trouble, self._gone = Trouble(), ui.label().classes("mr-misfits")
        with ui.element("div").classes("mr-grid mr-wide-left"):
            with panel("Best players", "as they change; ranks are the flow's own"):
                self._search = ui.input("Search", on_change=self._list).props("clearable dense")
                self._table = GridTable()
            if (ranking := ranking_of(watch.graph)) is not None:
                _RankBox(watch, ranking)
        ui.timer(0.1, self._look_back, once=True)
        ui.timer(BEGINNING_S, self._look_back)

    async def _look_back(self) -> None:
        """The ranking is what follows from all changes: of some that are gone, players may be missing."""
        found = await answered(
            self._watch, lambda: self._watch.log.topics.extents([TOPIC]), self._trouble, "The topic cannot be looked at"
        )
        gone = sum(extent.first for extent in (found or {}).get(TOPIC, {}).values())
        self._gone.set_text(gone_said(gone))
        self._gone.set_visibility(gone > 0)

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


class _RankBox:
    def __init__(self, watch: Watch, ranking: RedisRanking) -> None:
        self._watch, self._ranking = watch, ranking
        with panel("Rank of a player", f"of all who have played, from the sorted set {ranking.ranking}"):
            with ui.row().classes("mr-actions"):
                self._player = ui.input("Player").props("dense").on("keydown.enter", self._ask)
                ui.button("Ask", on_click=self._ask).props("no-caps")
            self._trouble, self._said = Trouble(), ui.label("Nobody asked for yet").classes("mr-soft")

    async def _ask(self) -> None:
        player = (self._player.value or "").strip()
        if not player:
            return

        def ask() -> str:
            return rank_said(player, rank_of(self._ranking, self._watch.settings, player))

        self._said.set_text(await answered(self._watch, ask, self._trouble, "Redis cannot be asked") or "")


def rank_said(player: str, found: Rank | None) -> str:
    if found is None:
        return f"{player} has not played"
    return f"{player}: rank {found.rank:,} of {found.players:,}, with {found.points:,.0f} points"


def gone_said(gone: int) -> str:
    return (
        f"The topic has lost its first {words.counted(gone, 'change')} to its retention: whoever was among the best "
        "and has not changed since is missing here"
    )


def _moved(leader: Leader) -> str:
    if leader.rose is None:
        return "new"
    return f"▲ {leader.rose}" if leader.rose > 0 else f"▼ {-leader.rose}" if leader.rose < 0 else ""
