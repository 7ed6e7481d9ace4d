"""A view while somebody looks at it: its rows, and what each epoch changed in them.

What holds: as long as it is not `cut`, `rows` is the view as of the position `reached`. Of a larger view it has some
rows and keeps those true. All of it belongs to the event loop; the feed, which reads the changelog, is that of
`millrace serve`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from millrace.config import Settings
from millrace.console.grid import Cell, Grid, cell
from millrace.console.looking import unforeseen
from millrace.errors import MillraceError, ViewUnfilled
from millrace.log import Log
from millrace.serve.epochs import Change, Epoch
from millrace.serve.fanout import Batch, Watcher
from millrace.serve.feed import Feed
from millrace.serve.reading import Found, Reached, Reading, Wish, exact

MOST_ROWS = 1_000
MOST_CHANGES = 50
# How long a change of a row is to be seen in it.
FRESH_S = 3.0
_READY_S = 10.0
_LOOK_S = 0.25
_AGAIN_S = 2.0
_END_S = 3.0

_logger = logging.getLogger("millrace.console")

# Of a row that was not held before it is not known whether it is a new one.
What: TypeAlias = Literal["came", "changed", "came or changed", "gone"]


@dataclass(frozen=True)
class Moved:
    """What became of one row: of which columns it has other values now, and what they were."""

    at: datetime
    lsn: str | None
    what: What
    key: str
    fields: tuple[tuple[str, Cell, Cell], ...]

    @property
    def told(self) -> str:
        if self.what == "changed":
            return ", ".join(f"{name}: {_text(before)} → {_text(after)}" for name, before, after in self.fields)
        if self.what == "gone":
            return ", ".join(f"{name}: {_text(before)}" for name, before, _ in self.fields)
        return ", ".join(f"{name}: {_text(after)}" for name, _, after in self.fields)


@dataclass(frozen=True)
class Held:
    """A row, and when it came or changed; 0 if it was there before anybody looked."""

    values: Mapping[str, Any]
    at: float = 0.0


class Following:
    """Of one view. `n` goes up with everything that is new."""

    def __init__(self, settings: Settings, app: str, view: str, log: Path) -> None:
        self.view = view
        self.columns: tuple[str, ...] = ()
        self.key: tuple[str, ...] = ()
        self.rows: dict[tuple[str, ...], Held] = {}
        self.changes: deque[Moved] = deque(maxlen=MOST_CHANGES)
        self.reached: Reached | None = None
        self.cut = False
        self.trouble: MillraceError | None = None
        self.n = 0
        self._settings, self._app, self._log = settings, app, log

    async def run(self) -> None:
        """Until it is cancelled; whatever fails is tried again."""
        while True:
            try:
                await self._follow()
            except MillraceError as error:
                self.trouble = error
            except Exception as error:
                _logger.exception("%s", self.view)
                self.trouble = unforeseen(error, self._log)
            self.n += 1
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self) -> None:
        reading = Reading(self._settings, self._app, [self.view])
        feed = Feed(self.view, Log(self._settings), reading, asyncio.get_running_loop())
        feed.start()
        try:
            if not await feed.channel.ready(_READY_S):
                raise feed.trouble or ViewUnfilled(view=self.view)
            while True:
                await self._from_the_store(reading, feed)
        finally:
            feed.end()
            await asyncio.to_thread(feed.join, _END_S)  # it may be asking for rows at this moment
            await reading.close()

    async def _from_the_store(self, reading: Reading, feed: Feed) -> None:
        """Rows, and then changes, until these cannot be gone on with: the view was defined anew, or much came at
        once."""
        found = await reading.rows(self.view, Wish(limit=MOST_ROWS))
        known = feed.channel.since(found.reached.topic, found.reached.ends)
        if known is None:  # one of the two has not heard of the other's changelog yet
            await asyncio.sleep(_LOOK_S)
            return
        self.begin(found)
        hearing = _Hearing(self, found.reached.ends)
        for batch in known:
            hearing(batch)
        feed.channel.watchers.add(hearing)
        try:
            await hearing.anew.wait()
        finally:
            feed.channel.watchers.discard(hearing)

    def begin(self, found: Found) -> None:
        self.columns, self.key = tuple(found.shape.columns), found.shape.key
        rows = [exact(text) for text in found.rows]
        self.rows = {self._key(row): Held(row) for row in rows}
        self.reached, self.cut, self.trouble = found.reached, found.more, None
        self.n += 1

    def take(self, epoch: Epoch, ends: Mapping[int, int]) -> None:
        """Of each key the last change that lies behind these offsets."""
        last = {change.key: change for change in epoch.changes if change.offset >= ends.get(change.partition, 0)}
        for change in last.values():
            if (moved := self._changed(change, epoch.reached)) is not None:
                self.changes.appendleft(moved)
        self.reached, self.trouble = epoch.reached, None
        self.n += 1

    def _changed(self, change: Change, reached: Reached) -> Moved | None:
        """None if it changed nothing that can be seen."""
        names, row = exact(change.key), exact(change.row)
        key = self._key(names)
        held = self.rows.get(key)
        before: Mapping[str, Any] = {} if held is None else held.values
        what: What = "gone" if row is None else "changed" if held else "came or changed" if self.cut else "came"
        if (row is None and held is None and not self.cut) or (held is not None and row == held.values):
            return None
        if row is None:
            self.rows.pop(key, None)
        elif held is not None or len(self.rows) < MOST_ROWS:
            self.rows[key] = Held(row, time.monotonic())
        else:
            self.cut = True
        after = row or {}
        fields = tuple(
            (name, cell(before.get(name)), cell(after.get(name)))
            for name in self.columns
            if name not in self.key and (what != "changed" or before.get(name) != after.get(name))
        )
        told = ", ".join(_text(cell(names.get(name))) for name in self.key)
        return Moved(datetime.now(UTC), reached.lsn, what, told, fields)

    def _key(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(repr(values.get(name)) for name in self.key)

    def grid(self, search: str, order: str | None, descending: bool) -> tuple[Grid, frozenset[int]]:
        """The rows that have this text somewhere, ordered by a column (by the key if none is named), and which of them
        are fresh."""
        wanted, now = search.strip().lower(), time.monotonic()
        rows = [(held, tuple(cell(held.values.get(name)) for name in self.columns)) for held in self.rows.values()]
        found = [(held, row) for held, row in rows if not wanted or any(wanted in (each or "").lower() for each in row)]
        names = (order,) if order in self.columns else self.key
        found.sort(key=lambda each: _order(each[0].values, names, descending), reverse=descending)
        fresh = frozenset(place for place, (held, _) in enumerate(found) if held.at and now - held.at < FRESH_S)
        return Grid(self.columns, tuple(row for _, row in found)), fresh


class _Hearing(Watcher):
    def __init__(self, following: Following, ends: Mapping[int, int]) -> None:
        super().__init__(ends)
        self._following = following

    def take(self, batch: Batch) -> None:
        assert isinstance(batch, Epoch)
        self._following.take(batch, self.ends)


def _order(values: Mapping[str, Any], names: Sequence[str], descending: bool) -> tuple[tuple[int, Any], ...]:
    """Nulls last in either direction, as the server has them; numbers as numbers; what has parts as text."""
    found: list[tuple[int, Any]] = []
    for name in names:
        value = values.get(name)
        if value is None:
            found.append((-1 if descending else 3, 0))
        elif isinstance(value, bool) or not isinstance(value, str | list | dict):
            found.append((1, value))
        else:
            found.append((2, value if isinstance(value, str) else str(cell(value))))
    return tuple(found)


def _text(value: Cell) -> str:
    return "null" if value is None else value
