"""A lake table that is appended to as a topic: the rows that each version adds become records, one after the other.

What holds: row N of all that were written is in partition N modulo their number, at offset N divided by it. So the ends
of the partitions say exactly which rows are there, whenever somebody was cut off, and nobody writes one twice or leaves
one out. Each record says in a header with which version its row came, and which number the first row of that has.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millrace.errors import LakeFollowingGap, LakeNotAppended, LakeNotPlain, Where
from millrace.lakehouse.answers import values
from millrace.lakehouse.footers import footers
from millrace.lakehouse.table import DataFile, LakeTable, Version

if TYPE_CHECKING:
    from millrace.log import Log

HEADER = "millrace-lake"
_WHOLE = "whole"
_ROWS_AT_ONCE = 8192
# As Delta's own clients call what changes no row.
_SAME = ("optimize", "replace")


@dataclass(frozen=True)
class Mark:
    """What a record says: the version that brought its row, the number of that version's first row among all, how many
    rows came with it, and whether these are all rows of the version: the one that a topic begins with."""

    version: int
    first: int
    rows: int
    whole: bool = False

    def text(self) -> str:
        return f"{self.version} {self.first} {self.rows}" + (f" {_WHOLE}" if self.whole else "")

    @classmethod
    def of(cls, text: str) -> Mark:
        version, first, rows, *more = text.split()
        return cls(int(version), int(first), int(rows), more == [_WHOLE])


class Following:
    """Of one table into one topic, which nobody else writes; `columns` of the rows are taken."""

    def __init__(
        self, log: Log, topic: str, columns: Sequence[str], where: Where | None = None, ended: Callable[[], bool] = bool
    ) -> None:
        self._log, self._topic, self._columns = log, topic, columns
        self._where, self._ended = where, ended
        self._done: int | None = None

    def catch_up(self, table: LakeTable) -> int:
        """Writes what the table's versions have and the topic has not; gives how many records. The table is loaded."""
        if self._done == table.version:
            return 0
        versions = table.versions()
        before, rest = self._left(table, versions)
        wrote = 0
        for version in rest:
            wrote += self._write(table, version, before)
            if self._ended():
                return wrote
            before = version
        self._done = table.version
        return wrote

    def _left(self, table: LakeTable, versions: Sequence[Version]) -> tuple[Version | None, Sequence[Version]]:
        """The versions that the topic has not, or not all of, and the one before them; without any, all rows of the
        first are meant."""
        if (mark := self._last()) is None:
            return None, versions[-1:]
        places = {each.number: place for place, each in enumerate(versions)}
        if (place := places.get(mark.version)) is not None:
            if self._total() >= mark.first + mark.rows:
                return versions[place], versions[place + 1 :]
            if mark.whole or place:
                return None if mark.whole else versions[place - 1], versions[place:]
        elif versions and self._has_all(table, versions[0], mark):
            return versions[0], versions[1:]
        known = f"{versions[0].number} to {versions[-1].number}" if versions else "none"
        facts = {"table": table.name, "topic": self._topic, "version": mark.version, "known": known}
        raise LakeFollowingGap(**facts, where=self._where)

    def _has_all(self, table: LakeTable, oldest: Version, mark: Mark) -> bool:
        """Whether the topic has every row of a version that came after the last one it knows: since then files were
        only written together, and the versions before let go. Rows are added and never taken away, so to count them is
        enough, but for tables that others write, that have a key, or that were built again."""
        total = self._total()
        if oldest.number < mark.version or total < mark.first + mark.rows or not table.plain(oldest):
            return False
        if table.note() is None or table.key or (table.rebuilt is not None and table.rebuilt >= mark.version):
            return False
        return total == sum(each.rows for each in footers(table.place, [each.path for each in table.files(oldest)]))

    def _ends(self) -> dict[int, int]:
        return {number: end for number, (_, end) in self._log.topics.offsets(self._topic).items()}

    def _total(self) -> int:
        return sum(self._ends().values())

    def _last(self) -> Mark | None:
        """That of the newest record."""
        found = []
        for number, end in self._ends().items():
            for record in self._log.read(self._topic, end - 1, partition=number, limit=1) if end else ():
                found += [Mark.of((value or b"").decode()) for name, value in record.headers if name == HEADER]
        return max(found, key=lambda each: each.version, default=None)

    def _added(self, table: LakeTable, before: Version | None, version: Version) -> list[DataFile]:
        if not table.plain(version):
            raise LakeNotPlain(table=table.name, where=self._where)
        now = {each.path: each for each in table.files(version)}
        old = {} if before is None else {each.path: each for each in table.files(before)}
        if gone := old.keys() - now.keys():
            same = version.operation in _SAME or (version.note is not None and version.note.own is not None)
            if same and sum(old[path].rows for path in gone) == sum(now[path].rows for path in now.keys() - old.keys()):
                return []
            raise LakeNotAppended(table=table.name, version=version.number, where=self._where)
        return [now[path] for path in sorted(now.keys() - old.keys())]

    def _write(self, table: LakeTable, version: Version, before: Version | None) -> int:
        files = self._added(table, before, version)
        mark = self._last()
        if mark is None or mark.version != version.number:
            # Of files that others wrote, commits need not say how many rows they have.
            rows = sum(each.rows for each in footers(table.place, [each.path for each in files]))
            mark = Mark(version.number, self._total(), rows, before is None)
        ends, number, wrote = self._ends(), mark.first, 0
        with self._log.writer(self._topic) as writer:
            for row in self._rows(table, files):
                offset, partition = divmod(number, len(ends))
                if offset >= ends[partition]:
                    writer.write(row, headers={HEADER: mark.text()}, partition=partition)
                    wrote += 1
                number += 1
                if self._ended():
                    break
        return wrote

    def _rows(self, table: LakeTable, files: Sequence[DataFile]) -> Iterator[dict[str, Any]]:
        from pyarrow import parquet

        place = table.place
        for each in files:
            with parquet.ParquetFile(place.arrow(each.path), filesystem=place.filesystem) as file:
                names = [name for name in self._columns if name in file.schema_arrow.names]
                for batch in file.iter_batches(_ROWS_AT_ONCE, columns=names):
                    columns = [_values(column) for column in batch.columns]
                    for row in zip(*columns, strict=True) if names else [()] * batch.num_rows:
                        told = zip(batch.schema.names, row, strict=True)
                        yield {name: _plain(value, name in table.emptied) for name, value in told}


def _values(column: Any) -> list[Any]:
    from pyarrow import types

    if types.is_nested(column.type):
        return list(column.to_pylist(maps_as_pydicts="strict"))
    return values(column)


def _plain(value: Any, emptied: bool = False) -> Any:
    """As the parser of a topic's records takes it. Numbers that JSON has none for become texts, which it refuses: so
    these rows are among the dead letters, and not lost."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if emptied and value == "" else value
