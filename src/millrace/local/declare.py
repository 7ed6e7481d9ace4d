"""What a local server is: one small declaration of how to get it, start it, know that it is ready, and stop it.

A declaration is data and a few short functions of a `Site`, the server's place in one project. The supervisor does
everything else: folders, ports, logs, order, whose process it is, restarts and ends.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.config import Settings
from millrace.errors import ServerFailed, ServerNotInstalled

HOST = "127.0.0.1"  # local servers never listen anywhere else
NOBODY = 65534

# Linux and macOS take the ports of outgoing connections from above these.
_RARELY_USED = (20_000, 32_000)


@dataclass(frozen=True)
class Site:
    """One server's place in one project: its folders, its ports, and its neighbours."""

    settings: Settings
    server: Server
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.settings.state_folder / "servers" / self.server.name

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.settings.state_folder / "logs" / f"{self.server.name}.log"

    @property
    def port(self) -> int:
        return next(iter(self.ports.values()))

    def neighbour(self, name: str) -> str:
        """The address of a server that this one needs, local or the user's own."""
        from millrace.local.supervisor import address

        return address(self.settings, name)


@dataclass(frozen=True)
class Command:
    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


def _nothing(_: Site) -> None:
    return None


@dataclass(frozen=True)
class Server:
    """`ports` maps roles to favourite ports; the first is the one in its address.

    `fetch` makes sure that the software is on this machine. `prepare` fills an empty data folder, once.
    `ready` raises anything as long as the server does not answer; it may also say that the answer is not ours.
    """

    name: str
    about: str
    ports: Mapping[str, int]
    fetch: Callable[[], object]
    command: Callable[[Site], Command]
    ready: Callable[[Site], object]
    address: Callable[[Site], str]
    prepare: Callable[[Site], object] = _nothing
    needs: tuple[str, ...] = ()
    start_limit_s: float = 90.0
    stop_limit_s: float = 30.0
    stop_signal: signal.Signals = signal.SIGTERM
    unprivileged: bool = False  # it refuses to run as root


@dataclass(frozen=True)
class Memory:
    """What a project remembers of a server, beside its data: `server.json`.

    `holders` are the processes in whose foreground the server runs: it ends with the last of them. None when detached.
    """

    ports: Mapping[str, int] = field(default_factory=dict)
    pid: int | None = None
    holders: tuple[int, ...] | None = ()
    started: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Memory:
        try:
            raw: Any = json.loads((folder / "server.json").read_text(encoding="utf-8"))
            holders = None if raw["holders"] is None else tuple(raw["holders"])
            return cls(dict(raw["ports"]), raw["pid"], holders, raw["started"])
        except (OSError, ValueError, KeyError, TypeError):
            return cls()  # absent, or cut off by a crash: ports are chosen anew, processes are found by their mark

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self.__dict__, "ports": dict(self.ports)}, indent=2)
        draft = folder / "server.json.new"
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / "server.json")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    # Somebody may listen on all addresses, which does not stop a bind to loopback on every system.
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((HOST, port)) != 0


def choose_ports(favourites: Mapping[str, int], remembered: Mapping[str, int], taken: set[int]) -> dict[str, int]:
    """The remembered port where it is free, then the favourite, then any free one."""
    chosen: dict[str, int] = {}
    for role, favourite in favourites.items():
        unfit = taken | set(chosen.values())
        wanted = (port for port in (remembered.get(role), favourite) if port and port not in unfit and is_free(port))
        chosen[role] = next(wanted, None) or _any_free(unfit)
    return chosen


def _any_free(unfit: set[int]) -> int:
    """One that no outgoing connection is given: such would take it from a server that is down for a moment."""
    while True:
        port = random.randrange(*_RARELY_USED)  # noqa: S311 -- nothing secret
        if port not in unfit and is_free(port):
            return port


def as_nobody(argv: list[str]) -> list[str]:
    """The command, run under the uid of nobody: PostgreSQL and RabbitMQ-like servers refuse root.

    The one capability it keeps lets it pass folders like root's home, which only root may enter.
    """
    who = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    return ["setpriv", *who, "--inh-caps", "+dac_override", "--ambient-caps", "+dac_override", "--", *argv]


def identity(site: Site) -> str:
    """A name made once for this server: where its protocol tells it, we know our own server from a stranger's."""
    path = site.folder / "identity"
    if not path.exists():
        path.write_text(f"millrace-{uuid.uuid4()}", encoding="utf-8")
    return path.read_text(encoding="utf-8")


def fill(site: Site, argv: list[str], limit_s: float, env: Mapping[str, str] | None = None) -> None:
    """Runs the tool that fills an empty data folder; when it fails, its words go to the server's log."""
    if site.server.unprivileged and is_root():
        argv = as_nobody(argv)
    site.log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        try:
            code = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
                cwd=site.folder,
                env=env,
            ).returncode
        except subprocess.TimeoutExpired:
            code, _ = 1, words.write(f"\ngiven up after {limit_s} s")
        if code == 0:
            return
        words.seek(0)
        said = words.read().strip()
    with site.log.open("a", encoding="utf-8") as log:
        log.write(said + "\n")
    words_of_it = [line.strip() for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    raise ServerFailed(server=site.server.name, reason=(words_of_it or ["nothing"])[-1][:300], log=site.log)


def installed(*programs: str, server: str, install: str) -> Path:
    """The first of these names on PATH, or of these paths, that is a program of this machine."""
    for program in programs:
        if found := shutil.which(program):
            return Path(found)
    raise ServerNotInstalled(server=server, looked=f"`{programs[0]}`", install=install)


def is_root() -> bool:
    return os.geteuid() == 0
