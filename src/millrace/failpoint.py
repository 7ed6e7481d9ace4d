"""Named places at which a test stops a process, to kill it, or a server, right there (`tests/crash`).

Those of Java are in `kernel/FailPoint.java`, by the same rule: the variable TESTS_FAIL_POINTS names a folder, and in it
a file called like the point says who is to stop there (a part of the name that the place gives) and how many pass
before. Whoever comes writes NAME.reached and goes on when that is gone. Without the variable, which nobody else sets, a
place is one look at a constant; without the file nobody stops.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

VARIABLE = "TESTS_FAIL_POINTS"
# Whether a test is there at all: for places that are passed often.
ON = VARIABLE in os.environ
_LOOK_S = 0.005
_passed: Counter[str] = Counter()
T = TypeVar("T")


class FailPoint(Enum):
    """Each place gives the name of its sink, where nothing else is said."""

    SINK_BEFORE = auto()  # an epoch is due, nothing of it is written
    SINK_TASK = auto()  # a worker begins to write its part
    SINK_IN_BULK = auto()  # some rows of a task are on their way
    SINK_BEFORE_LEDGER = auto()  # all rows are written, the ledger does not say so
    SINK_BETWEEN_LEDGERS = auto()  # the server's ledger says so, the copy beside the checkpoint does not
    SINK_AFTER = auto()  # the ledger says so, the flow does not know
    OWED_BEFORE = auto()  # a server is away, and nothing is kept of the epoch yet
    OWED_WRITTEN = auto()  # its rows are kept, and not yet in their place
    OWED_AFTER = auto()  # it is owed, the flow does not know
    OWED_PAID = auto()  # it is written at last, and still counts as owed

    # These give format and name of the table.
    LAKE_COMPACTING = auto()  # small files are written together, and no commit names what came of it
    LAKE_COMPACTED = auto()  # one does, and nobody knows yet

    # These give the name of the view.
    DEPLOY_SWITCHING = auto()  # the old one has ended, and is still the view
    DEPLOY_SWITCHED = auto()  # the new one is the view, and neither its changelog nor the store has its rows

    def reached(self, who: str) -> None:
        if ON:
            _stop(self.name, who)


def passing(rows: Iterator[T], point: FailPoint, who: str) -> Iterator[T]:
    """Rows, with the point after the first of them."""
    for row in rows:
        yield row
        point.reached(who)


def _stop(name: str, who: str) -> None:
    folder = Path(os.environ[VARIABLE])
    armed, reached, draft = folder / name, folder / f"{name}.reached", folder / f"{name}.new"
    try:
        awaited, before = armed.read_text(encoding="utf-8").splitlines()
        if awaited not in who:
            return
        _passed[name] += 1
        if _passed[name] <= int(before):
            return
        armed.rename(folder / f"{name}.taken")
    except FileNotFoundError:  # not armed, or another was quicker
        return
    draft.write_text(f"{os.getpid()}\n{who}", encoding="utf-8")
    draft.rename(reached)
    while reached.exists():
        time.sleep(_LOOK_S)
    del _passed[name]
