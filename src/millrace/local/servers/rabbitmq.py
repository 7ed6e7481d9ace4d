"""RabbitMQ from the distribution's packages, as a node of its own: nothing of the system's RabbitMQ is read or changed.

Where it is not installed, Debian's packages are unpacked into the cache. Erlang knows where it is by one line of the
script `erl`, which is all that has to be changed for that.
"""

from __future__ import annotations

import os
import shutil
import socket
from functools import partial
from pathlib import Path

from millrace.errors import PortLost, ServerNotInstalled
from millrace.local import packages
from millrace.local.declare import HOST, Command, Server, Site, identity, installed

MEMORY_MB = 512  # above it, publishers are held back
DISK_SPARE_MB = 200  # below it, too
# Quorum queues keep so much in memory before they put it elsewhere; 512 MB by default, which would be above the limit.
LOG_MB = 32
LARGEST_MESSAGE_BYTES = 16 * 1024 * 1024  # as newer versions have it; 3.10 would take 128 MiB
ANSWER_LIMIT_S = 5
AMQP_HEADER = b"AMQP\x00\x00\x09\x01"

INSTALL = "apt-get install rabbitmq-server"
SERVER_PATH = "usr/lib/rabbitmq/bin/rabbitmq-server"
ERLANG_PATH = "usr/lib/erlang"
# The server, and of Erlang what it needs, by the dependencies of Debian's package.
_ERLANG = """base asn1 crypto eldap ftp inets mnesia os-mon parsetools public-key runtime-tools snmp ssl syntax-tools
    tftp tools xmerl"""
PACKAGES = ("rabbitmq-server", *(f"erlang-{part}" for part in _ERLANG.split()))

_find = partial(installed, server="rabbitmq", install=INSTALL)

# Erlang's nodes find each other by epmd, one for all of a machine. Ours has its own, which dies with the server.
# The last program replaces the shell: the process that we started is the server.
_SCRIPT = """setpriv --pdeathsig KILL -- "$1" -address "$ERL_EPMD_ADDRESS" -port "$ERL_EPMD_PORT" &
exec "$2"
"""


def _programs() -> tuple[Path, Path]:
    """`epmd` and the server: those of this machine, or of the packages in the cache."""
    # Not Debian's command on PATH, which insists on the system's user and folders.
    if found := shutil.which(f"/{SERVER_PATH}") or shutil.which("rabbitmq-server"):
        return _find("epmd"), Path(found)
    try:
        root = packages.unpacked("rabbitmq", PACKAGES, _settle)
    except packages.PackagesUnobtainable as error:
        looked = f"`/{SERVER_PATH}`"
        raise ServerNotInstalled(server="rabbitmq", looked=f"{looked}, and {error}", install=INSTALL) from None
    return root / "usr/bin/epmd", root / SERVER_PATH


def _settle(draft: Path, folder: Path) -> None:
    """Tells Erlang where it will be."""
    script = draft / ERLANG_PATH / "bin/erl"
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace(f"ROOTDIR=/{ERLANG_PATH}", f'ROOTDIR="{folder / ERLANG_PATH}"'), encoding="utf-8")


def _fetch() -> None:
    _find("setpriv")
    _programs()


def _command(site: Site) -> Command:
    epmd, server = _programs()
    values = {
        "listeners.tcp.local": f"{HOST}:{site.port}",
        "cluster_name": identity(site),  # it tells this name to everyone who connects
        "vm_memory_high_watermark.absolute": f"{MEMORY_MB}MB",
        "disk_free_limit.absolute": f"{DISK_SPARE_MB}MB",
        "raft.wal_max_size_bytes": str(LOG_MB * 1024 * 1024),
        "max_message_size": str(LARGEST_MESSAGE_BYTES),
        "log.console": "true",
        "log.console.level": "warning",
        "log.file": "false",
    }
    config = site.folder / "rabbitmq.conf"
    config.write_text("".join(f"{name} = {value}\n" for name, value in values.items()), encoding="utf-8")
    env = {
        "RABBITMQ_CONFIG_FILE": config,
        "RABBITMQ_ADVANCED_CONFIG_FILE": site.folder / "advanced.config",
        "RABBITMQ_CONF_ENV_FILE": site.folder / "rabbitmq-env.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": site.folder / "enabled_plugins",
        "RABBITMQ_MNESIA_BASE": site.data,
        "RABBITMQ_LOG_BASE": site.folder,
        "RABBITMQ_LOG": "-color",
        "RABBITMQ_NODENAME": "millrace@localhost",
        "RABBITMQ_DIST_PORT": site.ports["distribution"],
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": site.ports["epmd"],
        "ERL_AFLAGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_CRASH_DUMP": site.folder / "erl_crash.dump",
        "HOME": site.folder,  # where Erlang keeps its cookie
        "PATH": f"{epmd.parent}:{os.environ['PATH']}",  # where `erl` is
        "LANG": "C.UTF-8",
        "RUNNING_UNDER_SYSTEMD": "true",  # the script then replaces itself by the server instead of waiting for it
    }
    return Command(
        ["/bin/sh", "-c", _SCRIPT, "rabbitmq", str(epmd), str(server)],
        {name: str(value) for name, value in env.items()},
    )


def _ready(site: Site) -> None:
    greeting = b""
    with socket.create_connection((HOST, site.port), ANSWER_LIMIT_S) as connection:
        connection.sendall(AMQP_HEADER)
        while b"cluster_name" not in greeting or not greeting.endswith(b"\xce"):  # the end of a frame
            if not (more := connection.recv(65536)):
                raise ConnectionError("it does not greet yet")
            greeting += more
    if identity(site).encode() not in greeting:
        raise PortLost(port=site.port, server="rabbitmq")


def _address(site: Site) -> str:
    return f"amqp://guest:guest@{HOST}:{site.port}/"


SERVER = Server(
    name="rabbitmq",
    about="RabbitMQ, a message broker",
    ports={"amqp": 15673, "distribution": 15674, "epmd": 15675},
    fetch=_fetch,
    command=_command,
    ready=_ready,
    address=_address,
)
