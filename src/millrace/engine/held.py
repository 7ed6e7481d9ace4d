"""An epoch's rows while sinks write them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from pyspark.sql import DataFrame


class Held:
    """An epoch's rows, computed once and kept until the last who uses them lets them go: a sink that hangs may still
    read them when the flow has gone on."""

    def __init__(self, rows: DataFrame) -> None:
        self.rows, self._users, self._guard = rows.persist(), 1, threading.Lock()
        try:
            rows.count()
        except BaseException:
            rows.unpersist()
            raise

    def take(self) -> None:
        with self._guard:
            self._users += 1

    def let_go(self) -> None:
        with self._guard:
            self._users -= 1
            if self._users:
                return
        self.rows.unpersist()


@contextlib.contextmanager
def holding(rows: DataFrame) -> Iterator[Held]:
    held = Held(rows)
    try:
        yield held
    finally:
        held.let_go()
