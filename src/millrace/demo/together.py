"""Several applications at once, on one Spark session: each is a run with its own flows and checkpoints, as it would be
alone, and they share one JVM, because four of them would not fit a small machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import TracebackType

import psutil
from pyspark.sql import SparkSession

from millrace import local
from millrace.config import Settings
from millrace.engine import Run
from millrace.engine.plan import flows_of
from millrace.engine.realtime import slots_declared
from millrace.engine.session import close, kill, partitions, session
from millrace.errors import MillraceError
from millrace.flow import App
from millrace.local.process import resident_bytes

# What an epoch of a small flow keeps a core busy for. With many flows each looks for records so much less often that
# all of them together leave the machine some air.
_EPOCH_S = 0.4
_LEAST_TRIGGER_S = 0.5
# Kafka, Spark with its heap full, and this process, before the first application: estimated with room to spare, as
# those of the applications in `tour` are.
BASE_MB = 1_900

_MB = 2**20

# What an application needs beside the servers, and the settings that say where that is.
Beside = Callable[[], AbstractContextManager[Mapping[str, str]]]
# What takes a while, by its name: how far it is is shown.
Step = Callable[[str], AbstractContextManager[None]]


def application(name: str) -> App:
    found: App = import_module(f"{__package__}.{name}").app
    return found


def beside(name: str) -> AbstractContextManager[Mapping[str, str]]:
    needed: Beside = getattr(import_module(f"{__package__}.{name}"), "beside", lambda: nullcontext({}))
    return needed()


def fitting(wanted: Mapping[str, int], free_mb: int) -> tuple[str, ...]:
    """Of applications and the MB that each takes, the first ones that fit; the very first is always tried."""
    found: list[str] = []
    taken_mb = BASE_MB
    for name, own_mb in wanted.items():
        if found and taken_mb + own_mb > free_mb:
            break
        taken_mb += own_mb
        found.append(name)
    return tuple(found)


def free_mb() -> int:
    return int(psutil.virtual_memory().available // _MB)


def used_mb(settings: Settings) -> dict[str, int]:
    """What runs here takes, in MB: each server, and this process with its JVM and its consoles."""
    servers = [each for each in local.status(settings) if each.state == "running"]
    own = psutil.Process()
    children = {child.pid for child in own.children(recursive=True)}
    within_mb = sum(each.memory_mb or 0 for each in servers if each.pid in children)
    found = {each.server: each.memory_mb or 0 for each in servers}
    return {**found, "Spark and consoles": max(0, resident_bytes(own) // _MB - within_mb)}


class Together:
    """The runs of some applications. Use it as a context around `begin`, `add` and `start`: leaving it stops what runs,
    cleanly, or at once after an interrupt."""

    def __init__(self, apps: Sequence[App], settings: Settings) -> None:
        self.settings = settings
        self.runs: dict[str, Run] = {}
        self._apps = {app.name: app for app in apps}
        self._planned = [flow for app in apps for flow in flows_of(app.graph())]
        self.flows = len(self._planned)
        self.trigger_s = max(_LEAST_TRIGGER_S, self.flows * _EPOCH_S / (os.cpu_count() or 1))
        self._spark: SparkSession | None = None
        self._begun: list[Run] = []

    def begin(self) -> None:
        """The session, which needs no server, with slots for all that is in real time: each run would take only as many
        as its own flows need."""
        spark = self.settings.spark
        slots = slots_declared(self._planned, partitions(spark.master, spark.revealed()))
        self._spark = session(self.settings, None, self.settings.named("demo"), slots)

    def prepare(self, name: str, settings: Settings) -> Run:
        """Topics and captures of an application whose servers run."""
        run = Run(self._apps[name], settings, trigger=f"{round(self.trigger_s * 1000)} milliseconds")
        run.prepare()
        return run

    def start(self, run: Run) -> None:
        """When the session is there. Only one that has started is asked for news."""
        assert self._spark is not None
        run.spark = self._spark
        self._begun.append(run)
        run.start()
        self.runs[run.graph.app] = run

    def poll(self) -> None:
        for run in list(self.runs.values()):
            run.poll()

    def stop(self, step: Step = lambda _: nullcontext()) -> None:
        """Everything after its epoch, each of which is a `step`. What ended a flow by itself is raised when all have
        stopped."""
        failures = []
        while self._begun:
            run = self._begun.pop()
            try:
                with step(f"stopping {run.graph.app}"):
                    run.stop()
            except MillraceError as failure:
                failures.append(failure)
        if self._spark is not None:
            with step("stopping Spark"):
                close(self._spark)
            self._spark = None
        if failures:
            raise failures[0]

    def __enter__(self) -> Together:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None and not issubclass(kind, MillraceError):
            kill()  # a call into the JVM may have been interrupted
            return
        try:
            self.stop()
        except MillraceError:
            if error is None:  # otherwise that is the one to tell about
                raise
