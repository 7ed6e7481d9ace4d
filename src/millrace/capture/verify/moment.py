"""One moment of the database, and which records of a topic belong to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_XIDS = 2**32


@dataclass(frozen=True)
class Moment:
    """A snapshot of PostgreSQL's: it sees the transactions below `xmax` that were not `running`.

    Commit order is not enough: a transaction is in the replication log a moment before others see it, with a
    synchronous standby a long one. So records are judged by the number of their transaction, of which they have the
    lower 32 bits. `before` and `lsn` are positions of the log from just before and just after the snapshot.
    """

    xmax: int
    running: frozenset[int]
    before: int
    lsn: int

    @classmethod
    def of(cls, snapshot: str, before: int, lsn: int) -> Moment:
        """From `pg_current_snapshot()`: "xmin:xmax:one,two,…"."""
        _, xmax, running = snapshot.split(":")
        return cls(int(xmax), frozenset(int(xid) % _XIDS for xid in running.split(",") if xid), before, lsn)

    @property
    def position(self) -> str:
        return f"{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"

    def holds(self, op: str, source: Mapping[str, Any]) -> bool:
        """Whether a change of a key, none of whose earlier ones came after this moment, came before it.

        That is as far as it goes for rows that a snapshot of the capture's read: they hold what was committed at their
        place in the log. For others it is exact. A record without an origin (somebody wrote it by hand) counts.
        """
        if op == "r":
            return _place(source) <= self.lsn
        xid = source.get("txId")
        if xid is None:
            return True
        if xid % _XIDS in self.running:
            return False
        # Numbers come again after 2^32 transactions; what was logged before the snapshot is not of a later one.
        ahead = (xid - self.xmax) % _XIDS < _XIDS // 2
        return not ahead or (source.get("lsn") or 0) < self.before


def _place(source: Mapping[str, Any]) -> int:
    """Where in the log a row of a snapshot belongs; those of an incremental one just tell the last commit before."""
    if source.get("lsn") is not None:
        return int(source["lsn"])
    places = json.loads(source.get("sequence") or "[]")
    return int(places[0]) if places and places[0] is not None else 0
