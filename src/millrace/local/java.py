"""Which `java` runs the servers, Spark and Ivy: the one of JAVA_HOME, otherwise the one on PATH; 17 or later."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from millrace.errors import JavaMissing, JavaTooOld

OLDEST = 17
ANSWER_TIMEOUT_S = 30

_VERSION = re.compile(r'version "([^"]+)"')


def find() -> Path:
    """The `java` executable, known to be new enough."""
    java = _locate()
    found = _ask(java)
    if _major(found) < OLDEST:
        raise JavaTooOld(java=java, found=found)
    return java


def version() -> str:
    """The version as Java itself states it, for example `17.0.15`."""
    return _ask(find())


def _locate() -> Path:
    # Spark's own launcher looks at JAVA_HOME first and does not go on to PATH: taking another Java here would
    # only move the failure to a place where it is harder to read.
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaMissing(looked=f"JAVA_HOME is {home}, which has no bin/java")
        return java
    found = shutil.which("java")
    if not found:
        raise JavaMissing(looked="JAVA_HOME is not set and there is no `java` on PATH")
    return Path(found)


@functools.cache
def _ask(java: Path) -> str:
    """Asks once a process: starting a JVM takes a tenth of a second or more."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=ANSWER_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise JavaMissing(looked=f"{java} did not tell its version within {ANSWER_TIMEOUT_S} s") from None
    except OSError as error:
        raise JavaMissing(looked=f"{java} cannot be started: {error.strerror}") from None
    # macOS has a /usr/bin/java that only says where to buy one, and fails.
    stated = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode != 0 or not stated:
        raise JavaMissing(looked=f"{java} does not tell its version")
    return stated[1]


def _major(stated: str) -> int:
    """8 for `1.8.0_402`, 17 for `17.0.15`, 24 for `24-ea`."""
    numbers = [int(number) for number in re.findall(r"\d+", stated)] or [0]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
