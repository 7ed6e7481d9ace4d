"""Views on their way into the view store: a plain consumer of each changelog, from mark to mark.

What holds: the store is changed by whole epochs, rows and offsets in one transaction. A store that is away is waited
for; what it lacks is in the changelog. A view that is not whole yet is not shown at all.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing

from millrace.engine.plan import Flow
from millrace.engine.viewed import plan_of
from millrace.errors import MillraceError, ServerError
from millrace.flow import View
from millrace.log import Log, Ranges
from millrace.views import Plan
from millrace.views.changelog import Mark, marks_topic
from millrace.views.store import Shape, Store

# How long a run that ends waits for the last epochs.
FINISH_S = 20.0
_LOOK_S, _LEAST_S, _MOST_S = 0.05, 0.5, 10.0
# Among so many offsets at the end of the topic of marks is the last one: transactions take none there.
_MARKS = 20

_logger = logging.getLogger("millrace.engine")


class Applying(threading.Thread):
    """Of one view. `trouble` is why it waits, or has ended."""

    def __init__(self, view: View, plan: Plan, log: Log, app: str) -> None:
        super().__init__(name=f"view {view.name}", daemon=True)
        self.view = view
        self._log, self._app = log, app
        self._shape = Shape(view.name, plan.columns, view.key)
        self._ended = threading.Event()
        self._seen = 0
        self.trouble: MillraceError | None = None

    @property
    def busy(self) -> bool:
        """Whether there is a mark that it has not come to."""
        return self.is_alive() and self._log.topics.offsets(marks_topic(self.view.name))[0][1] > self._seen

    def run(self) -> None:
        wait_s = _LEAST_S
        while not self._ended.is_set():
            try:
                self._follow()
            except ServerError as error:
                self._told(error)
                self._ended.wait(wait_s)
                wait_s = min(wait_s * 2, _MOST_S)
            except MillraceError as error:
                self._told(error)
                return

    def finish(self, wait_s: float = FINISH_S) -> None:
        """After the view's flow has ended: what it wrote, if the store takes it soon."""
        deadline = time.monotonic() + wait_s
        while self.busy and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self.end()
        self.join(_MOST_S)

    def end(self) -> None:
        self._ended.set()

    def _told(self, error: MillraceError) -> None:
        if self.trouble is None or self.trouble.code != error.code:
            _logger.warning("%s: %s", self.view.name, error)
        self.trouble = error

    def _follow(self) -> None:
        marks, topic = marks_topic(self.view.name), self._log.topics.identity(self.view.name)
        store = Store(self._log.settings, self._app)
        with closing(store), closing(self._log.ranges(self.view.name)) as ranges:
            held = store.begin(self._shape, topic)
            ends, epoch = ({}, -1) if held is None else (dict(held.ends), held.epoch)
            first = max(self._log.topics.offsets(marks)[0][1] - _MARKS, 0)
            for messages in self._log.reader(marks, first, follow=True, stop=self._ended).batches():
                found = [Mark.from_json(json.loads(message.value())) for message in messages if message.value()]
                whole = [mark for mark in found if mark.whole]
                if whole and whole[-1].epoch > epoch:
                    store.apply(self._shape, topic, whole[-1], self._changes(ranges, ends, whole[-1]))
                    ends, epoch = dict(whole[-1].ends), whole[-1].epoch
                self._seen = messages[-1].offset() + 1
                self.trouble = None

    def _changes(self, ranges: Ranges, starts: dict[int, int], mark: Mark) -> Iterator[tuple[bytes, bytes | None]]:
        for message in ranges.between(starts, mark.ends):
            yield message.key(), message.value()


class Appliers:
    """Those of a run."""

    def __init__(self, log: Log, app: str) -> None:
        self._log, self._app = log, app
        self._views: dict[str, Applying] = {}

    def begin(self, flow: Flow) -> None:
        """If it is a view's, and not the second start of one."""
        if (view := flow.view) is not None and view.name not in self._views:
            self._views[view.name] = Applying(view, plan_of(view, self._log), self._log, self._app)
            self._views[view.name].start()

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
