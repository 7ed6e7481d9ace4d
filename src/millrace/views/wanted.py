"""Somebody waits for a view to be true of a position: how he says so, through the view store, to the run that keeps it.

PostgreSQL's NOTIFY: nothing is written, and nobody has to listen. Without a run that does, the position comes with the
capture's next heartbeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

CHANNEL = "millrace_wanted"
NOTIFY = f"SELECT pg_notify('{CHANNEL}', %s)"
# A run that was just starting to listen hears it then.
AGAIN_S = 1.0


@dataclass(frozen=True)
class Wanted:
    """The view `view` in the store's `schema`, true of everything that was committed up to `lsn`."""

    schema: str
    view: str
    lsn: int

    def told(self) -> str:
        return json.dumps([self.schema, self.view, self.lsn])


def heard(payloads: Iterator[str]) -> Iterator[Wanted]:
    """What is no such thing was said by somebody else."""
    for payload in payloads:
        try:
            schema, view, lsn = json.loads(payload)
        except (ValueError, TypeError):
            continue
        if isinstance(schema, str) and isinstance(view, str) and isinstance(lsn, int):
            yield Wanted(schema, view, lsn)
