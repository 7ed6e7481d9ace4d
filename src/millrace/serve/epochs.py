"""What changed in a view with an epoch, as a message for those who watch it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.serve import resume
from millrace.serve.fanout import Batch
from millrace.serve.reading import Reached, exact


@dataclass(frozen=True)
class Filter:
    """Rows whose columns have these values, and of which these are null. `by_key`: its columns are all of the key, so
    that no change lets a row come into it or leave it."""

    values: tuple[tuple[str, Any], ...] = ()
    null: tuple[str, ...] = ()
    by_key: bool = True

    def __bool__(self) -> bool:
        return bool(self.values or self.null)

    def fits(self, row: Mapping[str, Any]) -> bool:
        return all(row.get(name) == value for name, value in self.values) and all(
            row.get(name) is None for name in self.null
        )


@dataclass(frozen=True)
class Change:
    """Of one key: its row, or None for one that is gone; both as JSON, and where it stands in the changelog."""

    partition: int
    offset: int
    key: str
    row: str | None


class Epoch(Batch):
    """Changes of a view up to a position that it reached."""

    def __init__(self, reached: Reached, before: Mapping[int, int], changes: tuple[Change, ...]) -> None:
        size_bytes = sum(len(each.key) + len(each.row or "") + 100 for each in changes)
        super().__init__(before, reached.ends, len(changes), size_bytes)
        self.reached, self.changes = reached, changes
        self._parsed: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] | None = None

    def text(self, wanted: Filter, ends: Mapping[int, int]) -> tuple[str, bool]:
        rows, gone = self.last(wanted, ends)
        after = resume.after(self.reached.topic, self.reached.ends, wanted)
        told = f'"rows":[{",".join(rows)}],"gone":[{",".join(gone)}],"after":"{after}"'
        return f'{{"type":"changes","position":{json.dumps(self.reached.told())},{told}}}', bool(rows or gone)

    def last(self, wanted: Filter, ends: Mapping[int, int]) -> tuple[list[str], list[str]]:
        """Of each key the last: rows, and keys of those that are gone."""
        last = {change.key: change.row for change in self._wanted(wanted, ends)}
        return [row for row in last.values() if row is not None], [key for key, row in last.items() if row is None]

    def _wanted(self, wanted: Filter, ends: Mapping[int, int]) -> Iterator[Change]:
        for number, change in enumerate(self.changes):
            if change.offset < ends.get(change.partition, 0):
                continue
            if not wanted:
                yield change
                continue
            key, row = self._values[number]
            if wanted.by_key:
                if wanted.fits(key):
                    yield change
            elif row is not None and wanted.fits(row):
                yield change
            else:  # it may have been among the wanted rows before
                yield Change(change.partition, change.offset, change.key, None)

    @property
    def _values(self) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        if self._parsed is None:
            self._parsed = [(exact(each.key), exact(each.row)) for each in self.changes]
        return self._parsed
