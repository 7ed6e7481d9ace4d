"""What the server of one app serves, and all that its handlers share."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Generic, TypeVar

from millrace.config import Listen, Settings
from millrace.errors import ServeUnguarded, TopicUnknown, ViewUnknown, nearest
from millrace.flow import Graph, Topic
from millrace.log import Log
from millrace.serve.feed import Feed
from millrace.serve.figures import Figures
from millrace.serve.fitting import Fitting
from millrace.serve.gate import Gate, is_loopback
from millrace.serve.query import Queries
from millrace.serve.reading import Reading
from millrace.serve.sending import Sender
from millrace.serve.still import standing_still
from millrace.serve.tail import Tail
from millrace.serve.tokens import Token, Tokens

_REVOKED_LOOK_S = 0.5
_FLOWS_S = 1.0
_END_S = 10.0

Reader = TypeVar("Reader", Feed, Tail)


class Readers(Generic[Reader]):
    """One of each name, started when it is first watched."""

    def __init__(self) -> None:
        self.all: dict[str, Reader] = {}

    def started(self, name: str, reader: Reader) -> Reader:
        self.all[name] = reader
        reader.start()
        return reader

    async def end(self) -> None:
        """While the event loop still takes what they hand over."""
        for each in self.all.values():
            each.end()
        for each in self.all.values():
            await asyncio.to_thread(each.join, _END_S)


class Site:
    """Made before the event loop runs, `open` in it."""

    def __init__(self, settings: Settings, graph: Graph, listen: Listen) -> None:
        self.settings, self.graph, self.listen = settings, graph, listen
        self.tokens = Tokens(settings.tokens)
        if not is_loopback(listen.host) and not self.tokens.all():
            raise ServeUnguarded(address=listen)
        self.log = Log(settings)
        self.figures = Figures(graph.app)
        # Those that come from outside, and those that are only read.
        written = {stream.output.name for stream in graph.streams}
        self.inputs: dict[str, Topic] = {each.name: each for each in graph.topics if each.name not in written}
        self.outputs: dict[str, Topic] = {stream.output.name: stream.output for stream in graph.streams}

    async def open(self) -> None:
        self.gate = Gate(self.settings.serve, self.listen, self.tokens)
        self.reading = Reading(self.settings, self.graph.app, [view.name for view in self.graph.views])
        self.queries = Queries(self.settings, self.reading)
        self.sender = Sender(self.log, self.graph.app, self.listen)
        self.fittings: dict[str, Fitting] = {}
        self.feeds: Readers[Feed] = Readers()
        self.tails: Readers[Tail] = Readers()
        self._flows_asked = asyncio.Lock()
        self._flows: tuple[float, list[dict[str, Any]]] | None = None
        self._revoking = asyncio.create_task(self._close_revoked())

    async def close(self) -> None:
        self._revoking.cancel()
        await self.feeds.end()
        await self.tails.end()
        await self.sender.close()
        await self.queries.close()
        await self.reading.close()

    def view(self, name: str, token: Token) -> str:
        """A view that the token may read. Whoever may not, does not learn whether it is there."""
        token.require(f"view:{name}")
        if name not in self.reading.views:
            raise ViewUnknown(view=name, hint=nearest(name, self.reading.views))
        return name

    def topic(self, name: str, token: Token, verb: str) -> Topic:
        token.require(f"{verb}:{name}")
        known = self.inputs if verb == "send" else {**self.inputs, **self.outputs}
        if name not in known:
            raise TopicUnknown(topic=name, hint=nearest(name, known))
        return known[name]

    def feed(self, view: str) -> Feed:
        loop = asyncio.get_running_loop()
        return self.feeds.all.get(view) or self.feeds.started(view, Feed(view, self.log, self.reading, loop))

    def tail(self, topic: str) -> Tail:
        loop = asyncio.get_running_loop()
        return self.tails.all.get(topic) or self.tails.started(topic, Tail(topic, self.log, loop))

    async def flows(self) -> list[dict[str, Any]]:
        """How the flows of the app stand, as their runs wrote it down. Looked at once a second at most."""
        async with self._flows_asked:
            if self._flows is None or time.monotonic() - self._flows[0] > _FLOWS_S:
                self._flows = (time.monotonic(), await asyncio.to_thread(_flows, self.settings, self.graph.app))
            return self._flows[1]

    async def still(self) -> dict[str, str]:
        """The views that stand still although a run has them, and why: as far as this machine knows."""
        if not self.settings.checkpoints.is_dir():  # nothing ran here, and asking would load Spark for nothing
            return {}
        return standing_still(await self.flows(), self.reading.views)

    async def _close_revoked(self) -> None:
        while True:
            await asyncio.sleep(_REVOKED_LOOK_S)
            self.gate.close_revoked()


def _flows(settings: Settings, app: str) -> list[dict[str, Any]]:
    from millrace.engine.flows import flows  # it imports Spark, which a server of views alone does not need

    hidden = ("pid", "host")
    found = [each for each in flows(settings) if each["app"] == app]
    return [{name: value for name, value in each.items() if name not in hidden} for each in found]
