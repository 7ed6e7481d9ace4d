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
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace import config
from millrace.errors import (
    CacheUnusable,
    DiskFull,
    JarRefused,
    JarsFailed,
    JarsSlow,
    JarsUnreachable,
    JarUnknown,
    MillraceError,
)
from millrace.local.ivy import Coordinates, arrived, fetch

LOCK = Path(__file__).with_name("jars.lock")

LOCK_TIMEOUT_S = 20 * 60
SPARE_ROOM_BYTES = 32 * 1024 * 1024
POLL_S = 0.1

_SHA256 = re.compile(r"[0-9a-f]{64}")


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


# How Ivy says that it never got an answer, as opposed to the answer that there is no such jar.
_NO_CONNECTION = (
    re.compile(r"Server access error at url \S+ \((?:[\w.]+: )?(?P<reason>.*)\)"),
    re.compile(r"(?P<reason>Host \S+ not found)\. url="),
    re.compile(r"SERVER ERROR: (?P<reason>.*) url="),
)


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


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
