"""What happens to servers: they are killed, started again, frozen, and have no room left on their disk."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from millrace import local
from millrace.config import Settings
from millrace.local.declare import Memory, choose_ports
from tests.command import until

# It takes webhooks; all others are a project's own.
RECEIVER = "receiver"
_LIMIT_BYTES = 1  # a file that has as much cannot grow


class Servers:
    """Those of a project, which stay where they are when they are started again, and a receiver of webhooks."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.posts = settings, folder / "posts.jsonl"
        self.port = choose_ports({"http": 0}, {}, set())["http"]
        self._receiver: subprocess.Popen[bytes] | None = None
        self.up(RECEIVER)

    def up(self, name: str) -> None:
        if name != RECEIVER:
            local.up(self.settings, (name,))
            return
        words = [sys.executable, "-m", "tests.sinks.receiver", str(self.port), str(self.posts)]
        # Not of the terminal's: Ctrl-C is for who ends it.
        self._receiver = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
        until(lambda: _answers(self.port), "the receiver")

    def down(self, name: str) -> None:
        """As somebody who takes care would."""
        if name != RECEIVER:
            local.down(self.settings, (name,))
            return
        assert self._receiver is not None
        self._receiver.terminate()
        self._receiver.wait()

    def kill(self, name: str) -> None:
        main = self._main(name)
        main.kill()
        until(lambda: not _alive(main), f"the death of {name}")
        if name == RECEIVER and self._receiver is not None:
            self._receiver.wait()

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """All its processes stand still: connections stay open, and nobody answers."""
        everyone = [self._main(name), *self._main(name).children(recursive=True)]
        with _signalled(everyone, signal.SIGSTOP, signal.SIGCONT):
            yield

    def close(self) -> None:
        if self._receiver is not None and self._receiver.poll() is None:
            self._receiver.kill()
            self._receiver.wait()

    def _main(self, name: str) -> psutil.Process:
        if name == RECEIVER:
            assert self._receiver is not None
            return psutil.Process(self._receiver.pid)
        pid = Memory.read(self.settings.state_folder / "servers" / name).pid
        assert pid is not None, f"{name} does not run"
        return psutil.Process(pid)

    @contextlib.contextmanager
    def disk_full(self, name: str) -> Iterator[Callable[[], bool]]:
        """For as long as the block; gives whether the server still lives."""
        main = self._main(name)
        with no_room(main.pid):
            yield lambda: _alive(main)


@contextlib.contextmanager
def no_room(pid: int) -> Iterator[None]:
    """No file of this process can grow: every write fails, as on a full disk (EFBIG in the place of ENOSPC; a file
    system of a size of one's own would need root)."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (_LIMIT_BYTES, most))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


@contextlib.contextmanager
def _signalled(processes: list[psutil.Process], first: signal.Signals, then: signal.Signals) -> Iterator[None]:
    try:
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, first)
        yield
    finally:
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, then)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
