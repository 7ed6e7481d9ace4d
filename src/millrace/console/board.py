"""Boards: what a live page shows of some topics, kept up to date while somebody looks at it."""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from millrace.config import Settings
from millrace.console.looking import unforeseen
from millrace.errors import MillraceError
from millrace.flow import Graph
from millrace.flow import schema as schemas
from millrace.log import Log
from millrace.log.following import Following

# What becomes of fields that are missing or of another kind; decimal.InvalidOperation is an ArithmeticError.
_MISFIT = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)

_logger = logging.getLogger("millrace.console")


class Board(ABC):
    """Threads bring records, one for each topic, and pages look: whoever does either holds `guard`. `n` goes up with
    everything that is new. `misfits` are records that a board could make nothing of, by topic."""

    # Topics, and since when their records are wanted; None for all of them.
    topics: ClassVar[Mapping[str, timedelta | None]]

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.n = 0
        self.misfits = Counter[str]()

    def begin(self, topic: str) -> None:  # noqa: B027 -- for most it is all the same
        """A topic is read from the beginning, perhaps again."""

    @abstractmethod
    def take(self, topic: str, row: Mapping[str, Any]) -> None:
        """A record, as the object that it is. Those of one partition come in their order."""


@dataclass(frozen=True)
class LivePage:
    """A page for every app that has these topics, with at least these columns where it is known which they have, and
    captures these tables."""

    title: str
    path: str
    board: Callable[[], Board]
    needs: Mapping[str, frozenset[str]]
    tables: frozenset[str] = frozenset()

    def fits(self, graph: Graph) -> bool:
        captured = {f"{each.name}.{table}" for each in graph.databases for table in each.capture.tables}
        return self.tables <= captured and self._has_topics(graph)

    def _has_topics(self, graph: Graph) -> bool:
        known = {topic.name: topic for topic in graph.topics}
        return all(
            name in known
            and (
                (schema := known[name].schema) is None
                or columns <= set(schemas.columns(name, schema, known[name].where))
            )
            for name, columns in self.needs.items()
        )


class Tailing(Following):
    """Brings one topic's records to a board, until it is ended. `trouble` is why it has to wait."""

    def __init__(self, settings: Settings, topic: str, board: Board, log: Path) -> None:
        super().__init__(f"live {topic}")
        self.topic = topic
        self.trouble: MillraceError | None = None
        self._settings, self._board, self._log = settings, board, log

    def failed(self, error: Exception) -> None:
        if isinstance(error, MillraceError):
            self.trouble = error
        else:
            _logger.error("%s", self.name, exc_info=error)
            self.trouble = unforeseen(error, self._log)

    def follow(self) -> None:
        since = self._board.topics[self.topic]
        start = "earliest" if since is None else datetime.now(UTC) - since
        reader = Log(self._settings).reader(self.topic, start, follow=True, stop=self.ended)  # type: ignore[arg-type]
        with self._board.guard:
            self._board.begin(self.topic)
            del self._board.misfits[self.topic]
        self.trouble = None
        with closing(reader.batches()) as batches:
            for messages in batches:
                bring(self._board, self.topic, [message.value() for message in messages])


def bring(board: Board, topic: str, values: Iterable[bytes | None]) -> None:
    """Records that are other than the board knows them are counted, so that a page can say so. One without a value
    says nothing."""
    rows = [_object(value) for value in values if value]
    with board.guard:
        for row in rows:
            try:
                if row is None:
                    raise ValueError("it is no object")
                board.take(topic, row)
                board.n += 1
            except _MISFIT as error:
                board.misfits[topic] += 1
                _logger.debug("a record of %s does not fit: %s", topic, error)


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@dataclass
class Looked:
    """A board that somebody looks at, and what feeds it."""

    board: Board
    tails: Sequence[Tailing]
    looking: int = field(default=0)

    @property
    def trouble(self) -> MillraceError | None:
        return next((tail.trouble for tail in self.tails if tail.trouble is not None), None)


class Boards:
    """One board a page for all who look at it."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._settings, self._log = settings, log
        self._looked: dict[str, Looked] = {}

    def enter(self, page: LivePage) -> Looked:
        """`leave` is to be called once for it."""
        found = self._looked.get(page.path)
        if found is None:
            board = page.board()
            tails = [Tailing(self._settings, topic, board, self._log) for topic in board.topics]
            found = self._looked[page.path] = Looked(board, tails)
            for tail in tails:
                tail.start()
        found.looking += 1
        return found

    def leave(self, page: LivePage) -> None:
        found = self._looked[page.path]
        found.looking -= 1
        if not found.looking:
            del self._looked[page.path]
            for tail in found.tails:
                tail.end()

    def close(self) -> None:
        for found in self._looked.values():
            for tail in found.tails:
                tail.end()
