"""The views of the app: what each is true of, queries over them, and one follower of a view for all who look at it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.config import Settings
from millrace.console.following import Following
from millrace.console.grid import Grid
from millrace.errors import RequestInvalid, ServerError
from millrace.flow import Graph
from millrace.serve.query import MOST_ROWS, Queries
from millrace.serve.reading import Reached, Reading


@dataclass
class _Followed:
    following: Following
    task: asyncio.Task[None]
    looking: int = 0


@dataclass(frozen=True)
class Answered:
    """What a query gave; `more` if it had more rows than were asked for. `positions` are what each view was true of."""

    grid: Grid
    more: bool
    took_s: float
    positions: dict[str, Any] = field(default_factory=dict)


class Views:
    """Used by pages, on the event loop."""

    def __init__(self, settings: Settings, graph: Graph, log: Path) -> None:
        self.names = tuple(view.name for view in graph.views)
        self._settings, self._app, self._log = settings, graph.app, log
        self._followed: dict[str, _Followed] = {}
        self._asking: tuple[Reading, Queries] | None = None

    def enter(self, view: str) -> Following:
        """Somebody looks at a view; `leave` is to be called once for it."""
        followed = self._followed.get(view)
        if followed is None:
            following = Following(self._settings, self._app, view, self._log)
            followed = self._followed[view] = _Followed(following, asyncio.create_task(following.run()))
        followed.looking += 1
        return followed.following

    def leave(self, view: str) -> None:
        followed = self._followed.get(view)
        if followed is None:  # all was closed meanwhile
            return
        followed.looking -= 1
        if not followed.looking:
            followed.task.cancel()
            del self._followed[view]

    async def positions(self) -> dict[str, Reached]:
        """Of the views that are filled."""
        reading, _ = self._opened()
        try:
            return {name: reached for name, (reached, _) in (await reading.positions()).items()}
        except ServerError:
            await self._anew()
            raise

    async def ask(self, sql: str, most_rows: int) -> Answered:
        """One SELECT over the views: with the role, the time and the limits that `POST /v1/query` has."""
        if not 1 <= most_rows <= MOST_ROWS:
            reason, remedy = "it is no such number", f"ask for 1 to {MOST_ROWS:,} rows"
            raise RequestInvalid(parameter="the number of rows", given=most_rows, reason=reason, remedy=remedy)
        _, queries = self._opened()
        began = time.monotonic()
        try:
            found = await queries.answer(sql.strip().removesuffix(";"), most_rows)
        except ServerError:
            await self._anew()
            raise
        return Answered(Grid.of_json(found.rows), found.more, time.monotonic() - began, found.positions)

    async def close(self) -> None:
        for followed in self._followed.values():
            followed.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await followed.task
        self._followed.clear()
        await self._anew()

    def _opened(self) -> tuple[Reading, Queries]:
        if self._asking is None:
            reading = Reading(self._settings, self._app, self.names)
            self._asking = (reading, Queries(self._settings, reading))
        return self._asking

    async def _anew(self) -> None:
        """After a failure all is made anew, because a server may come back elsewhere."""
        if self._asking is not None:
            (reading, queries), self._asking = self._asking, None
            await queries.close()
            await reading.close()
