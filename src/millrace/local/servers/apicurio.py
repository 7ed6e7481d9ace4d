"""Apicurio, a schema registry with Confluent's API. Its schemas are in an H2 database in the data folder.

Not in Kafka: H2 brings it up without any other server, and a user's own Kafka gets no topics of ours.
"""

from __future__ import annotations

import tarfile
import urllib.request
from pathlib import Path

from millrace import config
from millrace.local import jars, unpack
from millrace.local.declare import HOST, Command, Server, Site
from millrace.local.servers import jvm

HEAP_MB = 256
ANSWER_LIMIT_S = 5


def _runner() -> Path:
    """The jar that starts it; the jars it names in its manifest lie beside it."""
    (archive,) = jars.paths("apicurio")

    def extract(folder: Path) -> None:
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")

    folder = unpack.once(config.cache_folder() / "apicurio" / archive.parent.name, extract)
    return next(folder.glob("*-runner.jar"))


def _command(site: Site) -> Command:
    temporary = jvm.temporary(site)
    values = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": site.port,
        "quarkus.http.access-log.enabled": "false",  # a line a request, into a file without bound
        # An acknowledged schema must survive kill -9; by default H2 writes up to half a second later.
        "apicurio.datasource.url": f"jdbc:h2:file:{site.data}/registry;WRITE_DELAY=0",
        "apicurio.datasource.jdbc.initial-size": 2,
        "apicurio.datasource.jdbc.min-size": 2,
        "apicurio.datasource.jdbc.max-size": 20,
        "apicurio.import.work-dir": temporary,
        "apicurio.storage.snapshot.location": temporary,
        "java.io.tmpdir": temporary,
    }
    # The second compiler would take half of the start-up, and a registry gets too few requests ever to win it back.
    options = ("-XX:TieredStopAtLevel=1", *(f"-D{name}={value}" for name, value in values.items()))
    return jvm.program(site, ["-jar", str(_runner())], HEAP_MB, options)


def _address(site: Site) -> str:
    return f"http://{HOST}:{site.port}/apis/ccompat/v7"


def _ready(site: Site) -> None:
    url = f"{_address(site)}/subjects"
    with urllib.request.urlopen(url, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - our own http address
        answer.read()


SERVER = Server(
    name="apicurio",
    about="Apicurio, a schema registry",
    ports={"registry": 18081},
    fetch=_runner,
    command=_command,
    ready=_ready,
    address=_address,
)
