"""Runs `millrace` as a person would: a process of its own, in a folder, with its output and exit code."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

LIMIT_S = 180


def environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}
    if cache := os.environ.get("MILLRACE_CACHE"):
        kept["MILLRACE_CACHE"] = cache
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


def millrace(
    *args: str,
    cwd: Path,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "millrace", *args],
        cwd=cwd,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environ(env),
        timeout=LIMIT_S,
        check=False,
    )
    decoded = (done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    return subprocess.CompletedProcess(done.args, done.returncode, *decoded)


@contextlib.contextmanager
def start(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on in a process group of its own; what is left of it is killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "millrace", *args],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ(env),
        text=True,
        start_new_session=True,
    ) as command:
        try:
            yield command
        finally:
            if command.poll() is None:
                command.kill()


def until(condition: Callable[[], bool], what: str, limit_s: float = 180) -> None:
    """Waits for a condition, and fails by its name when it does not come true in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s"
        time.sleep(0.05)
