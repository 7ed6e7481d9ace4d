"""One writer a flow. The lock is a POSIX file lock held by the JVM, because the JVM is what writes the checkpoint.

- The kernel frees it when the JVM ends, however it ends; there is nothing stale to clean up.
- The facts about the holder stand in a file beside it: closing any descriptor of the locked file itself would free the
  lock of that process.
- Each holding gets a number one higher than the last, its *incarnation*. Who finds another number there, or another
  file in the lock's place, has been replaced and must stop.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millrace.disk import write_whole
from millrace.errors import FlowLocked, FlowReplaced

LOCK, HOLDER = "lock", "holder.json"

# After kill -9 of the driver its JVM needs a moment to notice and end.
ORPHAN_S = 20.0
# Who looks whether a lock is held (`millrace status`) holds it for that moment.
LOOKED_AT_S = 1.0
_LOOK_S = 0.2

# A second descriptor of the same file in this JVM would free the first one's lock when it closes.
_held_here: set[Path] = set()


@dataclass(frozen=True)
class Holder:
    flow: str
    host: str
    pid: int
    started: float
    since: str
    incarnation: int

    def gone(self) -> bool:
        """Whether the holder's driver is known to have ended: it was on this host, and its process is no more."""
        if self.host != socket.gethostname():
            return False
        return _started(self.pid) != self.started

    def refusal(self) -> FlowLocked:
        return FlowLocked(flow=self.flow, pid=self.pid, host=self.host, since=self.since)


@dataclass(frozen=True)
class Lock:
    """Held until released, or until the JVM ends."""

    folder: Path
    holder: Holder
    inode: int
    channel: Any

    def check(self) -> None:
        """Raises when this is no longer the holder: the folder was deleted or moved, and another has taken over."""
        try:
            same = (self.folder / LOCK).stat().st_ino == self.inode
        except OSError:
            same = False
        found = _read(self.folder)
        if not same or found is None or found.incarnation != self.holder.incarnation:
            raise FlowReplaced(flow=self.holder.flow, folder=self.folder)

    def release(self) -> None:
        with contextlib.suppress(Exception):  # a JVM that is gone holds nothing
            self.channel.close()
        _held_here.discard(self.folder)


def holder(folder: Path, flow: str) -> Holder | None:
    """Who runs the flow now; nobody when its lock is free."""
    path = folder / LOCK
    if folder in _held_here:
        return _unknown(folder, flow)
    if not path.exists() or _free(path):
        return None
    found = _unknown(folder, flow)
    return None if found.gone() else found


def refuse_if_held(folder: Path, flow: str) -> None:
    """The quick look before Spark starts. A holder whose driver is gone is not refused: its JVM is about to end."""
    if (found := holder(folder, flow)) is not None:
        raise found.refusal()


def acquire(spark: SparkSession, folder: Path, flow: str) -> Lock:
    folder.mkdir(parents=True, exist_ok=True)
    if folder in _held_here:
        raise _unknown(folder, flow).refusal()
    began = time.monotonic()
    while (channel := _try(spark, folder / LOCK)) is None:
        found, waited_s = _unknown(folder, flow), time.monotonic() - began
        if waited_s > (ORPHAN_S if found.gone() else LOOKED_AT_S):
            raise found.refusal()
        time.sleep(_LOOK_S)
    _held_here.add(folder)
    last = _read(folder)
    own = this_process(flow, last.incarnation + 1 if last else 1)
    lock = Lock(folder, own, (folder / LOCK).stat().st_ino, channel)
    try:
        write_whole(folder / HOLDER, json.dumps(vars(own), indent=2))
    except BaseException:  # a full disk: the next try would find the flow locked by this very process
        lock.release()
        raise
    return lock


def this_process(flow: str, incarnation: int = 0) -> Holder:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Holder(flow, socket.gethostname(), os.getpid(), _started(os.getpid()), now, incarnation)


def _try(spark: SparkSession, path: Path) -> Any | None:
    """The open channel that holds the lock, or nothing."""
    jvm: Any = spark._jvm
    channel = jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()
    if channel.tryLock() is None:
        channel.close()
        return None
    return channel


def _free(path: Path) -> bool:
    """Asks from Python, which is not the process that will hold it, so opening and closing frees nobody's lock."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _read(folder: Path) -> Holder | None:
    try:
        return Holder(**json.loads((folder / HOLDER).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _unknown(folder: Path, flow: str) -> Holder:
    found = _read(folder)
    return found or Holder(flow, "an unknown host", 0, 0.0, "an unknown time", 0)


def _started(pid: int) -> float:
    """When the process started; 0 when there is none. A pid is used again, a pid with its start is not."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0
