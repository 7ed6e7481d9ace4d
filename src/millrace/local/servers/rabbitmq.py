"""RabbitMQ from the system's packages, as a node of its own: nothing of the system's RabbitMQ is read or changed."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

from millrace.errors import PortLost
from millrace.local.declare import HOST, Command, Server, Site, identity, installed

MEMORY_MB = 256  # above it, publishers are held back
DISK_SPARE_MB = 200  # below it, too
ANSWER_LIMIT_S = 5
AMQP_HEADER = b"AMQP\x00\x00\x09\x01"

_find = partial(installed, server="rabbitmq", install="apt-get install rabbitmq-server")

# Erlang's nodes find each other by epmd, one for all of a machine. Ours has its own, which dies with the server.
# The last program replaces the shell: the process that we started is the server.
_SCRIPT = """setpriv --pdeathsig KILL -- "$1" -address "$ERL_EPMD_ADDRESS" -port "$ERL_EPMD_PORT" &
exec "$2"
"""


def _server() -> Path:
    """Not Debian's command of the same name on PATH, which insists on the system's user and folders."""
    return _find("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")


def _fetch() -> None:
    _find("epmd")
    _find("setpriv")
    _server()


def _command(site: Site) -> Command:
    values = {
        "listeners.tcp.local": f"{HOST}:{site.port}",
        "cluster_name": identity(site),  # it tells this name to everyone who connects
        "vm_memory_high_watermark.absolute": f"{MEMORY_MB}MB",
        "disk_free_limit.absolute": f"{DISK_SPARE_MB}MB",
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
        "LANG": "C.UTF-8",
        "RUNNING_UNDER_SYSTEMD": "true",  # the script then replaces itself by the server instead of waiting for it
    }
    return Command(
        ["/bin/sh", "-c", _SCRIPT, "rabbitmq", str(_find("epmd")), str(_server())],
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
