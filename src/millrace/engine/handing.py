"""A view's flow is let go when `millrace deploy` asks for it, and taken back if that comes to nothing.

What holds: whoever asks has the flow's lock when the flow was stopped between two epochs and all of it is in the view
store, or when it waited to be started again. A run that let a flow go looks: once another generation counts, it leaves
the view alone; if nobody asks any more (the asker took it back, or died), it starts the flow again.

Who asks has the file locked, so the kernel tells of its death, on whichever host and in whichever container. The lock
is BSD's: POSIX's would be lost when anybody in the process looks (`engine.lock`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from millrace.engine import generations, lock
from millrace.engine.generations import Generation
from millrace.engine.plan import Flow
from millrace.engine.running import RunningFlow
from millrace.engine.settling import SettledStop
from millrace.engine.stopping import CleanStop, RealTimeStop
from millrace.errors import FlowLocked, MillraceError, ViewDeployed

FILE = "handover.json"

_logger = logging.getLogger("millrace.engine")


@contextlib.contextmanager
def asking(folder: Path, view: str) -> Iterator[None]:
    """Asks whoever runs a view to let its flow go, for as long as the context lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # who looks has it for a moment
        file.truncate(0)
        file.write(json.dumps(vars(lock.this_process(view))))  # for a person
        file.flush()
        try:
            yield
        finally:
            (folder / FILE).unlink(missing_ok=True)


def asked(folder: Path) -> bool:
    """Whether somebody wants the flow, who is still there."""
    try:
        with (folder / FILE).open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def forget(folder: Path) -> None:
    """What a killed one left behind."""
    if not asked(folder):
        (folder / FILE).unlink(missing_ok=True)


class Handing:
    """Of one run, whose checkpoints are in `folder`. `away` are the flows that were let go and may come back. A run
    that ends `once` everything is read hands nothing over: who asks waits for its end."""

    def __init__(self, folder: Path, *, once: bool = False) -> None:
        self._folder, self._once = folder, once
        self._stops: dict[str, tuple[RunningFlow, CleanStop | RealTimeStop | SettledStop]] = {}
        # Which generation counted when the run had a view for the first time.
        self._numbers: dict[str, int] = {}
        self.away: dict[str, Flow] = {}

    def step(self, flows: Mapping[str, RunningFlow], waiting: list[Flow], let_go: Callable[[Flow], None]) -> None:
        """One look, which does not wait. Flows that wait to be started are let go as well; those that are to be started
        again come to them."""
        if self._once:
            return
        for flow in (*(running.flow for running in flows.values()), *waiting):
            if flow.view is not None and flow.name not in self._numbers:
                self._numbers[flow.name] = self._number(flow.name)
        for name, running in flows.items():
            # One that has still to go on in real time is asked when it does.
            may_end = running.flow.view is not None and not running.first and name not in self._stops
            if may_end and asked(self._folder / name):
                self._stops[name] = running, running.clean_stop()
        gone = [flow for flow in waiting if flow.view is not None and self._is_taken(flow.name)]
        waiting[:] = [flow for flow in waiting if flow not in gone]
        for name, (running, stop) in list(self._stops.items()):
            if flows.get(name) is not running:  # it failed meanwhile
                stop.release()
                del self._stops[name]
            elif stop.step():
                del self._stops[name]
                gone.append(running.flow)
        for flow in gone:
            let_go(flow)
            self.away[flow.name] = flow
        waiting += [self.away.pop(name) for name in list(self.away) if self._comes_back(name)]

    def takes(self, flow: Flow, error: MillraceError, let_go: Callable[[Flow], None]) -> bool:
        """Whether a flow cannot be started because it is being deployed, or was a moment ago: then it is away."""
        if self._once or flow.view is None or not isinstance(error, FlowLocked | ViewDeployed):
            return False
        if isinstance(error, FlowLocked) and not self._is_taken(flow.name):
            return False
        let_go(flow)
        self.away[flow.name] = flow
        return True

    def end(self) -> None:
        """Before the run stops its flows by itself."""
        for _, stop in self._stops.values():
            stop.release()
        self._stops.clear()
        self.away.clear()

    def _number(self, name: str) -> int:
        return Generation.read(self._folder / name).number

    def _is_other(self, name: str) -> bool:
        """Not known of a flow that this run has never had."""
        return name in self._numbers and self._number(name) != self._numbers[name]

    def _is_taken(self, name: str) -> bool:
        return asked(self._folder / name) or self._is_other(name)

    def _comes_back(self, name: str) -> bool:
        # Asked first: who switches does so before it stops asking.
        is_free = not asked(self._folder / name)
        if self._is_other(name):
            flow = self.away.pop(name)
            _logger.warning("%s", ViewDeployed(view=name, where=flow.where))
            return False
        # One that was killed leaves a JVM, which holds the lock for a moment.
        return is_free and lock.holder(generations.current(self._folder / name), name) is None
