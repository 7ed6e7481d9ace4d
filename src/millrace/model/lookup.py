"""Events with the row of a table that has their key, epoch by epoch.

- A row is known by the values of its key, however its record's key is spelled; what a record does to it is what
  latest-by-key says.
- All of an epoch's records count before any of its events: each event has the row as the epoch leaves it.
- An event with a null in its key has no row. Without a row it comes out with none or, of an inner lookup, not at all.
- Events leave nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from millrace.model.latest import Change, LatestByKey, Signed


class Event(NamedTuple):
    key: tuple[Any, ...]
    name: Any


class Found(NamedTuple):
    """An event and the text of its row."""

    event: Event
    row: str | None


class Lookup:
    def __init__(self, key: Sequence[str], inner: bool = False) -> None:
        self.key, self.inner = key, inner
        self.latest = LatestByKey(net=True)

    def epoch(self, changes: Iterable[Change], events: Iterable[Event]) -> tuple[list[Found], list[Signed]]:
        """Events with their rows, and the records that could not be understood."""
        signed = self.latest.apply([change._replace(topic="", key=self._spelled(change.key)) for change in changes])
        rows = {key: held.row for (_, key), held in self.latest.state.items()}
        found = [Found(event, None if None in event.key else rows.get(json.dumps(event.key))) for event in events]
        return [each for each in found if each.row or not self.inner], [row for row in signed if row.error]

    def _spelled(self, key: str | None) -> str | None:
        if key is None:
            return None
        held = json.loads(key)
        values = held.get("payload", held)
        return json.dumps([values[part] for part in self.key])
