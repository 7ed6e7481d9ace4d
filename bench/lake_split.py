"""Where the time of an epoch of a lake table goes: each part without the parts that it waits for."""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from pyspark.sql.readwriter import DataFrameWriter

from millrace.lakehouse import LakeTable
from millrace.lakehouse.delta import Delta
from millrace.lakehouse.iceberg import Iceberg
from millrace.lakehouse.place import Disk
from millrace.sinks.lake_writer import LakeWriter
from millrace.sinks.ledger import FileLedger

_PARTS: tuple[tuple[str, Any, str], ...] = (
    ("load", Delta, "load"),
    ("load", Iceberg, "load"),
    ("spark", DataFrameWriter, "parquet"),
    ("footers", LakeTable, "footers"),
    ("commit", Delta, "commit"),
    ("commit", Iceberg, "commit"),
    ("ledger", FileLedger, "write"),
    ("look", LakeWriter, "_look"),
    ("rest", LakeWriter, "write"),
)


class Split:
    def __init__(self) -> None:
        self._rounds: list[dict[str, float]] = []
        # Of each part that is under way, what the parts within it took.
        self._within: list[float] = []

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """One epoch, by one thread."""
        self._rounds.append(defaultdict(float))
        with contextlib.ExitStack() as patched:
            for part, of, name in _PARTS:
                patched.enter_context(_replaced(of, name, lambda call, part=part: self._timed(part, call)))
            patched.enter_context(_replaced(Disk, "settling", self._settled))
            yield

    def medians_ms(self) -> dict[str, float]:
        """Without the first round, which warms up."""
        rounds = self._rounds[1:] or self._rounds
        parts = dict.fromkeys(part for each in rounds for part in each)
        return {part: round(1000 * statistics.median(each.get(part, 0.0) for each in rounds)) for part in parts}

    @contextlib.contextmanager
    def _part(self, part: str) -> Iterator[None]:
        began = monotonic()
        self._within.append(0.0)
        try:
            yield
        finally:
            spent = monotonic() - began
            self._rounds[-1][part] += spent - self._within.pop()
            if self._within:
                self._within[-1] += spent

    def _timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*words: Any, **named: Any) -> Any:
            with self._part(part):
                return call(*words, **named)

        return timed

    def _settled(self, settling: Callable[..., Any]) -> Callable[..., Any]:
        """What is waited for at its end."""

        @contextlib.contextmanager
        def settled(*words: Any) -> Iterator[None]:
            found = settling(*words)
            found.__enter__()
            yield
            with self._part("fsync"):
                found.__exit__(None, None, None)

        return settled


@contextlib.contextmanager
def _replaced(of: Any, name: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    before = getattr(of, name)
    setattr(of, name, by(before))
    try:
        yield
    finally:
        setattr(of, name, before)
