"""Starts, finds and ends the local servers of a project.

What must hold:
- one command at a time changes a project's servers (a file lock);
- a server counts as running only when a process with our mark is alive, and as ready only when that process, not a
  stranger, listens on its port and answers;
- `down` needs no file: it ends whatever carries the project's mark.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from millrace.config import Settings, masked
from millrace.errors import (
    NeedsOrdinaryUser,
    PortLost,
    ServerDown,
    ServerFailed,
    ServerForeign,
    ServerNotReady,
    ServersBusy,
    ServerUnknown,
    StateFolderUnusable,
    nearest,
)
from millrace.local import process
from millrace.local.declare import NOBODY, Memory, Server, Site, as_nobody, choose_ports, is_free, is_root
from millrace.local.servers import catalogue

POLL_S = 0.1
ATTEMPTS = 3  # a port that was free when chosen may be taken when the server binds it
LOCK_LIMIT_S = 300.0  # a first `up` may be downloading
FREED_LIMIT_S = 3.0
LOG_KEPT_BYTES = 10_000_000  # a log larger than this is set aside as .1 when its server starts

Say = Callable[[str], None]


def _quiet(_: str) -> None:
    return None


@dataclass(frozen=True)
class Status:
    server: str
    about: str
    state: str  # running | stopped | died | yours
    address: str | None = None
    pid: int | None = None
    memory_mb: int | None = None
    since: str | None = None
    ends: str | None = None  # with which foreground process it ends, if any
    log: str | None = None


def address(settings: Settings, name: str) -> str:
    """Where to reach a server: the user's own if one is configured, otherwise the running local one."""
    if own := _own(settings, name):
        return own
    server = _server(settings, "apicurio" if name == "registry" else name)
    for member in _cluster(settings, server):
        site, found = _look(settings, member)
        if found is not None:
            return site.server.address(site)
    raise ServerDown(server=server.name)


def up(
    settings: Settings, names: Sequence[str], *, detach: bool = False, brokers: int | None = None, say: Say = _quiet
) -> dict[str, str]:
    """Starts what is not running yet, needs first, and returns addresses by name once all of them answer.

    Without `detach` the servers started here end with this process, however it ends.
    """
    with _locked(settings):
        servers = _in_order(settings, names, brokers)
        if not detach:
            _leash(settings)
        for attempts_left in reversed(range(ATTEMPTS)):
            absent = _absent(settings, servers, detach, say)
            try:
                _start_all(absent)
                break
            except (ServerFailed, PortLost):
                if not attempts_left or not any(map(_lost_a_port, absent)):
                    raise
    return {server.name: address(settings, server.name) for server in servers}


def _absent(settings: Settings, servers: Sequence[Server], detach: bool, say: Say) -> list[Site]:
    """Those that do not run, placed and ready to be started; the others get one more holder."""
    absent: list[Site] = []
    for server in servers:
        site, found = _look(settings, server)
        if found is None:
            absent.append(_place(site, detach, {port for other in absent for port in other.ports.values()}, say))
        else:
            memory = Memory.read(site.folder)
            replace(memory, holders=_joined(memory.holders, detach)).write(site.folder)
    return absent


def _start_all(sites: Sequence[Site]) -> None:
    for number, site in enumerate(sites):
        for earlier in sites[:number]:
            if earlier.server.name in site.server.needs:
                _wait(earlier)
        _start(site)
    for site in sites:
        _wait(site)


def _lost_a_port(site: Site) -> bool:
    """Whether a stranger was quicker: the server is gone, and somebody listens on a port that was free for it."""
    return _look(site.settings, site.server)[1] is None and not all(map(is_free, site.ports.values()))


def down(settings: Settings, names: Sequence[str] = (), *, held_by: int | None = None) -> list[str]:
    """Ends servers (all of the project when none is named), those that need others first. Returns who was ended.

    With `held_by`, only those which that process held in its foreground and no other still does.
    """
    ended: list[str] = []
    with _locked(settings):
        wanted = _in_order(settings, names, None, with_needs=False) if names else [*catalogue(settings).values()]
        ended += _end(settings, [server for server in wanted if server.needs], held_by)
        ended += _end(settings, [server for server in wanted if not server.needs], held_by)
        if not names and held_by is None:
            process.kill(settings.state_folder)
    return ended


def _end(settings: Settings, servers: Sequence[Server], held_by: int | None) -> list[str]:
    """Asks all of them at once, then waits: the last of three brokers alone would wait long for the others."""
    asked = []
    for server in servers:
        site = Site(settings, server)
        memory = Memory.read(site.folder)
        if held_by is None or _last_holder(site, memory, held_by):
            _refuse_foreign(site, memory)
            first = process.ask(settings.state_folder, server.name, memory.pid, server.stop_signal)
            asked.append((site, memory, first))
    ended = []
    for site, memory, first in asked:
        if process.finish(settings.state_folder, site.server.name, first, site.server.stop_limit_s):
            ended.append(site.server.name)
        if site.folder.exists():
            with contextlib.suppress(OSError):  # a full disk: what is not noted is found out by the mark
                replace(memory, pid=None, holders=(), started=None).write(site.folder)
    return ended


@contextlib.contextmanager
def held(
    settings: Settings, names: Sequence[str], *, brokers: int | None = None, say: Say = _quiet
) -> Iterator[dict[str, str]]:
    """Servers for the time of a `with` block: what it had to start, it ends. Those that this process held before the
    block are an outer block's, which is not done with them."""
    wanted = [name for name in names if _own(settings, name) is None]
    before = _held_here(settings) if wanted else ()
    try:
        yield up(settings, wanted, brokers=brokers, say=say) if wanted else {}
    finally:
        if wanted and (ours := [name for name in _held_here(settings) if name not in before]):
            down(settings, ours, held_by=os.getpid())


def _held_here(settings: Settings) -> tuple[str, ...]:
    """The servers that run and that this process holds."""
    looked = (_look(settings, server) for server in catalogue(settings).values())
    sites = [site for site, found in looked if found is not None]
    return tuple(site.server.name for site in sites if os.getpid() in (Memory.read(site.folder).holders or ()))


def status(settings: Settings) -> list[Status]:
    rows = []
    for server in catalogue(settings).values():
        site, found = _look(settings, server)
        memory = Memory.read(site.folder)
        if own := _own(settings, server.name):
            rows.append(Status(server.name, server.about, "yours", masked(own)))
        elif found is not None:
            rows.append(
                Status(
                    server.name,
                    server.about,
                    "running",
                    server.address(site),
                    found.pid,
                    round(process.resident_bytes(found) / 2**20),
                    memory.started,
                    f"with process {', '.join(map(str, memory.holders))}" if memory.holders else None,
                    str(site.log),
                )
            )
        else:
            log = str(site.log) if site.log.exists() else None
            rows.append(Status(server.name, server.about, "died" if memory.pid else "stopped", log=log))
    return rows


def reset(settings: Settings, names: Sequence[str] = ()) -> list[Path]:
    """Ends servers and deletes their data; with no names, everything the project keeps. Returns what was deleted."""
    down(settings, names)
    if not names:
        doomed = [path for path in (settings.state_folder,) if path.exists()]
    else:
        servers = _in_order(settings, names, None, with_needs=False)
        doomed = [folder for server in servers if (folder := Site(settings, server).folder).exists()]
    for folder in doomed:
        shutil.rmtree(folder)
    return doomed


def site_of(settings: Settings, name: str) -> Site:
    """A server's place in this project, running or not."""
    return _look(settings, _server(settings, name))[0]


def _own(settings: Settings, name: str) -> str | None:
    """The address of the user's own server of this name, if one is configured."""
    if name == "kafka" or name.startswith("kafka-"):
        return settings.kafka.bootstrap
    endpoint = {"connect": settings.connect, "registry": settings.registry, "apicurio": settings.registry}.get(name)
    return endpoint.url.reveal() if endpoint and endpoint.url else None


def _server(settings: Settings, name: str) -> Server:
    known = catalogue(settings)
    if name not in known:
        raise ServerUnknown(name=name, hint=nearest(name, known), known=", ".join(known))
    return known[name]


def _cluster(settings: Settings, server: Server) -> list[Server]:
    """A server and those that work with it as one: with three brokers, any of them stands for Kafka."""
    others = catalogue(settings).values()
    return [server, *(other for other in others if other.name.startswith(f"{server.name}-"))]


def _look(settings: Settings, server: Server) -> tuple[Site, psutil.Process | None]:
    site = Site(settings, server)
    memory = Memory.read(site.folder)
    found = process.main_process(settings.state_folder, server.name, memory.pid)
    return replace(site, ports={**server.ports, **memory.ports}), found


def _in_order(
    settings: Settings, names: Sequence[str], brokers: int | None, *, with_needs: bool = True
) -> list[Server]:
    """The named servers, each after those that it needs; the user's own are left out."""
    known = catalogue(settings, brokers)
    order: dict[str, Server] = {}

    def visit(name: str) -> None:
        if name not in known:
            raise ServerUnknown(name=name, hint=nearest(name, known), known=", ".join(known))
        if name in order or _own(settings, name):
            return
        if with_needs:
            for need in known[name].needs:
                visit(need)
        order[name] = known[name]
        if name == "kafka":
            for other in known:
                if other.startswith("kafka-"):
                    order[other] = known[other]

    for name in names:
        visit(name)
    return list(order.values())


def _place(site: Site, detach: bool, taken: set[int], say: Say) -> Site:
    """Fetches a server's software and settles its ports; those of all are known before the first one starts."""
    site.server.fetch()
    memory = Memory.read(site.folder)
    process.kill(site.settings.state_folder, site.server.name)  # children that outlive a killed server hold its files
    if memory.pid is not None:
        _await_freed(memory.ports)
    remembered = memory.ports
    ports = choose_ports(site.server.ports, remembered, taken)
    for role, port in ports.items():
        wanted = remembered.get(role, site.server.ports[role])
        if wanted != port:
            say(f"{site.server.name}: port {wanted} is taken by somebody else, using {port}")
    holders = None if detach else (os.getpid(),)
    Memory(ports, None, holders, datetime.now(UTC).isoformat(timespec="seconds")).write(site.folder)
    return replace(site, ports=ports)


def _await_freed(ports: Mapping[str, int]) -> None:
    """After kill -9 a process counts as dead while its last threads still hold its ports, for some milliseconds."""
    deadline = time.monotonic() + FREED_LIMIT_S
    while not all(map(is_free, ports.values())) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _start(site: Site) -> None:
    server = site.server
    lowered = server.unprivileged and is_root()
    if lowered and shutil.which("setpriv") is None:
        raise NeedsOrdinaryUser(server=server.name)
    if lowered:
        os.chown(site.folder, NOBODY, NOBODY)
    _set_large_log_aside(site.log)
    _prepare(site)
    command = server.command(site)
    argv = as_nobody(command.argv) if lowered else command.argv
    site.log.parent.mkdir(parents=True, exist_ok=True)
    with site.log.open("ab") as output:
        child = process.spawn(
            argv,
            site.settings.state_folder,
            server.name,
            env=command.env,
            output=output,
            stdin=subprocess.DEVNULL,
        )
    replace(Memory.read(site.folder), pid=child.pid).write(site.folder)


def _joined(holders: tuple[int, ...] | None, detach: bool) -> tuple[int, ...] | None:
    """Who holds a running server after one more asked for it. Detached stays detached."""
    if detach or holders is None:
        return None
    return (*(pid for pid in holders if pid != os.getpid()), os.getpid())


def _last_holder(site: Site, memory: Memory, pid: int) -> bool:
    """Whether nobody else holds the server once this process has let go of it."""
    if memory.holders is None or pid not in memory.holders:
        return False
    others = tuple(other for other in memory.holders if other != pid and psutil.pid_exists(other))
    replace(memory, holders=others).write(site.folder)
    return not others


def _prepare(site: Site) -> None:
    """Fills an empty data folder. The flag comes last: what a crash left half-filled is cleared and filled anew."""
    done = site.folder / "prepared"
    if done.exists() and site.data.exists():
        return
    shutil.rmtree(site.data, ignore_errors=True)
    site.server.prepare(site)
    site.data.mkdir(exist_ok=True)
    done.touch()


def _wait(site: Site) -> None:
    """Until the server answers, dies, or has had its time."""
    server = site.server
    deadline = time.monotonic() + server.start_limit_s
    reason: Exception | str = "it does not listen yet"
    while time.monotonic() < deadline:
        memory = Memory.read(site.folder)
        found = process.main_process(site.settings.state_folder, server.name, memory.pid)
        if found is None:
            raise ServerFailed(server=server.name, reason=_last_words(site.log), log=site.log)
        if all(process.listens(found, port) for port in site.ports.values()):
            try:
                server.ready(site)
                return
            except PortLost:
                raise
            except Exception as error:
                reason = str(error).strip().partition("\n")[0]
        time.sleep(POLL_S)
    raise ServerNotReady(server=server.name, limit_s=round(server.start_limit_s), reason=reason, log=site.log)


def _last_words(log: Path) -> str:
    """The line of a dead server's log that most likely says why."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
    except OSError:
        return "it left no log"
    said = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    loud = [line for line in said if any(word in line for word in ("FATAL", "ERROR", "Error", "Exception", "error:"))]
    return (loud or said or ["it said nothing"])[-1][:300]


def _set_large_log_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_KEPT_BYTES:
        log.replace(log.with_name(log.name + ".1"))


def _refuse_foreign(site: Site, memory: Memory) -> None:
    """A server that another user started cannot be seen through its environment, let alone ended."""
    if memory.pid is None or is_root():
        return
    try:
        psutil.Process(memory.pid).environ()
    except psutil.AccessDenied:
        owner = psutil.Process(memory.pid).username()
        raise ServerForeign(server=site.server.name, pid=memory.pid, owner=owner) from None
    except psutil.Error:
        return


def _leash(settings: Settings) -> None:
    """Starts the watcher that ends our servers when this process is gone, be it by kill -9.

    It reads a pipe of which we hold the only other end; the kernel closes that end when we die.
    """
    watcher = _leashes.get(settings.state_folder)
    if watcher is not None and watcher.poll() is None:
        return
    settings.state_folder.mkdir(parents=True, exist_ok=True)
    _leashes[settings.state_folder] = process.spawn(
        [sys.executable, "-m", "millrace.local.leash", str(settings.folder), str(os.getpid())],
        settings.state_folder,
        "leash",
        env={},
        output=subprocess.DEVNULL,
        stdin=subprocess.PIPE,
    )


_leashes: dict[Path, subprocess.Popen[bytes]] = {}


@atexit.register
def _let_go() -> None:
    """At our own orderly end the watchers do their work now, so that nothing of ours runs on after us."""
    for watcher in _leashes.values():
        watcher.communicate()


@contextlib.contextmanager
def _locked(settings: Settings) -> Iterator[None]:
    try:
        settings.state_folder.mkdir(parents=True, exist_ok=True)
        file = (settings.state_folder / "lock").open("a")
    except OSError as error:
        raise StateFolderUnusable(folder=settings.state_folder, reason=error.strerror) from None
    deadline = time.monotonic() + LOCK_LIMIT_S
    with file as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ServersBusy(folder=settings.folder, limit_s=round(LOCK_LIMIT_S)) from None
                time.sleep(POLL_S)
        yield
