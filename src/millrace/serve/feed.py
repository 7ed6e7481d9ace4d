"""One view's changes for all who watch it: one consumer of its changelog, in whole epochs, from mark to mark."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.errors import MillraceError, ViewUnfilled
from millrace.log import Log, Ranges
from millrace.serve.epochs import Change, Epoch
from millrace.serve.fanout import MEMORY_RECORDS, Batch, Channel
from millrace.serve.reading import Reached, Reading, Shape
from millrace.serve.uncertain import Listening, Records, Uncertain
from millrace.views.changelog import Mark, lsn_text, marks_topic, tentative_topic
from millrace.views.tentative import Told

# Among so many offsets at the end of the topic of marks is the last one: transactions take none there.
_MARKS = 20
_LEAST_S, _MOST_S = 0.5, 10.0
# How often a feed looks whether its changelog is still the same topic: a view that was defined anew has another.
_SAME_S = 5.0
# The store may be a little behind the changelog of a view that was defined anew.
_SHAPE_S, _HANDED_S = 20.0, 60.0
# By so much the clock of who tells tentative rows may be behind that of who writes marks.
_CLOCKS = timedelta(seconds=5)

_logger = logging.getLogger("millrace.serve")


@dataclass
class _Place:
    """Up to where a feed has read its changelog, and when the epoch began that ends there."""

    topic: str
    epoch: int
    ends: dict[int, int]
    at: datetime


class Feed(threading.Thread):
    """Of one view. Its thread reads; the channel, and `trouble`, belong to the event loop."""

    def __init__(self, view: str, log: Log, reading: Reading, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=f"feed {view}", daemon=True)
        self.view, self.channel = view, Channel()
        self.trouble: MillraceError | None = None
        self._log, self._reading, self._loop = log, reading, loop
        self._ended = threading.Event()
        self._place: _Place | None = None
        self._uncertain = Uncertain()
        self._listening: Listening | None = None
        self.in_real_time = False
        # Of a view in real time: a snapshot of before this epoch may have rows that never became certain.
        self.least_epoch = -1
        self._known: tuple[str, Shape] | None = None

    def end(self) -> None:
        self._ended.set()
        if self._listening is not None:
            self._listening.end()

    def guess(self) -> list[Batch]:
        """What whoever begins to watch is told beside the changes: all that is tentative now."""
        found = self._uncertain.all()
        return [] if found is None else [found]

    def run(self) -> None:
        wait_s = _LEAST_S
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                self._follow()
            except MillraceError as error:
                if self.trouble is None or self.trouble.code != error.code:
                    _logger.warning("%s: %s", self.view, error)
                self.trouble = error
            except (CancelledError, TimeoutError):  # the server stops, or was very busy
                _logger.warning("%s: nobody took what was read", self.view)
            except Exception:
                _logger.exception("%s: reading failed, and is tried again", self.view)
            wait_s = _LEAST_S if time.monotonic() - began > _MOST_S else wait_s
            self._ended.wait(wait_s)
            wait_s = min(wait_s * 2, _MOST_S)

    def _follow(self) -> None:
        topic = self._log.topics.identity(self.view)
        if self._place is not None and self._place.topic != topic:
            self._place = None
        marks = marks_topic(self.view)
        first = max(self._log.topics.offsets(marks)[0][1] - _MARKS, 0)
        looked = time.monotonic()
        self.in_real_time = self._log.topics.exists(tentative_topic(self.view))
        with (
            closing(self._log.ranges(self.view)) as ranges,
            closing(self._log.reader(marks, first, follow=True, stop=self._ended).batches()) as batches,
        ):
            for messages in batches:
                found = [Mark.from_json(json.loads(each.value())) for each in messages if each.value()]
                whole = [mark for mark in found if mark.whole]
                reached = -1 if self._place is None else self._place.epoch
                if time.monotonic() - looked > _SAME_S or any(mark.epoch < reached for mark in whole):
                    looked = time.monotonic()
                    if self._log.topics.identity(self.view) != topic:
                        return
                    self.in_real_time = self._log.topics.exists(tentative_topic(self.view))
                self._take(topic, ranges, whole)
                self._listen()

    def _take(self, topic: str, ranges: Ranges, marks: list[Mark]) -> None:
        """At first the last mark alone, with what came not long before it: whoever was away while this server was down
        can go on from there."""
        for mark in marks[-1:] if self._place is None else marks:
            if self._place is not None and mark.epoch <= self._place.epoch:
                continue
            begins = self._place is None
            before = self._remembered(mark) if self._place is None else self._place.ends
            if sum(end - before.get(number, 0) for number, end in mark.ends.items()) > MEMORY_RECORDS:
                before = dict(mark.ends)  # more than is remembered: whoever watches begins again, with a snapshot
            records = [_raw(each) for each in ranges.between(before, mark.ends)]
            act = self._publish(topic, mark, before, records, begins)
            asyncio.run_coroutine_threadsafe(act, self._loop).result(_HANDED_S)
            self._place = _Place(topic, mark.epoch, dict(mark.ends), _began(mark))

    def _listen(self) -> None:
        """When there is a mark: what was told of the epochs up to it is certain, or never was."""
        if self._listening is None and self.in_real_time and self._place is not None:
            self._listening = Listening(self.view, self._log, self._loop, self._guessed, self._told_since)
            self._listening.start()
            self._listening.catch_up()  # before the next mark, which may say of some of it that it never was

    def _told_since(self) -> datetime:
        place = self._place
        return (datetime.now(UTC) if place is None else place.at) - _CLOCKS

    def _remembered(self, mark: Mark) -> dict[int, int]:
        held = self._log.topics.offsets(self.view)
        each = MEMORY_RECORDS // 2 // max(len(mark.ends), 1)
        return {number: max(held.get(number, (0, 0))[0], end - each, 0) for number, end in mark.ends.items()}

    async def _publish(self, topic: str, mark: Mark, before: dict[int, int], records: list[_Raw], begins: bool) -> None:
        """Rows as the store tells them."""
        shape = await self._shape(topic)
        keys, values = [raw.key for raw in records], [raw.value for raw in records]
        rows = await self._reading.changed(self.view, shape, keys, values) if records else []
        changes = tuple(
            Change(raw.partition, raw.offset, key, row) for raw, (key, row) in zip(records, rows, strict=True)
        )
        lsn = None if mark.database is None else lsn_text(mark.lsn)
        if begins:
            self.channel.begin(topic)
        self.trouble = None
        self.channel.publish(Epoch(Reached(mark.epoch, lsn, _began(mark), topic, dict(mark.ends)), before, changes))
        if self._uncertain.certain(mark.epoch, {change.key for change in changes}):
            self._begin_again(mark.epoch)

    async def _guessed(self, told: Told, records: Records) -> None:
        if self.channel.topic is None:
            return  # whoever begins to watch has a snapshot first
        shape = await self._shape(self.channel.topic)
        keys, values = [key for key, _ in records], [value for _, value in records]
        guess = self._uncertain.add(told, await self._reading.changed(self.view, shape, keys, values))
        if guess is not None:
            self.channel.tell(guess)

    def _begin_again(self, epoch: int) -> None:
        """Something was pushed that is not so, and the store knows by this epoch."""
        self.least_epoch = epoch
        for watcher in self.channel.watchers:
            watcher.anew.set()

    async def _shape(self, topic: str) -> Shape:
        deadline = time.monotonic() + _SHAPE_S
        while True:
            if self._known is not None and self._known[0] == topic:
                return self._known[1]
            found = (await self._reading.positions()).get(self.view)
            if found is not None:
                self._known = (found[0].topic, found[1])
            if found is not None and found[0].topic == topic:
                return found[1]
            if time.monotonic() > deadline:
                raise ViewUnfilled(view=self.view)
            await asyncio.sleep(_LEAST_S)


def _began(mark: Mark) -> datetime:
    return datetime.fromtimestamp(mark.at_ms / 1000, UTC)


@dataclass(frozen=True)
class _Raw:
    partition: int
    offset: int
    key: str
    value: str | None


def _raw(message: Any) -> _Raw:
    value = message.value()
    return _Raw(message.partition(), message.offset(), message.key().decode(), value and value.decode())
