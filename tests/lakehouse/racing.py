"""One of several processes that commit to the same table: `python -m tests.lakehouse.racing FOLDER TABLE FORMAT`, with
the catalog's address in the environment. For each line that it is given it commits what it has prepared on the version
that it then said, and says what became of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path

from millrace import config
from millrace.config import Lake, Secret
from millrace.errors import LakeConflict
from millrace.lakehouse import Catalog, Committed, Note
from tests.lakehouse import filled

CATALOG = "RACING_CATALOG"


def main(folder: Path, name: str, kind: str) -> None:
    filled._numbers = itertools.count(1_000 * os.getpid())  # by which files are called
    settings = config.load(folder)
    if (url := os.environ.get(CATALOG)) is not None:
        settings = replace(settings, lake=Lake(catalog=Secret("lake.catalog", url)))
    with contextlib.closing(Catalog(settings).table(name, kind)) as table:
        while True:
            assert table.load()
            note = table.note()
            number = 0 if note is None else note.epoch + 1
            path = filled.file_of(table, [os.getpid(), number])
            print(number, flush=True)
            if not sys.stdin.readline():
                return
            try:
                table.commit(Committed(Note("flow", number, "[]", path.split("/", 1)[1].rpartition("/")[0]), [path]))
                print("first", flush=True)
            except LakeConflict:
                print("second", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
