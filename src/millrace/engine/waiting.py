"""The flows of a run that are not running: which of them may be started now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from millrace.engine.plan import Flow
from millrace.engine.restarts import Restarts

_SNAPSHOT_LOOK_S = 2.0

_logger = logging.getLogger("millrace.engine")


class Waiting:
    """`unread` tells the tables of a flow of which only some rows are read yet, `busy` the flows at work. With `once` a
    flow waits until those that feed it have ended."""

    def __init__(
        self,
        flows: Iterable[Flow],
        *,
        once: bool,
        unread: Callable[[Flow], list[str]],
        busy: Callable[[], list[Flow]],
    ) -> None:
        self.flows = list(flows)
        self.restarts = {flow.name: Restarts() for flow in self.flows}
        self._once, self._ask, self._busy = once, unread, busy
        self._unread: dict[Flow, list[str]] = {}
        self._have_read: set[str] = set()
        self._asked = 0.0

    def ready(self) -> Iterator[Flow]:
        """One after the other, each looked at when its turn comes: what became of one may be why another does not
        start."""
        self._look_at_snapshots()
        for flow in list(self.flows):
            if flow not in self.flows or not self.restarts[flow.name].due(time.monotonic()):
                continue
            if not self._unread.get(flow) and not (self._once and self._fed(flow)):
                self.flows.remove(flow)
                yield flow

    def add_read(self, flow: Flow) -> None:
        """One that has read what was there, and goes on in real time."""
        self.flows.append(flow)
        self._have_read.add(flow.name)

    def take_read(self, flow: Flow) -> bool:
        """Whether it has; asked when it is started. After a failure there is more to read."""
        found = flow.name in self._have_read
        self._have_read.discard(flow.name)
        return found

    def leave_out(self, failed: Flow) -> list[tuple[Flow, Flow]]:
        """With `once`, what a failed flow feeds is not started on half of its input: each such flow, and because of
        which one."""
        left: list[tuple[Flow, Flow]] = []
        for flow in list(self.flows):
            if self._once and flow in self.flows and failed.feeds(flow):
                self.flows.remove(flow)
                left += [(flow, failed), *self.leave_out(flow)]
        return left

    def _look_at_snapshots(self) -> None:
        """A flow's first events must not meet a table of which only some rows are read yet: it waits for the rest."""
        if not self.flows or time.monotonic() - self._asked < _SNAPSHOT_LOOK_S:
            return
        for flow in self.flows:
            unread = self._ask(flow)
            if unread and flow not in self._unread:
                _logger.warning("%s waits until all rows of %s are read", flow.name, ", ".join(unread))
            self._unread[flow] = unread
        self._asked = time.monotonic()

    def _fed(self, flow: Flow) -> bool:
        return any(other.feeds(flow) for other in (*self.flows, *self._busy()))
