"""Programs in Java that run the kernel's own code without Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

from millrace.kernel.calling import jar
from millrace.local import java
from millrace.local.compile import UNITS

_SOURCES = Path(__file__).parent / "java" / "millrace" / "kernel"


def driver(name: str, folder: Path) -> list[str]:
    """The command that runs one, compiled into a folder."""
    path = ":".join(map(str, [jar(), *UNITS["kernel"].class_path()]))
    compiler = java.find().resolve().with_name("javac")
    source = _SOURCES / f"{name}.java"
    subprocess.run([compiler, "-J-XX:TieredStopAtLevel=1", "-proc:none", "-cp", path, "-d", folder, source], check=True)
    return [str(java.find()), "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{path}", f"millrace.kernel.{name}"]
