"""Servers that come as Debian packages, unpacked into the cache: without root, and nothing of the system is changed.

Apt fetches the packages and verifies them by the signature of the machine's own release, as it does for an install.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from millrace import config
from millrace.local import unpack

FETCH_LIMIT_S = 600


class PackagesUnobtainable(Exception):
    """This machine has no apt, or its apt does not know or cannot get these packages."""


def unpacked(name: str, packages: Sequence[str], settle: Callable[[Path, Path], object]) -> Path:
    """The root of a tree with the files of these packages, all of them named: apt is not asked what they need.

    `settle(draft, folder)` makes a tree fit for the place where it will be. It is fetched once; to have newer packages,
    delete it.
    """
    stamp = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    folder = config.cache_folder() / "packages" / f"{name}-{stamp}"

    def fill(draft: Path) -> None:
        downloads = draft / "packages"
        downloads.mkdir()
        _run(["apt-get", "--quiet", "download", *packages], downloads)
        for package in sorted(downloads.glob("*.deb")):
            _run(["dpkg-deb", "--extract", str(package), str(draft)], draft)
        shutil.rmtree(downloads)
        settle(draft, folder)

    return unpack.once(folder, fill)


def _run(argv: list[str], folder: Path) -> None:
    if shutil.which(argv[0]) is None:
        raise PackagesUnobtainable(f"there is no {argv[0]}")
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FETCH_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PackagesUnobtainable(f"{argv[0]} had no end within {FETCH_LIMIT_S} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or done.stderr.splitlines()
        raise PackagesUnobtainable(f"{argv[0]} said: {(said or ['nothing'])[0].removeprefix('E: ')}")
