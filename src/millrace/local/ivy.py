"""The Apache Ivy that ships inside PySpark: fetches artifacts of a Maven registry. Verifies nothing; `jars` does."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from millrace.errors import IvyMissing, JarsSlow
from millrace.local import java

FETCH_TIMEOUT_S = 15 * 60
CONNECT_TIMEOUT_MS = 15_000
READ_TIMEOUT_MS = 60_000
IVY_HEAP_MB = 256
# Ivy asks for one jar after the other, so most of its time is waiting: two took 8 s for Kafka's jars, one 13 s.
IVY_PROCESSES = 2
POLL_S = 0.1

_COORDINATES = re.compile(
    r"(?P<organisation>[\w.-]+):(?P<name>[\w.-]+):(?P<version>[\w.+-]+)(:(?P<classifier>[\w.-]+))?(@(?P<extension>[\w.]+))?"
)
_IVY = "http://ant.apache.org/ivy"  # the namespace of its files

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
            processes.append(start(part, module(wanted[number::count]), inherited=inherited))
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


def start(part: Path, module: str, poms: bool = False, inherited: Sequence[int] = ()) -> subprocess.Popen[bytes]:
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
        f'<ivy-module version="2.0" xmlns:m="{_IVY}/maven">'
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


def _arrived_bytes(work: Path) -> int:
    """Ivy writes `….part` and renames it when it is whole: between two looks a file may be gone."""
    total = 0
    for path in work.glob("ivy-*/arrived/*/*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
