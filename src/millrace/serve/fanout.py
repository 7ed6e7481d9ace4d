"""From one reader to all who watch: a memory of what was read last, and watchers that are told of it.

What holds:
- A watcher is told of what lies behind its own offsets, all of it and nothing else: however much was read together,
  records are compared by their place in the topic.
- The memory has a limit. Whoever comes from before it is told so.
- Telling one of something never waits for another: a socket that does not take it soon is dropped (`sockets.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace.serve.sockets import Socket, framed

# What is remembered of each topic that somebody watches.
MEMORY_RECORDS = 20_000
MEMORY_BYTES = 16 * 1024 * 1024
# A watcher to whom nothing of what happens matters hears every so often how far it is told of.
QUIET_S = 1.0


@dataclass(eq=False)
class Batch:
    """What was read together: where the topic was before it and is then. `text` makes a message of it: for whoever
    wants the given, and has what is before the given offsets; with whether there is anything in it."""

    before: Mapping[int, int]
    ends: Mapping[int, int]
    records: int
    size_bytes: int
    _frames: dict[Any, tuple[bytes, bool]] = field(default_factory=dict)

    def text(self, wanted: Any, ends: Mapping[int, int]) -> tuple[str, bool]:
        raise NotImplementedError

    def is_behind(self, ends: Mapping[int, int]) -> bool:
        """Whether somebody who has everything up to there has all of it."""
        return all(end <= ends.get(number, 0) for number, end in self.ends.items())

    def frame(self, wanted: Any, ends: Mapping[int, int]) -> tuple[bytes, bool]:
        """As it goes over the wire; made once for all who want the same and come from just before it."""
        whole = all(ends.get(number, 0) <= start for number, start in self.before.items())
        if whole and wanted in self._frames:
            return self._frames[wanted]
        text, matters = self.text(wanted, ends)
        frame = framed(text), matters
        if whole:
            self._frames[wanted] = frame
        return frame


def ahead(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """Of each partition the later place: a watcher may begin at the end of a topic that is not read up to there yet."""
    return {number: max(one.get(number, 0), other.get(number, 0)) for number in {*one, *other}}


class Watcher:
    """Somebody, and up to which offsets they are told. `anew` is set when they cannot go on from there, and have to
    begin with a snapshot."""

    def __init__(self, ends: Mapping[int, int]) -> None:
        self.ends = ends
        self.anew = asyncio.Event()

    def __call__(self, batch: Batch) -> None:
        if self.anew.is_set() or batch.is_behind(self.ends):
            return
        if any(self.ends.get(number, 0) < start for number, start in batch.before.items()):
            self.anew.set()
            return
        self.take(batch)
        self.ends = ahead(batch.ends, self.ends)

    def take(self, batch: Batch) -> None:
        """What of it lies behind `ends`, and nothing else, is new."""
        raise NotImplementedError


class SocketWatcher(Watcher):
    """A client's WebSocket."""

    def __init__(self, socket: Socket, wanted: Any, ends: Mapping[int, int], told: Callable[[], None]) -> None:
        super().__init__(ends)
        self._socket, self._wanted = socket, wanted
        self._told, self._last = told, 0.0

    def take(self, batch: Batch) -> None:
        frame, matters = batch.frame(self._wanted, self.ends)
        now = time.monotonic()
        if matters or now - self._last > QUIET_S:
            self._last = now
            self._socket.tell(frame)
            self._told()


class Channel:
    """The watchers of one topic. All of it belongs to the event loop. `topic` is its identity."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.watchers: set[Watcher] = set()
        self._memory: deque[Batch] = deque()
        self._records = self._size_bytes = 0
        self._begun = asyncio.Event()

    async def ready(self, limit_s: float) -> bool:
        """When it knows what came last."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._begun.wait()
        return self._begun.is_set()

    def begin(self, topic: str) -> None:
        """Another topic than before has nothing that anybody could go on from."""
        self.topic = topic
        self._memory.clear()
        self._records = self._size_bytes = 0
        for watcher in self.watchers:
            watcher.anew.set()

    def publish(self, batch: Batch) -> None:
        self._memory.append(batch)
        self._records += batch.records
        self._size_bytes += batch.size_bytes
        while len(self._memory) > 1 and (self._records > MEMORY_RECORDS or self._size_bytes > MEMORY_BYTES):
            gone = self._memory.popleft()
            self._records -= gone.records
            self._size_bytes -= gone.size_bytes
        self._begun.set()
        self.tell(batch)

    def tell(self, batch: Batch) -> None:
        """Of what is remembered, or is not worth it."""
        for watcher in tuple(self.watchers):
            watcher(batch)

    def since(self, topic: str, ends: Mapping[int, int]) -> list[Batch] | None:
        """What came behind these offsets; None if it is not remembered any more, or of another topic."""
        if topic != self.topic or not self._memory:
            return None
        if any(ends.get(number, 0) < start for number, start in self._memory[0].before.items()):
            return None
        return [batch for batch in self._memory if not batch.is_behind(ends)]
