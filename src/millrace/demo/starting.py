"""The start of several applications, in threads beside the tour through them.

Somebody waits for numbers. So the first application is started as soon as the servers that it needs and Spark are
there, both of which start at once; the servers of the others follow when it has told its first numbers, while Spark
plans.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from millrace import config, local
from millrace.demo.together import Step, Together, beside
from millrace.demo.tour import STOPS, Seen
from millrace.engine import Run
from millrace.engine.session import kill
from millrace.errors import MillraceError

# What takes longer is not waited for any more: the others start while it is at work.
FIRST_NUMBERS_S = 20.0
_LOOK_S = 0.1
_INTERRUPT_S = 5.0

# For every JVM that the demo starts. Half of what one does in its first minute is to compile for speed that a demo is
# too short for. (Its cache for compiled code would be too small for Spark then.)
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"

Say = Callable[[str], None]


def start_java_quickly() -> None:
    """Every JVM from now on. Who has set options of his own knows better: they come last, and so they count."""
    given = os.environ.get("JDK_JAVA_OPTIONS", "")
    os.environ["JDK_JAVA_OPTIONS"] = f"{JAVA_OPTIONS} {given}".strip()


class Task(threading.Thread):
    """A call in a thread of its own. It does not keep the process alive."""

    def __init__(self, call: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self._call = call

    def run(self) -> None:
        try:
            self._call()
        except BaseException as failure:
            self.failure = failure

    def check(self) -> None:
        """Raises what it ended with, if it has ended with an error."""
        if self.failure is not None:
            raise self.failure


class Starting:
    """Use it as a context, inside that of `together`; after it, what was started runs on until `close`, which ends
    servers and what is beside them. `seen` are the applications that run."""

    def __init__(
        self,
        together: Together,
        servers: Mapping[str, Sequence[str]],
        step: Step,
        say: Say,
        show: Sequence[str] = (),
    ) -> None:
        self.seen: dict[str, Seen] = {}
        self._together, self._step, self._say, self._show = together, step, say, show
        self._servers = each_once(servers)
        self._opened = ExitStack()
        self._ended = threading.Event()
        self._numbers = threading.Event()
        self._served = {name: threading.Event() for name in servers}
        self._tasks = [Task(self._serve), Task(together.begin), Task(self._start)]

    def __enter__(self) -> Starting:
        for task in self._tasks:
            task.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        """Waits for what is being started: nothing can be stopped cleanly before it has started."""
        self._ended.set()
        if kind is not None and not issubclass(kind, MillraceError):
            kill()
            for task in self._tasks:
                task.join(_INTERRUPT_S)
            return
        for task in self._tasks:
            task.join()

    @property
    def done(self) -> bool:
        return len(self.seen) == len(self._servers)

    def close(self) -> None:
        self._opened.close()

    def check(self) -> None:
        """Called now and then: raises what kept something from starting."""
        if any(each.rows_in() for each in self.seen.copy().values()):
            self._numbers.set()
        for task in self._tasks:
            task.check()

    def _serve(self) -> None:
        """The servers of one application after those of another."""
        for place, (name, servers) in enumerate(self._servers.items()):
            if servers and place:
                self._wait(self._numbers)
            if self._stopped():
                return
            self._opened.enter_context(local.held(self._together.settings, servers, say=self._say))
            self._served[name].set()

    def _start(self) -> None:
        for name, servers in self._servers.items():
            if not self._served[name].is_set():
                with self._step(f"servers of {name}: {', '.join(servers)}"):
                    self._wait(self._served[name])
            if self._stopped():
                return
            run = self._prepared(name)
            self._wait_for_spark()
            if self._stopped():
                return
            self._run(name, run)
            self._wait(self._numbers, FIRST_NUMBERS_S)
            self._numbers.set()

    def _stopped(self) -> bool:
        return self._ended.is_set() or any(task.failure for task in self._tasks)

    def _prepared(self, name: str) -> Run:
        with self._step(f"{name}: data, topics and captures"):
            os.environ.update(self._opened.enter_context(beside(name)))
            return self._together.prepare(name, config.load())

    def _wait_for_spark(self) -> None:
        spark = self._tasks[1]
        if spark.is_alive():
            with self._step(f"Spark for {self._together.flows} flows"):
                spark.join()

    def _run(self, name: str, run: Run) -> None:
        with self._step(f"{name}: flows"):
            own = {topic.name for topic in run.graph.topics}
            shown = [topic for topic in self._show if topic in own]
            seen = self._opened.enter_context(Seen(run, STOPS[name].topics, shown))
            self._together.start(run)
            self.seen[name] = seen

    def _wait(self, event: threading.Event, limit_s: float = math.inf) -> None:
        """Or until there is nothing to wait for any more."""
        deadline = time.monotonic() + limit_s
        while not (event.wait(_LOOK_S) or self._stopped() or time.monotonic() > deadline):
            pass


def each_once(servers: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Each server with the first application that needs it."""
    found: dict[str, list[str]] = {}
    for name, wanted in servers.items():
        before = {server for each in found.values() for server in each}
        found[name] = [server for server in wanted if server not in before]
    return found
