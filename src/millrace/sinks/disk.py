"""What has to be on the disk before something else is done."""

from __future__ import annotations

import os
from pathlib import Path


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
