"""Each further server keeps what it acknowledged, listens on loopback only, knows itself, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from millrace import config, local
from millrace.config import Settings
from millrace.errors import PortLost, ServerNotInstalled
from millrace.local import process
from millrace.local.declare import is_free
from tests import debian, rabbit
from tests.command import until
from tests.rotation import todays

LIMIT_S = 30
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def _no_check(_: str) -> None:
    return None


@dataclass(frozen=True)
class Trial:
    """One server and how a client of it writes a value, reads it, and looks at what else was promised."""

    server: str
    write: Callable[[str, str], object]
    read: Callable[[str], str]
    check: Callable[[str], None] = _no_check
    program: str = ""  # of the Debian packages that bring it
    packages: tuple[str, ...] = ()
    unpacked: bool = False  # it comes as Debian packages that need not be installed
    tells_who_it_is: bool = True
    starts_slowly: bool = False


def http(method: str, url: str, body: str = "") -> str:
    request = urllib.request.Request(
        url, data=body.encode() or None, method=method, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return str(answer.read().decode())


def sql(url: str, statement: str) -> str:
    at = urlsplit(url)
    client = ["mariadb", "--no-defaults", "--skip-ssl", f"--host={at.hostname}", f"--port={at.port}"]
    client += [f"--user={at.username}", "--batch", "--skip-column-names", f"--execute={statement}", at.path.strip("/")]
    return subprocess.run(client, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout.strip()


def redis(url: str, *words: str) -> str:
    """The last line of the answer, which for GET is the value."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port or 6379), LIMIT_S) as connection:
        for line in (f"*{len(words)}", *(line for word in words for line in (f"${len(word)}", word))):
            connection.sendall(f"{line}\r\n".encode())
        return connection.recv(65536).decode().splitlines()[-1]


def write_schema(url: str, value: str) -> None:
    schema = json.dumps({"type": "record", "name": value, "fields": []})
    http("POST", f"{url}/subjects/kept/versions", json.dumps({"schema": schema}))


def read_schema(url: str) -> str:
    told = json.loads(http("GET", f"{url}/subjects/kept/versions/latest"))
    return str(json.loads(told["schema"])["name"])


def write_object(url: str, value: str) -> None:
    with contextlib.suppress(urllib.error.HTTPError):  # 409: it is there
        http("PUT", f"{url}/bucket")
    http("PUT", f"{url}/bucket/kept", value)


def write_row(url: str, value: str) -> None:
    sql(url, f"CREATE TABLE IF NOT EXISTS kept (value text); DELETE FROM kept; INSERT INTO kept VALUES ('{value}')")


def write_message(url: str, value: str) -> None:
    rabbit.declare(url, "kept")
    rabbit.put(url, "kept", [rabbit.Put(value.encode())])


def fit_for_capture(url: str) -> None:
    wanted = "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@gtid_strict_mode"
    assert sql(url, wanted).split("\t") == ["1", "ROW", "FULL", "FULL", "1"]
    assert sql(url, "SELECT @@gtid_current_pos") != ""
    assert sql(url, "SELECT host FROM mysql.global_priv WHERE user = 'millrace'") == "127.0.0.1"
    assert sql(url, "SELECT count(*) FROM mysql.global_priv WHERE user = ''") == "0", "nobody comes in without a name"


def refuses_stale_versions(url: str) -> None:
    http("PUT", f"{url}/versions/_doc/1?version=5&version_type=external", "{}")
    with pytest.raises(urllib.error.HTTPError, match="409"):
        http("PUT", f"{url}/versions/_doc/1?version=4&version_type=external", "{}")


def search_trial(server: str) -> Trial:
    return Trial(
        server,
        write=lambda url, value: http("PUT", f"{url}/kept/_doc/1", json.dumps({"value": value})),
        read=lambda url: str(json.loads(http("GET", f"{url}/kept/_doc/1"))["_source"]["value"]),
        check=refuses_stale_versions,
        starts_slowly=True,
    )


TRIALS = [
    Trial(
        "valkey",
        write=lambda url, value: redis(url, "SET", "kept", value),
        read=lambda url: redis(url, "GET", "kept"),
    ),
    Trial(
        "s3proxy",
        write=write_object,
        read=lambda url: http("GET", f"{url}/bucket/kept"),
        tells_who_it_is=False,
    ),
    Trial(
        "mariadb",
        write=write_row,
        read=lambda url: sql(url, "SELECT value FROM kept"),
        check=fit_for_capture,
        program="/usr/sbin/mariadbd",
        packages=("mariadb-server-core", "mariadb-client-core"),
    ),
    Trial(
        "rabbitmq",
        write=write_message,
        read=lambda url: rabbit.take(url, "kept")[0].body.decode(),
        unpacked=True,
        starts_slowly=True,
    ),
    Trial(
        "apicurio",
        write=write_schema,
        read=read_schema,
        tells_who_it_is=False,
        starts_slowly=True,
    ),
    search_trial("opensearch"),
    search_trial("elasticsearch"),
]


@pytest.mark.server
@pytest.mark.parametrize("trial", todays(TRIALS, 2), ids=lambda trial: trial.server)
def test_what_was_acknowledged_survives_kill_9_and_down(trial: Trial, folder: Path) -> None:
    if trial.program:
        debian.require(Path(trial.program), *trial.packages)
    settings = config.load(folder)
    if trial.unpacked:
        debian.require_unpacked(settings, trial.server)
    names = (trial.server,)
    with local.held(settings, names) as addresses:
        url = addresses[trial.server]
        trial.write(url, "none")
        assert trial.read(url) == "none"
        trial.check(url)
        assert_loopback_only(settings, trial.server)
        if trial.tells_who_it_is:
            assert_not_taken_for_anothers(settings, trial.server)

        victim = main_process(settings, trial.server)
        trial.write(url, "one")
        victim.kill()  # at once: what is acknowledged is kept, not what has been written for half a second
        until(lambda: not process.carries(victim, settings.state_folder), "the kill")
        assert local.up(settings, names) == addresses, "its port is remembered"
        assert trial.read(url) == "one"

        if not trial.starts_slowly:
            trial.write(url, "two")
            local.down(settings, names)
            assert_nothing_left(settings, trial.server)
            local.up(settings, names)
            assert trial.read(url) == "two"
    assert_nothing_left(settings, trial.server)


def main_process(settings: Settings, server: str) -> psutil.Process:
    (pid,) = (row.pid for row in local.status(settings) if row.server == server)
    return psutil.Process(pid)


def assert_loopback_only(settings: Settings, server: str) -> None:
    heard = {
        (connection.laddr.ip, connection.laddr.port)
        for member in process.marked(settings.state_folder, server)
        for connection in member.net_connections("inet")
        if connection.laddr and not connection.raddr
    }
    assert {port for _, port in heard} == set(local.site_of(settings, server).ports.values()), "no port but its own"
    assert {ip for ip, _ in heard} <= LOOPBACK


def assert_not_taken_for_anothers(settings: Settings, server: str) -> None:
    """The same server, looked at from another project that happens to have remembered its ports."""
    site = local.site_of(settings, server)
    another = replace(site, settings=replace(settings, folder=settings.folder / "another"))
    another.data.mkdir(parents=True)
    with pytest.raises(PortLost):
        site.server.ready(another)


def assert_nothing_left(settings: Settings, server: str) -> None:
    assert list(process.marked(settings.state_folder, server)) == []
    assert all(is_free(port) for port in local.site_of(settings, server).ports.values())


@pytest.mark.parametrize(
    ("server", "install"),
    [
        ("valkey", "pip install 'millrace[local]'"),
        ("mariadb", "apt-get install mariadb-server-core mariadb-client-core"),
        ("rabbitmq", "apt-get install rabbitmq-server"),
    ],
)
def test_a_server_that_is_not_installed_says_how_to_install_it(
    server: str, install: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ServerNotInstalled) as refused:
        local.up(config.load(folder), (server,), detach=True)
    assert refused.value.remedy == f"install it: `{install}`"
    assert list(process.marked(config.load(folder).state_folder)) == []
