"""All that the console knows: one look for all pages and all who look at them."""

from __future__ import annotations

import threading
from types import TracebackType

from millrace.config import Settings
from millrace.console import captures, extents, histories
from millrace.console.board import Boards
from millrace.console.captures import CapturesLook, CapturesWatch
from millrace.console.extents import Broker, Extents
from millrace.console.histories import Histories, History
from millrace.console.live import LIVE
from millrace.console.looking import Looking
from millrace.console.nodes import Seen
from millrace.console.views import Views
from millrace.flow import App, Graph, Topic
from millrace.log import Log


class Watch:
    """A context in which it looks. `reference` is what the app was called by, to be said in commands."""

    def __init__(self, app: App, settings: Settings, reference: str) -> None:
        self.graph: Graph = app.graph()
        self.settings, self.reference = settings, reference
        log = settings.state_folder / "logs" / "millrace.log"
        self.histories = Histories(self.graph, settings)
        self._broker = Broker(self.graph, settings)
        self.flows = Looking("flows", self.histories.look, histories.EVERY_S, log)
        self.extents: Looking[Extents] = Looking("topics", self._look_at_topics, extents.EVERY_S, log)
        self.captures: Looking[CapturesLook] = Looking("captures", CapturesWatch(settings).look, captures.EVERY_S, log)
        self.views = Views(settings, self.graph, log)
        self.boards = Boards(settings, log)
        self.live = tuple(page for page in LIVE if page.fits(self.graph))
        self._log: Log | None = None
        self._guard = threading.Lock()

    def __enter__(self) -> Watch:
        for looking in (self.flows, self.extents, self.captures):
            looking.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for looking in (self.flows, self.extents, self.captures):
            looking.end()
        self.boards.close()

    @property
    def seen(self) -> Seen:
        found = self.captures.found
        return Seen(
            self.histories.flows,
            self.extents.found if self.extents.trouble is None else None,
            found.remembered if found else None,
            found.statuses if found and self.captures.trouble is None else None,
        )

    def history(self, flow: str) -> History | None:
        return self.histories.flows.get(flow)

    def topic(self, name: str) -> Topic | None:
        return next((topic for topic in self.graph.topics if topic.name == name), None)

    @property
    def log(self) -> Log:
        """For what a person asks for; made anew after a failure, because a server may come back elsewhere."""
        with self._guard:
            self._log = self._log or Log(self.settings)
            return self._log

    def failed(self) -> None:
        with self._guard:
            self._log = None

    def _look_at_topics(self) -> Extents:
        own = {database.capture.name for database in self.graph.databases}
        found = self.captures.found
        tables = [each.tables for name, each in found.remembered.items() if name in own] if found else []
        self._broker.more = frozenset(table.topic for each in tables for table in each.values())
        return self._broker.look()
