"""Of a view in real time, what was told since its last mark: pushed at once, and again to whoever comes meanwhile.

What holds: every key of which a tentative row was pushed, or was in a snapshot, is told again, by the changes of the
epoch that makes it certain. What was pushed by a flow that was killed is not: with the next epoch all who watch begin
again, with a snapshot of a store that has it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from millrace.errors import MillraceError
from millrace.log import Log
from millrace.log.following import Following
from millrace.serve.epochs import Change, Epoch, Filter
from millrace.serve.reading import Reached
from millrace.views.changelog import tentative_topic
from millrace.views.tentative import GATHER_S, Told

_HANDED_S, _CAUGHT_UP_S = 60.0, 10.0

_logger = logging.getLogger("millrace.serve")

# Keys and values of records of one epoch, in their order.
Records = list[tuple[str, str | None]]


class Guess(Epoch):
    """Changes that are tentative. They have no place in the changelog: whoever watches is told."""

    def __init__(self, epoch: int, changes: Collection[tuple[str, str | None]]) -> None:
        reached = Reached(epoch, None, datetime.now(UTC), "", {})
        super().__init__(reached, {}, tuple(Change(-1, 0, key, row) for key, row in changes))

    def is_behind(self, ends: Mapping[int, int]) -> bool:  # noqa: ARG002 -- nobody has what has no place
        return False

    def text(self, wanted: Filter, ends: Mapping[int, int]) -> tuple[str, bool]:
        rows, gone = self.last(wanted, ends)
        told = f'"epoch":{json.dumps(self.reached.epoch)},"rows":[{",".join(rows)}],"gone":[{",".join(gone)}]'
        return f'{{"type":"tentative",{told}}}', bool(rows or gone)


class Uncertain:
    """All that is. It belongs to the event loop."""

    def __init__(self) -> None:
        self._incarnation, self._epoch = 0, -1
        self._told: dict[str, tuple[Told, str | None]] = {}

    def add(self, told: Told, changes: Collection[tuple[str, str | None]]) -> Guess | None:
        """What to push of these. What another incarnation told stays known: whoever heard it has to hear more."""
        self._incarnation = max(self._incarnation, told.incarnation)
        if told.epoch <= self._epoch:
            return None
        if told.incarnation < self._incarnation:
            for key, row in changes:  # a snapshot may have had it
                self._told.setdefault(key, (told, row))
            return None
        self._told.update({key: (told, row) for key, row in changes})
        return Guess(told.epoch, changes)

    def certain(self, epoch: int, keys: Collection[str]) -> bool:
        """With the changes of an epoch, which tell of these keys. Whether something else was pushed as a part of it."""
        self._epoch = max(self._epoch, epoch)
        over = {key for key, (told, _) in self._told.items() if told.epoch <= epoch}
        for key in over:
            del self._told[key]
        return not over <= set(keys)

    def all(self) -> Guess | None:
        """For whoever comes now."""
        known = {key: each for key, each in self._told.items() if each[0].incarnation == self._incarnation}
        if not known:
            return None
        return Guess(max(told.epoch for told, _ in known.values()), [(key, row) for key, (_, row) in known.items()])


class Listening(Following):
    """Reads the tentative rows of a view, and hands what one epoch told at once to the event loop."""

    def __init__(
        self,
        view: str,
        log: Log,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[Told, Records], Coroutine[Any, Any, None]],
        since: Callable[[], datetime],
    ) -> None:
        super().__init__(f"tentative {view}")
        self._view, self._log, self._loop, self._take, self._since = view, log, loop, take, since
        self._caught_up = threading.Event()

    def catch_up(self) -> None:
        """Waits until it has handed over what was told before it began."""
        self._caught_up.wait(_CAUGHT_UP_S)

    def failed(self, error: Exception) -> None:
        if isinstance(error, MillraceError):
            _logger.debug("%s: %s", self._view, error)
        else:
            _logger.warning("%s: tentative rows were not told", self._view, exc_info=error)

    def follow(self) -> None:
        told_in = tentative_topic(self._view)
        # From the last mark on: the store shows what was told since, also before anybody listened.
        reader = self._log.reader(told_in, self._since(), follow=True, stop=self.ended, gather_s=GATHER_S)
        missing = {number: last for number, (_, last) in reader.held.items() if reader.begins[number] < last}
        with closing(reader.batches()) as batches:
            if not missing:
                self._caught_up.set()
            for messages in batches:
                found: dict[Told, Records] = {}
                for message in messages:
                    told, value = Told.of(message), message.value()
                    found.setdefault(told, []).append((message.key().decode(), value and value.decode()))
                # The last incarnation first: what one of before it has told is not pushed any more.
                for told in sorted(found, key=lambda each: (-each.incarnation, each.epoch)):
                    act = self._take(told, found[told])
                    asyncio.run_coroutine_threadsafe(act, self._loop).result(_HANDED_S)
                for message in messages:
                    if message.offset() + 1 >= missing.get(message.partition(), math.inf):
                        del missing[message.partition()]
                if not missing:
                    self._caught_up.set()
