"""The project's own Java, compiled from its source when it is first used, and kept in the cache by its content.

What holds: a jar of the cache stands under the hash of its sources and of all it was compiled against, and got that
name only when it was whole. So whatever has the name can be used, and two processes that compile the same at once do
the work twice and no harm. A wheel carries its jars; one whose stamp is that hash needs no compiler.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace import config
from millrace.errors import CacheUnusable, CompilerFailed, CompilerMissing, DiskFull
from millrace.local import jars, java

RELEASE = 17
COMPILE_TIMEOUT_S = 120
ABANDONED_S = 3600
STAMP = "META-INF/millrace-stamp"

_PACKAGE = Path(__file__).parent.parent
_MANIFEST = "META-INF/MANIFEST.MF"
# A jar holds the same bytes whenever it is made; this is the earliest time that a zip file can state.
_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Unit:
    """Java that becomes one jar: its source folder (resources included), and what it is compiled against."""

    name: str
    source: Path
    groups: tuple[str, ...]
    pyspark: bool = False

    @property
    def jar_name(self) -> str:
        return f"millrace-{self.name}.jar"

    @property
    def packaged(self) -> Path:
        """Where a wheel carries the jar."""
        return self.source.parent / self.jar_name

    def files(self) -> list[Path]:
        """Sources and resources; not what an editor or a compiler left there, which a wheel does not have."""
        found = (path for path in self.source.rglob("*") if path.is_file())
        return sorted(path for path in found if not path.name.startswith(".") and path.suffix != ".class")

    def stamp(self) -> str:
        """The hash of everything that makes the jar what it is."""
        facts = [f"release {RELEASE}"]
        if self.pyspark:
            facts.append(f"pyspark {importlib.metadata.version('pyspark')}")
        facts += [f"{jar.coordinates} {jar.sha256}" for group in self.groups for jar in jars.read()[group]]
        digest = hashlib.sha256("\n".join(facts).encode())
        for path in self.files():
            content = path.read_bytes()
            digest.update(f"\n{path.relative_to(self.source).as_posix()} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    def class_path(self) -> list[Path]:
        own = sorted(_pyspark_jars().glob("*.jar")) if self.pyspark else []
        return own + [path for group in self.groups for path in jars.paths(group)]


UNITS = {
    unit.name: unit
    for unit in (
        Unit("kernel", _PACKAGE / "kernel" / "java", ("spark",), pyspark=True),
        Unit("capture", _PACKAGE / "capture" / "java", ("kafka", "debezium")),
    )
}


def folder() -> Path:
    return config.cache_folder() / "compiled"


def compiled(name: str) -> Path:
    """The jar of a unit: the wheel's, the cache's, or else one that is compiled now."""
    return jar_of(UNITS[name])


def jar_of(unit: Unit) -> Path:
    stamp = unit.stamp()
    if stamp_of(unit.packaged) == stamp:
        return unit.packaged
    jar = folder() / stamp[:16] / unit.jar_name
    if stamp_of(jar) != stamp:
        _compile(unit, stamp, jar)
    return jar


def stamp_of(jar: Path) -> str | None:
    """The stamp inside a jar; None for no jar, or for a file that is none."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(STAMP).decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def _compile(unit: Unit, stamp: str, jar: Path) -> None:
    compiler = _compiler(unit)
    class_path = unit.class_path()
    with _cache_errors():
        jar.parent.mkdir(parents=True, exist_ok=True)
        _sweep()
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder(), ignore_cleanup_errors=True) as name:
            work = Path(name)
            _run(unit, compiler, class_path, work)
            _pack(unit, stamp, work / "classes", work / unit.jar_name)
            (work / unit.jar_name).replace(jar)


def _run(unit: Unit, compiler: Path, class_path: list[Path], work: Path) -> None:
    classes, arguments = work / "classes", work / "arguments"
    classes.mkdir()
    options = [f"--release {RELEASE}", "-encoding UTF-8", "-proc:none", "-g", "-nowarn"]
    quoted = [f"-cp {_quoted(':'.join(map(str, class_path)))}", f"-d {_quoted(str(classes))}"]
    sources = [_quoted(str(path)) for path in unit.files() if path.suffix == ".java"]
    # In a file, because a class path of some hundred jars may be longer than a command line can be.
    arguments.write_text("\n".join([*options, *quoted, *sources]), encoding="utf-8")
    # It runs for a second or two: the JVM's second compiler and parallel collector would cost more than they gain.
    command: list[str | Path] = [compiler, "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", f"@{arguments}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMPILE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CompilerFailed(unit=unit.name, compiler=compiler, reason=f"no end within {COMPILE_TIMEOUT_S} s") from None
    except OSError as error:
        raise CompilerFailed(unit=unit.name, compiler=compiler, reason=error.strerror) from None
    if done.returncode:
        raise CompilerFailed(unit=unit.name, compiler=compiler, reason=_first_error(done.stderr + done.stdout))


def _pack(unit: Unit, stamp: str, classes: Path, jar: Path) -> None:
    entries = {_MANIFEST: b"Manifest-Version: 1.0\r\n\r\n", STAMP: stamp.encode()}
    for root, paths in ((classes, classes.rglob("*.class")), (unit.source, unit.files())):
        for path in paths:
            if path.suffix != ".java":
                entries[path.relative_to(root).as_posix()] = path.read_bytes()
    with zipfile.ZipFile(jar, "w") as archive:
        for name in [_MANIFEST, *sorted(entries.keys() - {_MANIFEST})]:
            entry = zipfile.ZipInfo(name, _ENTRY_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, entries[name])
    with jar.open("rb") as file:
        os.fsync(file.fileno())  # the name must not outlive a power cut that the content does not survive


def _compiler(unit: Unit) -> Path:
    """`javac` beside the `java` that everything else here uses, otherwise on PATH."""
    found = java.find()
    for beside in (found.with_name("javac"), found.resolve().with_name("javac")):
        if os.access(beside, os.X_OK):
            return beside
    on_path = shutil.which("javac")
    if not on_path:
        raise CompilerMissing(unit=unit.name, java=found)
    return Path(on_path)


def _pyspark_jars() -> Path:
    # Looked for without importing PySpark, which would take a second.
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "PySpark is a dependency of Millrace"
    assert found.origin is not None, "PySpark is a package of files"
    return Path(found.origin).parent / "jars"


def _quoted(text: str) -> str:
    """As an argument file of javac wants it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _first_error(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "it said nothing")


def _sweep() -> None:
    """Removes what builds left behind that were killed. A living one is never this old."""
    for left in folder().glob("build-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _cache_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(folder()).free
            raise DiskFull(folder=folder(), needed="1 MB", free=f"{free // 1_000_000} MB") from None
        raise CacheUnusable(folder=folder(), reason=error.strerror or error) from None
