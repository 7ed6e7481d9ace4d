"""Which files of a lake table an epoch of keys replaces, and what takes their place.

Files lie side by side by key (clustered), so that few of them may hold a key, and readers pass over the others. A file
that loses rows is written again by itself, in its order, without a shuffle; what is new goes to a small file with the
rest of other small ones. When too many files lie over each other, or are small, they are divided anew by the key.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from millrace.kernel.calling import quoted
from millrace.lakehouse import DataFile, LakeTable
from millrace.lakehouse.compacting import KEYED_SMALL_BYTES, KEYED_TARGET_BYTES
from millrace.sinks.lake import PART
from millrace.sinks.lake_files import read

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

    from millrace.lakehouse.types import Growth

# Files that are made together have so many bytes, or rows where nobody knows their bytes; with cores to spare, they are
# smaller.
BYTES_A_FILE = KEYED_TARGET_BYTES
ROWS_A_FILE = 1_000_000
_BYTES_A_CORE = 8 * 1024 * 1024
ROWS_A_CORE = 50_000
# A file below this size is small. So many may be; and so many files may hold the same key by their least and greatest.
SMALL_BYTES = KEYED_SMALL_BYTES
MOST_SMALL = 8
MOST_DEEP = 5
# So many keys are given to every executor whole, and so many to the driver.
BROADCAST_KEYS = 500_000
_KEYS_HERE = 20_000
# Where so much of what was looked through had to be written again, so many epochs do not look.
NEARLY_ALL = 0.8
UNSEEN = 9
_KEY = "__key"
# Values of which the order is the same in files, in Spark and in Python.
ORDERED = (int, str, date, Decimal)
Span = tuple[Any, Any] | None


class Merging:
    """Of one writer: it remembers whether a look into the files was worth it."""

    def __init__(self, table: LakeTable, key: Sequence[str], *, tidies: bool = True) -> None:
        self.table, self.key, self._tidies = table, key, tidies
        self._unseen = 0

    def keys_of(self, rows: DataFrame) -> DataFrame:
        return rows.select(*(F.col(quoted(name)).alias(f"{_KEY}{n}") for n, name in enumerate(self.key)))

    def told(self, rows: DataFrame) -> tuple[int, list[Span]]:
        """How many keys an epoch has, and between which values they are; None where nothing can be said."""
        return spans_of(self.keys_of(rows))

    def of(self, rows: DataFrame, grown: Growth, count: int, spans: Sequence[Span], *, everything: bool) -> Merge:
        """The merge of an epoch's rows, which are kept, into the table as it is `grown`, all of whose files may have to
        be written again."""
        keys = self.keys_of(rows)
        files, merge = self.table.files(), Merge(self, rows, keys, grown, count)
        if everything:
            merge.old, merge.divides = files, True
        elif count:
            merge.old = self._touched(merge, files, spans)
            merge.old, merge.divides = self.taken(merge.old, files)
            merge.divides |= count >= ROWS_A_CORE
        return merge

    def taken(self, old: Sequence[DataFile], files: Sequence[DataFile]) -> tuple[Sequence[DataFile], bool]:
        """Of files that hold a key, those that are written again: with small ones where these are too many, and then
        divided anew."""
        small = [each for each in files if each.size_bytes < SMALL_BYTES]
        deep = _depth(old, self.key[0], self.table.partition_by) > MOST_DEEP
        if not self._tidies or not (deep or len(small) > MOST_SMALL):
            return old, False
        paths = {each.path for each in (*old, *small)}
        return [each for each in files if each.path in paths], True

    def _touched(self, merge: Merge, files: Sequence[DataFile], spans: Sequence[Span]) -> list[DataFile]:
        """The files that have to be written again."""
        within = [each for each in files if overlaps(each, self.key, spans)]
        if bytes_of(within) > SMALL_BYTES and len(self.key) == 1 and spans[0] is not None and merge.count <= _KEYS_HERE:
            known = sorted(value for (value,) in merge.keys.collect())
            within = [each for each in within if holds(each, self.key[0], known)]
        if bytes_of(within) <= SMALL_BYTES:  # to look would take as long
            return within
        if self._unseen:
            self._unseen -= 1
            return within
        held = merge.read(within, place=True)
        found = held.join(merge.shared_keys(), merge.same(held), "left_semi").select(PART).distinct().collect()
        touched = {self._relative(str(place)) for (place,) in found}
        old = [each for each in within if each.path in touched]
        self._unseen = UNSEEN if bytes_of(old) > NEARLY_ALL * bytes_of(within) else 0
        return old

    def _relative(self, place: str) -> str:
        return self.table.place.relative(unquote(place))


@dataclass
class Merge:
    """Of one epoch: `count` keys, the files that are replaced, and whether all that is written is divided anew."""

    merging: Merging
    rows: DataFrame
    keys: DataFrame
    grown: Growth
    count: int
    old: Sequence[DataFile] = ()
    divides: bool = False

    def frame(self, new: DataFrame) -> tuple[DataFrame, Sequence[str]]:
        """What is to be written, and by which columns it is to be sorted. `new` are the rows that came."""
        if not self.divides:
            small = [each for each in self.old if each.size_bytes < SMALL_BYTES]
            large = [each for each in self.old if each.size_bytes >= SMALL_BYTES]
            together = new.unionByName(self._rest(small)) if small else new
            together = together.coalesce(1)
            return (together.unionByName(self._rest(large)) if large else together), ()
        whole, key = new.unionByName(self._rest(self.old)) if self.old else new, self.merging.key
        parts = parted(whole, self.count, bytes_of(self.old))
        if parts == 1:
            return whole.coalesce(1), key
        by = dict.fromkeys((*self.merging.table.partition_by, *key))
        return whole.repartitionByRange(parts, *(F.col(quoted(name)) for name in by)), key

    def _rest(self, files: Sequence[DataFile]) -> DataFrame:
        """Their rows without the keys of the epoch."""
        held = self.read(files)
        return held.join(self.shared_keys(), self.same(held), "left_anti")

    def shared_keys(self) -> DataFrame:
        return F.broadcast(self.keys) if self.count <= BROADCAST_KEYS else self.keys

    def same(self, held: DataFrame) -> Any:
        names = enumerate(self.merging.key)
        first, *more = [held[quoted(name)].eqNullSafe(self.keys[f"{_KEY}{n}"]) for n, name in names]
        for each in more:
            first = first & each
        return first

    def read(self, files: Sequence[DataFile], *, place: bool = False) -> DataFrame:
        """Rows as they are after the table has grown; with `place` their keys, and the file of each."""
        key, grown = self.merging.key if place else None, self.grown
        return read(self.rows, self.merging.table, files, grown.columns, key, grown.renamed)


def parted(frame: DataFrame, count: int, bytes_: int) -> int:
    """Into how many files rows go: `count` that came, and those of so many bytes of files."""
    least = max(1, math.ceil(count / ROWS_A_FILE), math.ceil(bytes_ / BYTES_A_FILE))
    cores = frame.sparkSession.sparkContext.defaultParallelism
    return max(least, min(cores, max(math.ceil(count / ROWS_A_CORE), bytes_ // _BYTES_A_CORE)))


def spans_of(keys: DataFrame) -> tuple[int, list[Span]]:
    """How many keys there are, and between which values; None where nothing can be said."""
    names = keys.columns
    asked = [F.count(F.lit(1))]
    for field in keys.schema.fields:
        asked += [*_ends_of(field), F.count(field.name)]
    (count, *told) = keys.agg(*asked).collect()[0]
    spans: list[Span] = []
    for place in range(len(names)):
        low, high, known = told[3 * place : 3 * place + 3]
        ordered = type(low) in ORDERED and known == count
        spans.append((low, high) if ordered else None)
    return count, spans


def _ends_of(field: StructField) -> tuple[Column, Column]:
    """The least and the greatest; null where Python does not know one of them: days before the year 1 and after 9999,
    and of moments in any case, for they are not asked for."""
    if isinstance(field.dataType, TimestampType | TimestampNTZType):
        return F.lit(None), F.lit(None)
    low, high = F.min(field.name), F.max(field.name)
    if not isinstance(field.dataType, DateType):
        return low, high
    known = (low >= F.expr("DATE '0001-01-01'")) & (high <= F.expr("DATE '9999-12-31'"))
    return F.when(known, low), F.when(known, high)


def bytes_of(files: Sequence[DataFile]) -> int:
    return sum(each.size_bytes for each in files)


def overlaps(file: DataFile, key: Sequence[str], spans: Sequence[Span]) -> bool:
    """Whether a file may hold one of the keys."""
    for name, span in zip(key, spans, strict=True):
        if span is None or name not in file.low or name not in file.high:
            continue
        low, high = span
        if isinstance(file.low[name], type(low)) and (file.high[name] < low or file.low[name] > high):
            return False
    return True


def holds(file: DataFile, name: str, known: Sequence[Any]) -> bool:
    """Whether one of these keys lies between a file's least and greatest."""
    if name not in file.low or name not in file.high or not isinstance(file.low[name], type(known[0])):
        return True
    place = bisect_left(known, file.low[name])
    return place < len(known) and bool(known[place] <= file.high[name])


def _depth(files: Sequence[DataFile], name: str, partition_by: Sequence[str]) -> int:
    """The greatest number of files, of the same part of the table, that may all hold one key."""
    alike: dict[tuple[str, ...], list[tuple[Any, Any]]] = defaultdict(list)
    for each in files:
        if name in each.low and name in each.high and type(each.low[name]) in ORDERED:
            part = tuple(repr(each.low.get(column)) for column in partition_by)
            alike[part].append((each.low[name], each.high[name]))
    deep = 0
    for spans in alike.values():
        lows, highs = sorted(low for low, _ in spans), sorted(high for _, high in spans)
        # Of those that begin at or before a value, those are over that ended before it.
        deep = max([deep, *(place + 1 - bisect_left(highs, low) for place, low in enumerate(lows))])
    return deep
