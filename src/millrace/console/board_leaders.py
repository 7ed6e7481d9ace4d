"""The best of all players, from what changed in the ranking: signed rows, of which each takes away or adds one."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from millrace.console.board import Board

LEADERS = "leaders"
FRESH_S = 3.0
# Of so many who are not among the best any more it is known where they stood.
MOST_GONE = 1_000


@dataclass(frozen=True)
class Leader:
    """`rose` is by how many ranks the player stands better than before; None for one who has come in."""

    rank: int
    player: str
    points: int
    rose: int | None
    at: float

    @property
    def fresh(self) -> bool:
        return time.monotonic() - self.at < FRESH_S


class LeaderBoard(Board):
    """Kept by player: one player's changes are in one partition and so in their order, those of a rank are not."""

    topics: ClassVar[Mapping[str, timedelta | None]] = {LEADERS: None}

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, Leader] = {}
        self._went: OrderedDict[str, int] = OrderedDict()
        self._began = time.monotonic()

    def begin(self, topic: str) -> None:  # noqa: ARG002 -- there is one
        self._held.clear()
        self._went.clear()
        self._began = time.monotonic()

    def take(self, topic: str, row: Mapping[str, Any]) -> None:  # noqa: ARG002 -- there is one
        player, rank, points = str(row["player"]), int(row["rank"]), int(row["points"])
        held = self._held.get(player)
        if int(row["__diff"]) < 0:
            # Of a repeat after a crash, what it takes away may be gone, or be there anew with other points.
            if held is not None and (held.rank, held.points) == (rank, points):
                del self._held[player]
                self._went[player] = rank
                while len(self._went) > MOST_GONE:
                    self._went.popitem(last=False)
            return
        before, now = self._went.pop(player, None) if held is None else held.rank, time.monotonic()
        if before is None and now - self._began < FRESH_S:
            before = rank  # who was there when the page was opened has not come in
        self._held[player] = Leader(rank, player, points, None if before is None else before - rank, now)

    def leaders(self, search: str = "") -> list[Leader]:
        wanted = search.strip().lower()
        found = [each for each in self._held.values() if wanted in each.player.lower()]
        return sorted(found, key=lambda each: (each.rank, each.player))
