"""Views on their way into the view store: a plain consumer of each changelog, from mark to mark.

What holds: the store is changed by whole epochs, rows and offsets in one transaction. A store that is away is waited
for, and one that does not take a view is tried until somebody has seen to it: what it lacks is in the changelog. A view
that is not whole yet is not shown at all.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing

from pyspark.sql import SparkSession

from millrace.capture import Captures
from millrace.engine.plan import Flow
from millrace.engine.restarts import MOST_TRIES_ONCE
from millrace.engine.showing import Showing
from millrace.engine.viewed import plan_of
from millrace.engine.wanting import Wanting
from millrace.errors import MillraceError, ServerError, UserError, ViewStoreUnfit
from millrace.flow import View
from millrace.log import Log, Ranges
from millrace.views import Plan
from millrace.views.changelog import Mark, marks_topic
from millrace.views.store import Shape, Store

# How long a run that ends waits for the last epochs.
FINISH_S = 20.0
_LOOK_S, _LEAST_S, _MOST_S = 0.05, 0.5, 10.0
# Between two tries while somebody has to do something; nobody does it within a second.
MENDED_S = 30.0
# Among so many offsets at the end of the topic of marks is the last one: transactions take none there.
_MARKS = 20

_logger = logging.getLogger("millrace.engine")


class Applying(threading.Thread):
    """Of one view. `trouble` is why it waits, and the view stands still."""

    def __init__(self, view: View, plan: Plan, log: Log, app: str) -> None:
        super().__init__(name=f"view {view.name}", daemon=True)
        self.view = view
        self._log, self._app = log, app
        self._shape = Shape(view.name, plan.columns, view.key, view.indexes, view.epoch_ms is not None)
        self._showing: Showing | None = None
        self._ended = threading.Event()
        self._seen = self._tries = 0
        self.trouble: MillraceError | None = None

    @property
    def busy(self) -> bool:
        """Whether there is a mark that it has not come to. For a run that has an end, a store that was away for long
        enough does not count, nor what somebody has to mend."""
        tries = self.is_alive() and self._tries < MOST_TRIES_ONCE and not isinstance(self.trouble, UserError)
        return tries and self._log.topics.last(marks_topic(self.view.name))[0] > self._seen

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow()
            except MillraceError as error:
                self._told(error)
            except Exception as error:
                _logger.debug("%s is not applied", self.view.name, exc_info=True)
                self._told(ViewStoreUnfit(view=self.view.name, reason=f"{type(error).__name__}: {error}"))
            else:
                continue
            most_s = _MOST_S if isinstance(self.trouble, ServerError) else MENDED_S
            self._ended.wait(min(_LEAST_S * 2 ** min(self._tries, 10), most_s))
            self._tries += 1

    def finish(self, wait_s: float = FINISH_S) -> None:
        """After the view's flow has ended: what it wrote, if the store takes it soon."""
        deadline = time.monotonic() + wait_s
        while self.busy and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self.end()
        self.join(_MOST_S)

    def end(self) -> None:
        self._ended.set()
        if self._showing is not None:
            self._showing.end()

    def _told(self, error: MillraceError) -> None:
        if self.trouble is None or self.trouble.code != error.code:
            _logger.warning("%s: %s", self.view.name, error)
        self.trouble = error

    def _follow(self) -> None:
        marks, topic = marks_topic(self.view.name), self._log.topics.identity(self.view.name)
        store = Store(self._log.settings, self._app)
        with closing(store), closing(self._log.ranges(self.view.name)) as ranges:
            held = store.begin(self._shape, topic)
            if self._shape.in_real_time and self._showing is None:
                self._showing = Showing(self._shape, self._log, self._app)
                self._showing.start()
            ends, epoch = ({}, -1) if held is None else (dict(held.ends), held.epoch)
            end = self._log.topics.last(marks)[0]
            first = max(end - _MARKS, 0)
            for messages in self._log.reader(marks, first, follow=True, stop=self._ended).batches():
                found = [Mark.from_json(json.loads(message.value())) for message in messages if message.value()]
                whole = [mark for mark in found if mark.whole]
                if is_new := bool(whole) and whole[-1].epoch > epoch:
                    store.apply(self._shape, topic, whole[-1], self._changes(ranges, ends, whole[-1]))
                    ends, epoch = dict(whole[-1].ends), whole[-1].epoch
                self._seen = messages[-1].offset() + 1
                # Marks that the store had before say nothing about the one that it did not take.
                if is_new or self._seen >= end:
                    self.trouble, self._tries = None, 0

    def _changes(self, ranges: Ranges, starts: dict[int, int], mark: Mark) -> Iterator[tuple[bytes, bytes | None]]:
        for message in ranges.between(starts, mark.ends):
            yield message.key(), message.value()


class Appliers:
    """Those of a run."""

    def __init__(self, log: Log, app: str) -> None:
        self._log, self._app = log, app
        self._views: dict[str, Applying] = {}
        self._wanting: Wanting | None = None

    def begin(self, flow: Flow, spark: SparkSession) -> None:
        """If it is a view's, and not the second start of one. One that is made beside another is not shown."""
        if (view := flow.view) is not None and view.of is None and view.name not in self._views:
            self._views[view.name] = Applying(view, plan_of(view, self._log), self._log, self._app)
            self._views[view.name].start()
            if self._wanting is None:
                self._wanting = Wanting(Captures(self._log.settings, self._log), self._app, spark)
                self._wanting.start()
            self._wanting.add(view)

    def let_go(self, name: str) -> None:
        """Of a view whose flow has ended, and which another process takes over."""
        if (found := self._views.pop(name, None)) is not None:
            found.finish()

    @property
    def busy(self) -> bool:
        return any(each.busy for each in self._views.values())

    def troubles(self) -> dict[str, MillraceError]:
        return {name: each.trouble for name, each in self._views.items() if each.trouble is not None}

    def finish(self, deadline: float) -> None:
        """What the flows wrote, if the store takes it before this moment of the monotonic clock, and soon."""
        for each in self._views.values():
            each.finish(min(max(deadline - time.monotonic(), 0), FINISH_S))

    def end(self) -> None:
        for each in self._views.values():
            each.end()
        self._views.clear()
        if self._wanting is not None:
            self._wanting.end()
            self._wanting = None
