"""A command of Millrace as a process of its own that is stopped at named places, killed there, and started again.

Everything that it starts (its JVM, Spark's Python workers) inherits the variable that names the places, and is known by
it: that is how what is left behind is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from millrace.failpoint import VARIABLE
from tests.command import environ, until

# A machine with many times the work it can do takes as many times as long (`TESTS_PATIENCE=4 make crash`).
PATIENCE = float(os.environ.get("TESTS_PATIENCE", "1"))
LIMIT_S = 180.0 * PATIENCE
_LOOK_S = 0.02
_READ_BYTES = 65_536
# For what a process that has ended still has in the pipe, which its children may hold open.
_HEAR_S = 5.0


@dataclass(frozen=True)
class Reached:
    """The process that has come to a place and waits there, and the name that the place gave."""

    pid: int
    who: str


class Points:
    """The places (`millrace.failpoint`, `FailPoint.java`) at which whoever comes is stopped, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, point: str, who: str = "", before: int = 0) -> None:
        """Stops the next one at `point` whose name contains `who`, after `before` others of its process."""
        self.clear()
        draft = self.folder / f"{point}.draft"
        draft.write_text(f"{who}\n{before}\n")
        draft.rename(self.folder / point)

    def reached(self, point: str) -> Reached | None:
        try:
            pid, _, who = (self.folder / f"{point}.reached").read_text().partition("\n")
        except FileNotFoundError:
            return None
        return Reached(int(pid), who)

    def let_go(self, point: str) -> None:
        (self.folder / f"{point}.reached").unlink(missing_ok=True)

    def clear(self) -> None:
        """Nobody is stopped any more, and who was goes on."""
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)


class Supervised:
    """`millrace ARGS…` in a folder, again and again. `env` is kept for all of them; what they print is in `console`."""

    words: Sequence[str] = (sys.executable, "-m", "millrace")

    def __init__(self, folder: Path, points: Points, env: Mapping[str, str] | None = None) -> None:
        self.folder, self.points, self.console = folder, points, folder / "console.log"
        self.env = {**(env or {}), VARIABLE: str(points.folder)}
        self.process: subprocess.Popen[bytes] | None = None
        self._said = 0

    def start(self, *args: str) -> None:
        assert self.process is None, "the last one has not ended"
        self._said = self.console.stat().st_size if self.console.exists() else 0
        # By a pipe: a process that is kept from writing files can still speak.
        self.process = subprocess.Popen(
            [*self.words, *args],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ(self.env),
            start_new_session=True,
        )
        self._hearing = threading.Thread(target=self._hear, args=(self.process,), daemon=True)
        self._hearing.start()

    def _hear(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output, self.console.open("ab", buffering=0) as console:
            while some := os.read(output.fileno(), _READ_BYTES):
                console.write(some)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def await_point(self, point: str, meanwhile: Callable[[], object] | None = None, limit_s: float = LIMIT_S) -> bool:
        """Whether somebody came to the place, before the process ended or the time was over."""
        deadline = time.monotonic() + limit_s
        while self.points.reached(point) is None:
            if not self.running or time.monotonic() > deadline:
                return False
            if meanwhile is not None:
                meanwhile()
            time.sleep(_LOOK_S)
        return True

    def jvms(self) -> list[psutil.Process]:
        return [each for each in self._below() if _name(each) == "java"]

    def _below(self) -> list[psutil.Process]:
        """All that came of the command: its JVM, and Spark's Python workers below that."""
        assert self.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.process.pid).children(recursive=True))
        return []

    def kill(self, *, jvm_only: bool = False) -> int:
        """kill -9: of Python, unless that is to notice, of the JVM and of its workers. Gives the exit code.

        Who stands at a place dies there: nobody is let go before all are dead. A worker that went on would commit what
        was to be left undone."""
        assert self.process is not None
        below = self._below()
        if not jvm_only:
            self.process.kill()
        for each in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        until(lambda: not any(_lives(each) for each in below), "the death of all", LIMIT_S)
        if not jvm_only:
            self.process.wait()
        self.points.clear()
        return self.ended()

    def stop(self, limit_s: float = LIMIT_S) -> int:
        """Ctrl-C, and its exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGINT)
        return self.ended(limit_s)

    def ended(self, limit_s: float = LIMIT_S) -> int:
        """Waits for the end; what has not ended by then is killed, and counts as -9."""
        assert self.process is not None
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            for each in self.marked():
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            code = self.process.wait()
        self._hearing.join(_HEAR_S)
        self.process = None
        return code

    def run(self, *args: str, limit_s: float = LIMIT_S) -> int:
        self.start(*args)
        return self.ended(limit_s)

    def said(self) -> str:
        """What the last command printed."""
        with self.console.open("rb") as console:
            console.seek(self._said)
            return console.read().decode(errors="replace")

    def marked(self) -> list[psutil.Process]:
        """All processes that a command started, and that still live."""
        return [each for each in psutil.process_iter() if _carries(each, str(self.points.folder))]

    def left_behind(self, limit_s: float = 30.0 * PATIENCE) -> list[str]:
        """Processes that are still there a while after the command has ended. (With them go their ports.)"""
        with contextlib.suppress(AssertionError):
            until(lambda: not self.marked(), "the end of everything", limit_s)
        return [f"process {each.pid} is left behind: {' '.join(_words(each))[:200]}" for each in self.marked()]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _carries(process: psutil.Process, folder: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(VARIABLE) == folder
    except (psutil.Error, OSError):
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
