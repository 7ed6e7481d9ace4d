"""Servers that are started by a few lines of Java of ours: Spark brings a compiler that needs no JDK, Janino, which
compiles and runs them in a moment."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from millrace.local.declare import Command, Site
from millrace.local.servers import jvm


def run(
    site: Site, group: str, main: str, arguments: Sequence[str], heap_mb: int, options: tuple[str, ...] = ()
) -> Command:
    """`java` with the jars of a group, and the class `Main` of this text as its main class."""
    source = site.folder / "config" / "Main.java"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(main, encoding="utf-8")
    classpath = ":".join([jvm.classpath(group), *map(str, _jars())])
    what = ["-cp", classpath, "org.codehaus.janino.SimpleCompiler", str(source), "Main", *arguments]
    return jvm.program(site, what, heap_mb, options)


def _jars() -> list[Path]:
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found and found.origin else Path()
    return [path for name in ("janino", "commons-compiler") for path in folder.glob(f"{name}-*.jar")]
