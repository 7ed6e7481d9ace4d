"""The jars of jars.lock: fetched once by the Ivy inside PySpark, verified, and kept in a cache that projects share.

What holds: a file of the cache under its final name was verified against its SHA-256 before it got that name, and
only the holder of the cache's lock writes there. So a present file of the right size is taken as it is, and whatever
interrupts a fetch leaves nothing but a `fetch-…` folder, which is never read and which the next fetch removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from millrace import config
from millrace.errors import (
    CacheUnusable,
    DiskFull,
    IvyMissing,
    JarRefused,
    JarsFailed,
    JarsSlow,
    JarsUnreachable,
    JarUnknown,
    MillraceError,
)
from millrace.local import java

LOCK = Path(__file__).with_name("jars.lock")

FETCH_TIMEOUT_S = 15 * 60
LOCK_TIMEOUT_S = 20 * 60
CONNECT_TIMEOUT_MS = 15_000
READ_TIMEOUT_MS = 60_000
IVY_HEAP_MB = 256
# Ivy asks for one jar after the other, so most of its time is waiting: two took 8 s for Kafka's jars, one 13 s.
IVY_PROCESSES = 2
SPARE_ROOM_BYTES = 32 * 1024 * 1024
POLL_S = 0.1

_COORDINATES = re.compile(
    r"(?P<organisation>[\w.-]+):(?P<name>[\w.-]+):(?P<version>[\w.+-]+)(:(?P<classifier>[\w.-]+))?(@(?P<extension>[\w.]+))?"
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class Coordinates:
    """Where a registry keeps an artifact; written `organisation:name:version[:classifier][@extension]`."""

    organisation: str
    name: str
    version: str
    classifier: str = ""
    extension: str = "jar"

    @classmethod
    def parse(cls, text: str) -> Coordinates:
        found = _COORDINATES.fullmatch(text)
        if not found:
            raise ValueError(f"{text!r} is not organisation:name:version[:classifier][@extension]")
        return cls(**{part: value for part, value in found.groupdict().items() if value})

    def __str__(self) -> str:
        classifier = f":{self.classifier}" if self.classifier else ""
        extension = f"@{self.extension}" if self.extension != "jar" else ""
        return f"{self.organisation}:{self.name}:{self.version}{classifier}{extension}"

    @property
    def file_name(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"


@dataclass(frozen=True, order=True)
class Jar:
    """One line of the lock."""

    coordinates: Coordinates
    sha256: str
    size_bytes: int

    @property
    def path(self) -> Path:
        """Its place in the cache; by content, so that another lock with the same jar shares it."""
        return folder() / self.sha256[:16] / self.coordinates.file_name


def folder() -> Path:
    return config.cache_folder() / "jars"


def paths(group: str, progress: bool = True, lock: Path = LOCK) -> list[Path]:
    """The verified jars of a group, in the lock's order; what is missing is fetched first."""
    jars = read(lock)[group]
    if missing(jars):
        with _locked(progress) as held:
            # Another process may have fetched them while this one waited.
            if lacking := missing(jars):
                _fetch_into_cache(group, lacking, held, progress)
    return [jar.path for jar in jars]


def version(name: str, lock: Path = LOCK) -> str:
    """The version of an artifact that the lock has once, for example `kafka_2.13`."""
    (found,) = {jar.coordinates.version for jars in read(lock).values() for jar in jars if jar.coordinates.name == name}
    return found


def missing(jars: Iterable[Jar]) -> list[Jar]:
    return [jar for jar in jars if _size_bytes(jar.path) != jar.size_bytes]


@functools.cache
def read(lock: Path = LOCK) -> Mapping[str, tuple[Jar, ...]]:
    """The lock, by group. A malformed one is a fault of ours, not of the user: ValueError."""
    groups: dict[str, list[Jar]] = {}
    jars: list[Jar] | None = None
    for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text.startswith("[") and text.endswith("]"):
            jars = groups.setdefault(text[1:-1], [])
        elif text:
            fields = text.split()
            if jars is None or len(fields) != 3 or not _SHA256.fullmatch(fields[1]) or not fields[2].isdecimal():
                raise ValueError(f"{lock}:{number} is not `coordinates sha256 size_bytes` under a [group]")
            jars.append(Jar(Coordinates.parse(fields[0]), fields[1], int(fields[2])))
    return {group: tuple(jars) for group, jars in groups.items()}


# --- the cache ---------------------------------------------------------------------------------------------------


def _size_bytes(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CacheUnusable(folder=folder(), reason=error.strerror) from None


@contextlib.contextmanager
def _locked(progress: bool) -> Iterator[int]:
    """Holds the cache's lock. Ivy inherits it: after kill -9 of this process it is free once Ivy is gone too."""
    with _cache_errors():
        folder().mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder() / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for_lock(descriptor, progress)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, progress: bool) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told and progress:
                _say("another Millrace is fetching jars; waiting for it to finish")
            told = True
        if time.monotonic() > deadline:
            raise JarsSlow(what="waiting for another Millrace to fetch jars", minutes=LOCK_TIMEOUT_S // 60)
        time.sleep(POLL_S)


@contextlib.contextmanager
def _cache_errors(needed_bytes: int = SPARE_ROOM_BYTES) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(needed_bytes) from None
        raise CacheUnusable(folder=folder(), reason=error.strerror or error) from None


def _disk_full(needed_bytes: int) -> DiskFull:
    free = shutil.disk_usage(folder()).free
    return DiskFull(folder=folder(), needed=_megabytes(needed_bytes), free=_megabytes(free))


def _fetch_into_cache(group: str, jars: Sequence[Jar], held: int, progress: bool) -> None:
    started = time.monotonic()
    needed = sum(jar.size_bytes for jar in jars)
    for left in folder().glob("fetch-*"):
        shutil.rmtree(left, ignore_errors=True)
    if shutil.disk_usage(folder()).free < needed + SPARE_ROOM_BYTES:
        raise _disk_full(needed + SPARE_ROOM_BYTES)
    with (
        _cache_errors(needed),
        tempfile.TemporaryDirectory(prefix="fetch-", dir=folder(), ignore_cleanup_errors=True) as name,
    ):
        work = Path(name)
        try:
            with _announced(group, jars, progress) as watch:
                words = fetch([jar.coordinates for jar in jars], work, watch, (held,))
        finally:
            refused = _adopt(jars, work)
        if refused:
            raise refused
        if lacking := missing(jars):
            raise _explained(group, lacking, words)
    if progress:
        _say(f"fetched the jars of {group} in {time.monotonic() - started:.0f} s")


def _adopt(jars: Iterable[Jar], work: Path) -> JarRefused | None:
    """Moves what arrived and is right to its place; what is right stays, whatever else went wrong."""
    refused = None
    for jar in jars:
        came = arrived(jar.coordinates, work)
        if came is None:
            continue
        if wrong := _mismatch(jar, came):
            refused = refused or wrong
            continue
        with came.open("rb") as file:
            os.fsync(file.fileno())  # the name must not outlive a power cut that the content does not survive
        came.chmod(0o644)
        jar.path.parent.mkdir(exist_ok=True)
        came.replace(jar.path)
    return refused


def _mismatch(jar: Jar, came: Path) -> JarRefused | None:
    size_bytes = came.stat().st_size
    if size_bytes != jar.size_bytes:
        return JarRefused(jar=jar.coordinates, property="size in bytes", found=size_bytes, expected=jar.size_bytes)
    found = sha256(came)
    if found != jar.sha256:
        return JarRefused(jar=jar.coordinates, property="SHA-256", found=found, expected=jar.sha256)
    return None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- Ivy ---------------------------------------------------------------------------------------------------------

# Its `ibiblio` resolver knows Maven Central by itself. Without POMs and metadata it asks for nothing but the jars, and
# its own checksums (SHA-1, one more request each) are off because SHA-256 is checked here.
_SETTINGS = f"""<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="{CONNECT_TIMEOUT_MS}" readTimeout="{READ_TIMEOUT_MS}"/>
  </timeout-constraints>
  <caches defaultCacheDir="${{ivy.default.ivy.user.dir}}"
          artifactPattern="arrived/[organisation]/[artifact]-[revision](-[classifier]).[ext]"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" timeoutConstraint="bounded" usepoms="POMS" useMavenMetadata="POMS"/>
  </resolvers>
</ivysettings>
"""


# How Ivy says that it never got an answer, as opposed to the answer that there is no such jar.
_NO_CONNECTION = (
    re.compile(r"Server access error at url \S+ \((?:[\w.]+: )?(?P<reason>.*)\)"),
    re.compile(r"(?P<reason>Host \S+ not found)\. url="),
    re.compile(r"SERVER ERROR: (?P<reason>.*) url="),
)


def fetch(
    wanted: Sequence[Coordinates], work: Path, watch: Callable[[int], None], inherited: Sequence[int] = ()
) -> str:
    """Has Ivy fetch into the folder `work`, where `arrived` finds them, and returns what Ivy said. Verifies nothing."""
    count = min(IVY_PROCESSES, len(wanted))
    parts = [work / f"ivy-{number}" for number in range(count)]
    processes: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + FETCH_TIMEOUT_S
    try:
        for number, part in enumerate(parts):
            part.mkdir()
            processes.append(start_ivy(part, module(wanted[number::count]), inherited=inherited))
        while any(process.poll() is None for process in processes):
            if time.monotonic() > deadline:
                raise JarsSlow(what=f"fetching {len(wanted)} jars", minutes=FETCH_TIMEOUT_S // 60)
            watch(_arrived_bytes(work))
            time.sleep(POLL_S)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return "".join((part / "words").read_text(encoding="utf-8", errors="replace") for part in parts)


def arrived(coordinates: Coordinates, work: Path) -> Path | None:
    return next(work.glob(f"ivy-*/arrived/{coordinates.organisation}/{coordinates.file_name}"), None)


def start_ivy(part: Path, module: str, poms: bool = False, inherited: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Starts one Ivy whose every file, and what it says (`words`), is in the folder `part`."""
    (part / "settings.xml").write_text(_SETTINGS.replace("POMS", str(poms).lower()), encoding="utf-8")
    (part / "module.xml").write_text(module, encoding="utf-8")
    argv: list[str | Path] = [
        java.find(),
        f"-Xmx{IVY_HEAP_MB}m",
        "-Djava.awt.headless=true",
        f"-Divy.default.ivy.user.dir={part}",
    ]
    argv += ["-jar", _ivy(), "-settings", part / "settings.xml", "-ivy", part / "module.xml"]
    with (part / "words").open("wb") as words:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT, pass_fds=tuple(inherited)
        )


def module(wanted: Iterable[Coordinates], transitive: bool = False, excluded: Iterable[str] = ()) -> str:
    """An Ivy module that depends on these artifacts; several of one module go under one dependency."""
    dependencies: dict[tuple[str, str, str], list[str]] = {}
    for one in wanted:
        classifier = f" m:classifier={quoteattr(one.classifier)}" if one.classifier else ""
        extension = quoteattr(one.extension)
        artifact = f"<artifact name={quoteattr(one.name)} type={extension} ext={extension}{classifier}/>"
        dependencies.setdefault((one.organisation, one.name, one.version), []).append(artifact)
    lines = [
        f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(version)}"
        f' transitive="{str(transitive).lower()}" conf="default->default">{"".join(artifacts)}</dependency>'
        for (organisation, name, version), artifacts in dependencies.items()
    ]
    for organisation, _, name in (text.partition(":") for text in excluded):
        lines.append(f"<exclude org={quoteattr(organisation)} module={quoteattr(name)}/>")
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="millrace" module="jars"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _ivy() -> Path:
    # Looked for without importing PySpark, which would take a second.
    found = importlib.util.find_spec("pyspark")
    if not found or not found.origin:
        raise IvyMissing(looked="PySpark is not installed")
    home = Path(found.origin).parent / "jars"
    brought = sorted(home.glob("ivy-*.jar"))
    if not brought:
        raise IvyMissing(looked=f"there is no ivy-*.jar in {home}")
    return brought[-1]


def _explained(group: str, lacking: Sequence[Jar], words: str) -> MillraceError:
    """Ivy's many words as one of ours."""
    needed = sum(jar.size_bytes for jar in lacking)
    if "No space left" in words or "Disk quota exceeded" in words:
        return _disk_full(needed)
    log = _keep(group, words)
    for pattern in _NO_CONNECTION:
        if found := pattern.search(words):
            return JarsUnreachable(count=len(lacking), group=group, reason=found["reason"], log=log)
    for jar in lacking:
        one = jar.coordinates
        if f":: {one.organisation}#{one.name};{one.version}: not found" in words:
            return JarUnknown(jar=one, log=log)
    failed = re.search(r"\[FAILED +\] \S+: (.*)", words)
    return JarsFailed(count=len(lacking), group=group, reason=failed[1] if failed else "Ivy stopped early", log=log)


def _keep(group: str, words: str) -> Path | str:
    """One file a group, written over by the next failure: the cache must not fill with logs."""
    log = config.cache_folder() / "logs" / f"jars-{group}.log"
    try:
        log.parent.mkdir(exist_ok=True)
        log.write_text(words, encoding="utf-8")
    except OSError as error:
        return f"{log}, which could not be written ({error.strerror})"
    return log


# --- what the person sees ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _announced(group: str, jars: Sequence[Jar], progress: bool) -> Iterator[Callable[[int], None]]:
    """Says what will be fetched, shows how far it is, and yields what to tell the bytes that have arrived."""
    total = sum(jar.size_bytes for jar in jars)
    if not progress:
        yield lambda _: None
        return
    plural = "s" if len(jars) > 1 else ""
    # Each jar costs a wait for an answer as well as its bytes.
    seconds = max(2, round(1 + len(jars) * 0.1 + total * 8 / 50e6))
    _say(f"fetching {len(jars)} jar{plural} of {group}, {_megabytes(total)}: about {seconds} s at 50 Mbit/s")
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(group, total=None)  # Ivy first asks for every jar: until the first byte the bar only moves
        yield lambda done: bar.update(task, completed=min(done, total), total=total if done else None)


def _arrived_bytes(work: Path) -> int:
    """Ivy writes `….part` and renames it when it is whole: between two looks a file may be gone."""
    total = 0
    for path in work.glob("ivy-*/arrived/*/*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
