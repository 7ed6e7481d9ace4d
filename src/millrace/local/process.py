"""The processes of local servers: started in a session of their own, known by a mark in their environment.

No pid file is believed. A process is ours when its environment carries our mark, which names the project's state
folder and the server; a pid that was given to a stranger in the meantime has no such mark.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import psutil

MARK = "MILLRACE_SERVER"
PROJECT = "MILLRACE_PROJECT"
EXEC_LIMIT_S = 3.0
KILL_LIMIT_S = 10
POLL_S = 0.05

# Kept so that Python does not complain of children that outlive the variable they were in: they are meant to.
_children: list[subprocess.Popen[bytes]] = []


def spawn(
    argv: list[str], project: Path, name: str, *, env: Mapping[str, str], output: BinaryIO | int, stdin: int
) -> subprocess.Popen[bytes]:
    """Starts a process with our mark, in a session of its own and so deaf to the terminal's signals."""
    child = subprocess.Popen(
        argv,
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **env, PROJECT: str(project), MARK: name},
    )
    _children.append(child)
    return child


def marked(project: Path, name: str | None = None) -> Iterator[psutil.Process]:
    """The living processes that carry the mark of this project (and of this server), the oldest first."""
    found = []
    for process in psutil.process_iter():
        if carries(process, project, name):
            found.append(process)
    yield from sorted(found, key=_age)


def carries(process: psutil.Process, project: Path, name: str | None = None) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and _is_mark(process.environ(), project, name)
    except (psutil.Error, OSError):
        return False  # gone, or somebody else's


def _is_mark(environ: Mapping[str, str], project: Path, name: str | None) -> bool:
    return environ.get(PROJECT) == str(project) and environ.get(MARK) is not None and name in (None, environ[MARK])


def main_process(project: Path, name: str, pid: int | None) -> psutil.Process | None:
    """The server's first process: the remembered pid if it is still ours.

    With no pid remembered (a crash between start and note) it is the oldest with the mark. Children that outlive
    a killed first process carry the mark too, but are not the server.
    """
    reap()
    if pid is None:
        return next(marked(project, name), None)
    # Inside exec(2) its environment reads as empty for a moment, and a server may be two programs one after the other.
    deadline = time.monotonic() + EXEC_LIMIT_S
    try:
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            environ = process.environ()
            if environ or time.monotonic() > deadline:
                return process if _is_mark(environ, project, name) else None
            time.sleep(0.001)
    except (psutil.Error, OSError):
        pass
    return None


def reap() -> None:
    """Lets go of children that have died: as zombies they would still look alive to others, PostgreSQL for one."""
    _children[:] = [child for child in _children if child.poll() is None]


def listens(process: psutil.Process, port: int) -> bool:
    """Whether this process or one of its children is the one behind the port."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return False
    for member in family:
        try:
            for connection in member.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return True
        except psutil.Error:
            continue
    return False


def ask(project: Path, name: str, pid: int | None, polite: signal.Signals) -> psutil.Process | None:
    """Asks a server's first process to end, and returns it; None when there is none."""
    first = main_process(project, name, pid)
    if first is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            first.send_signal(polite)
    return first


def finish(project: Path, name: str, first: psutil.Process | None, limit_s: float) -> bool:
    """Waits for one that was asked; after the limit ends all with the server's mark. True if there was any."""
    if first is not None:
        _wait(lambda: _gone(first), limit_s)
    return kill(project, name) or first is not None


def kill(project: Path, name: str | None = None) -> bool:
    """Ends at once whatever carries the mark, and waits for its end. True if anything did."""
    left = list(marked(project, name))
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _wait(lambda: all(map(_gone, left)), KILL_LIMIT_S)
    reap()
    return bool(left)


def _gone(process: psutil.Process) -> bool:
    """Whether it has let go of its files and ports, which it has not while further threads of a zombie still end."""
    try:
        return not process.is_running() or (process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1)
    except psutil.NoSuchProcess:
        return True


def _wait(condition: Callable[[], bool], limit_s: float) -> None:
    """psutil's own wait takes a zombie, a dead child that its parent has not noticed yet, for alive."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def resident_bytes(process: psutil.Process) -> int:
    """The memory of a server with its children, shared pages counted once where the system tells."""
    total = 0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    for member in family:
        try:
            total += member.memory_full_info().pss
        except (psutil.Error, AttributeError):
            try:
                total += member.memory_info().rss
            except psutil.Error:
                continue
    return total


def _age(process: psutil.Process) -> float:
    try:
        return process.create_time()
    except psutil.Error:
        return float("inf")
