"""What has to be on the disk before something else is done."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Of Linux: paths are taken from the working directory, and two names are exchanged.
_HERE, _EXCHANGE = -100, 2


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that a reader, and the next start after a crash, finds the old text or the new one."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def sync(folder: Path) -> None:
    """With all that is in it: a rename is for good only after what it renames is."""
    for path in (*folder.rglob("*"), folder):
        sync_alone(path)


def sync_alone(path: Path) -> None:
    """A file; or of a folder which names are in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> None:
    """Lets two folders change names in one step: whoever opens either finds one of them.

    A system that cannot (its kernel, or the file system) is left with two renames, between which `one` is not there.
    """
    if _exchanged(one, other):
        return
    aside = one.with_name(f"{one.name}.aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def _exchanged(one: Path, other: Path) -> bool:
    """By `renameat2` of Linux."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(call(_HERE, bytes(one), _HERE, bytes(other), _EXCHANGE) == 0)
