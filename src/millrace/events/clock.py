"""Ticks: events that say that nothing happened, so that time goes on for whoever has no other clock than the events.

The deadlines of a flow pass by the times of the events it reads. In a store that has gone quiet the last ones would
never pass; and by the time of day they would pass too early whenever the capture is behind. A tick stands in the
store's own order: what was written before it is read before it, and a replay has the same time again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from millrace import durations
from millrace.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from millrace.events.store import Store

# Some 1,400 a day in a store in which nothing happens, and none where something does.
QUIET = "1 minute"


@contextlib.contextmanager
def ticking(store: Store, quiet: str | timedelta) -> Iterator[None]:
    ended, look_s = threading.Event(), durations.parse(quiet).total_seconds() / 2

    def work() -> None:
        while not ended.wait(look_s):
            with contextlib.suppress(DatabaseUnreachable):  # a database that is started anew finds its clock going
                store.tick(quiet)

    thread = threading.Thread(target=work, name="millrace-ticks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
