"""s3proxy: S3 over a folder. Any credentials are taken, because only this machine can reach it."""

from __future__ import annotations

import urllib.request
from functools import partial

from millrace.local import jars
from millrace.local.declare import HOST, Command, Server, Site
from millrace.local.servers import jvm

HEAP_MB = 256
ANSWER_LIMIT_S = 5


def _command(site: Site) -> Command:
    values: dict[str, object] = {
        "s3proxy.endpoint": _address(site),
        "s3proxy.authorization": "none",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "millrace",
        "jclouds.credential": "millrace",
        "jclouds.filesystem.basedir": site.data,
    }
    config = jvm.write_properties(site.folder / "s3proxy.properties", values)
    return jvm.command(site, "s3proxy", ["org.gaul.s3proxy.Main", "--properties", str(config)], HEAP_MB)


def _address(site: Site) -> str:
    return f"http://{HOST}:{site.port}"


def _ready(site: Site) -> None:
    with urllib.request.urlopen(_address(site), timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - our own http address
        answer.read()


SERVER = Server(
    name="s3proxy",
    about="s3proxy, S3 over a folder",
    ports={"s3": 19000},
    fetch=partial(jars.paths, "s3proxy"),
    command=_command,
    ready=_ready,
    address=_address,
)
