"""Servers that come as Debian packages: installed when the tests run as root, or unpacked by Millrace itself; otherwise
a reason to skip."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace import local
from millrace.config import Settings
from millrace.errors import ServerNotInstalled

APT_LIMIT_S = 600
POLICY = Path("/usr/sbin/policy-rc.d")  # what Debian's packages ask before they start a service of theirs
START_NOTHING = "#!/bin/sh\nexit 101\n"


def require(program: Path, *packages: str) -> None:
    """Makes sure that `program` is there, by installing `packages` if we may; skips the test if not."""
    if program.exists():
        return
    if os.geteuid() != 0:
        _do_without(program, "installing it takes root")
    if shutil.which("apt-get") is None:
        _do_without(program, "this is not Debian")
    with (Path(tempfile.gettempdir()) / "millrace-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():
            return
        with _no_service_started():
            for argv in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
                done = _apt(argv)
                if done.returncode != 0:
                    _do_without(program, f"apt-get {argv[0]} failed: {done.stderr.strip()[-300:]}")
    assert program.exists(), f"{' '.join(packages)} did not bring {program}"


def require_unpacked(settings: Settings, server: str) -> None:
    """Makes sure of a server that Millrace gets from Debian's packages without root; skips the test if it cannot."""
    try:
        local.site_of(settings, server).server.fetch()
    except ServerNotInstalled as error:
        _do_without(server, error.what)


def _do_without(program: Path | str, reason: str) -> None:
    text = f"{program} is missing and {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def _apt(argv: list[str]) -> subprocess.CompletedProcess[str]:
    # Where apt's own automatic update runs at the moment, it holds the lock for a while.
    return subprocess.run(
        ["apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=300", *argv],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=APT_LIMIT_S,
        check=False,
    )


@contextlib.contextmanager
def _no_service_started() -> Iterator[None]:
    """Forbids packages to start their services, as policy-rc.d(8) says; the machine's own policy comes back after."""
    before = POLICY.read_bytes() if POLICY.exists() else None
    mode = POLICY.stat().st_mode if before is not None else 0o755
    POLICY.write_text(START_NOTHING, encoding="utf-8")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        if before is None:
            POLICY.unlink()
        else:
            POLICY.write_bytes(before)
            POLICY.chmod(mode)
