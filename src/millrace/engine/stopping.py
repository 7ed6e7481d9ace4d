"""Stopping a running query between two epochs, so that every offset it wrote has its commit.

Spark offers no such stop: `stop()` interrupts whatever runs. Its thread does look at the query's state before each
epoch and ends when that says TERMINATED, but (as of 4.3) it looks again after planning an epoch whose offsets are
already written, and then gives the epoch up. So the state may change only while no epoch is between those two looks.
That can be known by holding the lock which Spark takes twice in an epoch: to write its offsets, to write its commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

_STATES = "org.apache.spark.sql.execution.streaming.runtime"


class CleanStop:
    """Asks one query to stop, in as many short steps as it takes.

    While we hold the lock, an epoch that is on its way comes to wait for it before its commit: planning is behind it
    then, and saying TERMINATED lets it commit and end. With no epoch on its way, the thread is either about to begin
    one (it waits for the lock: let it go, and look again) or outside, from where it meets the state first.
    """

    def __init__(self, query: StreamingQuery, checkpoint: Path) -> None:
        execution = query._jsq.streamingQuery()
        self._checkpoint = checkpoint
        self._lock = execution.awaitProgressLock()
        self._state = execution.state()
        self._thread = execution.queryExecutionThread()
        self._holds = False
        self._said = False
        self._settled = False

    def step(self) -> bool:
        """One look; True when the query's thread has ended."""
        if not self._thread.isAlive():
            self.release()
            return True
        if not self._settled and not self._holds:
            self._holds = bool(self._lock.tryLock())
        if self._holds:
            self._look()
        return False

    def release(self) -> None:
        if self._holds:
            self._lock.unlock()
            self._holds = False

    def _look(self) -> None:
        waits = self._lock.hasQueuedThread(self._thread)
        if in_flight(self._checkpoint):
            if waits:
                self._say("TERMINATED")
                self._settle()
            return
        if waits:
            if self._said:
                self._say("ACTIVE")  # it had begun before it could see the state
            self.release()
            return
        if not self._said:
            self._say("TERMINATED")
        if self._outside():
            self._settle()

    def _settle(self) -> None:
        self._settled = True
        self.release()

    def _say(self, state: str) -> None:
        self._said = state == "TERMINATED"
        self._state.set(getattr(getattr(SparkContext._jvm, f"{_STATES}.{state}$"), "MODULE$"))

    def _outside(self) -> bool:
        """Whether the thread is not inside the function that runs one epoch, at whose start it looks at the state."""
        return all("executeOneBatch" not in frame.getMethodName() for frame in self._thread.getStackTrace())


class RealTimeStop:
    """Asks a real-time query to end its epoch now, and to stop after it.

    It looks at its state before an epoch and once more when that is planned, when nothing has been read and nothing
    written: in real time both logs are written when an epoch ends. So the state may change at any moment.
    """

    def __init__(self, query: StreamingQuery) -> None:
        java: Any = SparkContext._jvm
        execution = query._jsq.streamingQuery()
        self._thread, self._run = execution.queryExecutionThread(), str(query.runId)
        self._ending = java.millrace.kernel.Ending
        execution.state().set(getattr(getattr(java, f"{_STATES}.TERMINATED$"), "MODULE$"))
        self._ending.ask(self._run)

    def step(self) -> bool:
        """One look; True when the query's thread has ended."""
        if self._thread.isAlive():
            return False
        self.release()
        return True

    def release(self) -> None:
        self._ending.forget(self._run)


def in_flight(checkpoint: Path) -> bool:
    """Whether an epoch has written its offsets and not yet its commit."""
    return max(epochs(checkpoint / "offsets"), default=-1) > max(epochs(checkpoint / "commits"), default=-1)


def epochs(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())


def forget_states() -> None:
    """What Spark holds in memory of the state of all queries."""
    java: Any = SparkContext._jvm
    getattr(getattr(java.org.apache.spark.sql.execution.streaming.state, "StateStore$"), "MODULE$").stop()
