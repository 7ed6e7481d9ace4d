"""MariaDB from the system's packages, with the row binlog that captures read. User and database are `millrace`."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

from millrace.errors import PortLost
from millrace.local.declare import HOST, Command, Server, Site, fill, installed

NAME = "millrace"
INSTALL = "apt-get install mariadb-server-core mariadb-client-core"
INSTALL_DB_LIMIT_S = 120
ANSWER_LIMIT_S = 10
BINLOG_KEPT_S = 7 * 24 * 3600

_find = partial(installed, server="mariadb", install=INSTALL)


def _fetch() -> None:
    _server()
    _find("mariadb-install-db")
    _find("mariadb")


def _server() -> Path:
    return _find("mariadbd", "/usr/sbin/mariadbd")  # where the PATH of ordinary users does not lead


def _install_db(site: Site) -> None:
    site.folder.mkdir(parents=True, exist_ok=True)
    users = site.folder / "users.sql"
    users.write_text(
        "FLUSH PRIVILEGES;\n"  # until then it runs without users, and cannot make one
        f"CREATE DATABASE {NAME};\n"
        f"CREATE USER '{NAME}'@'{HOST}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO '{NAME}'@'{HOST}' WITH GRANT OPTION;\n",
        encoding="utf-8",
    )
    argv = [
        *[str(_find("mariadb-install-db")), "--no-defaults", f"--datadir={site.data}", f"--extra-file={users}"],
        *["--skip-name-resolve", "--skip-test-db", f"--tmpdir={site.folder}"],
    ]
    fill(site, argv, INSTALL_DB_LIMIT_S)


def _command(site: Site) -> Command:
    values = {
        "datadir": site.data,
        "tmpdir": site.folder,
        # Relative to the data: it asks by access(2), which heeds no capability, whether its file is there, and below a
        # folder that only root may enter it would begin anew at each start, and take system tables for foreign ones.
        "aria-log-dir-path": ".",
        "bind-address": HOST,
        "port": site.port,
        "socket": "",  # none: a path under a deep project folder would be too long for one
        "skip-name-resolve": "ON",
        "skip-ssl": "ON",
        # What Debezium reads: every row in full, with column names and types, at a position that names the transaction.
        "server-id": 1,
        "log-bin": "binlog",
        "binlog-format": "ROW",
        "binlog-row-image": "FULL",
        "binlog-row-metadata": "FULL",
        "gtid-strict-mode": "ON",
        "gtid-domain-id": 0,
        "sync-binlog": 1,
        "binlog-expire-logs-seconds": BINLOG_KEPT_S,
        "max-binlog-size": "64M",
        "secure-file-priv": site.data,  # SQL reads and writes no other files of this machine
        "innodb-buffer-pool-size": "64M",
        "aria-pagecache-buffer-size": "8M",
        "max-connections": 100,
    }
    options = [f"--{name}={value}" for name, value in values.items()]
    return Command([str(_server()), "--no-defaults", *options])


def _address(site: Site) -> str:
    return f"mysql://{NAME}@{HOST}:{site.port}/{NAME}"


def _ready(site: Site) -> None:
    asked = subprocess.run(
        [
            *[str(_find("mariadb")), "--no-defaults", "--skip-ssl", f"--host={HOST}", f"--port={site.port}"],
            *[f"--user={NAME}", "--skip-column-names", "--batch", "--execute=SELECT @@datadir", NAME],
        ],
        capture_output=True,
        text=True,
        timeout=ANSWER_LIMIT_S,
        check=False,
    )
    if asked.returncode != 0:
        raise ConnectionError(asked.stderr.strip())
    if Path(asked.stdout.strip()).resolve() != site.data.resolve():
        raise PortLost(port=site.port, server="mariadb")


SERVER = Server(
    name="mariadb",
    about="MariaDB, a system of record",
    ports={"sql": 13306},
    fetch=_fetch,
    prepare=_install_db,
    command=_command,
    ready=_ready,
    address=_address,
    unprivileged=True,
)
