"""Versions are let go by age, with the files that only they had.

What holds: a version stays whole for as long as it was the table's last one within that time. A file is never judged by
its age where its folder says of which version it is: what is being written belongs to a version that is yet to come.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime

from millrace.lakehouse.place import Seen
from millrace.lakehouse.table import DATA, LakeTable, Version

# What nobody can place goes after a day at the soonest: somebody may still be at work on it.
LEFT_S = 24 * 3600


def forget(table: LakeTable, before: datetime, turn: AbstractContextManager[object] | None = None) -> int:
    """Lets go of the versions that were replaced before then, and of their files; gives how many files went. The table
    is loaded; what it commits is committed while `turn` is held."""
    versions = table.versions()
    if not versions:
        return 0
    oldest = next((each for each in reversed(versions) if each.at <= before), versions[0])
    # The last one that says which epoch it holds is needed whatever its age.
    noted = next((each for each in reversed(versions) if each.note is not None), oldest)
    oldest = min(oldest, noted, key=lambda each: each.number)
    kept = {each.path for each in (*table.files(oldest), *table.files())}
    with turn or contextlib.nullcontext():
        table.load()
        table.drop(oldest)
    table.tidy(oldest)
    since = {each.note.written: each.number for each in versions if each.note is not None}
    gone: list[str] = []
    for each in table.place.files(DATA):
        if each.path not in kept and not _younger(each, oldest, since, before):
            table.place.remove(each.path)
            gone.append(each.path)
    # Other folders may be empty because somebody has just made them, and is about to fill them.
    table.place.tidy(set(_attempts(gone)))
    return len(gone)


def _attempts(paths: Iterable[str]) -> Iterator[str]:
    """The folders that were made for these files: those of an attempt, and below."""
    for path in paths:
        parts = path.split("/")
        yield from ("/".join(parts[:length]) for length in range(3, len(parts)))


def _younger(file: Seen, oldest: Version, since: dict[str, int], before: datetime) -> bool:
    """Whether a file came with a version that is kept, or will come with one."""
    parts = file.path.split("/")[1:]
    number = parts[1].partition("-")[0] if len(parts) > 2 else ""
    if number.isdecimal():
        return int(number) > oldest.number
    if (named := since.get("/".join(parts[:2]))) is not None:
        return named > oldest.number
    return file.modified_s >= min(before.timestamp(), time.time() - LEFT_S)


def size_bytes(table: LakeTable) -> int:
    """Of all files that hold rows, of whichever version."""
    return sum(each.size_bytes for each in table.place.files(DATA))
