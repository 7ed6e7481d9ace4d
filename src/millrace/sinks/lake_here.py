"""An epoch of few keys merged by the driver itself, with Arrow: what Spark needs for its jobs is most of the time where
few files are touched.

What holds: it gives what `lake_merging` would give, from the same files; and what is held in memory has a bound: the
rows of the epoch, and of one file for each thread, or where files are divided anew, these.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from millrace.lakehouse import DataFile
from millrace.lakehouse.compacting import fitted, written_as
from millrace.lakehouse.table import DATA
from millrace.sinks import lake_merging as merging
from millrace.sinks.contract import DIFF, Feed
from millrace.sinks.lake_files import shaped
from millrace.sinks.lake_merging import Merging, Span

if TYPE_CHECKING:
    import pyarrow

# So many keys, so many bytes of files, and of files that are sorted together.
KEYS_HERE = 200_000
BYTES_HERE = 256 * 1024 * 1024
SORTED_HERE = 64 * 1024 * 1024
_AT_ONCE = 2
_ROWS_A_GROUP = 122_880
# Of these a value is the same to Arrow and to Spark.
_EXACT = (
    BooleanType,
    ByteType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
_NESTED = (ArrayType, MapType, StructType)


class Here:
    """Of one writer."""

    def __init__(self, merger: Merging) -> None:
        self.table, self.key, self._merger = merger.table, list(merger.key), merger
        self._last: int | None = None
        self._large = False
        self._unseen = 0

    @property
    def likely(self) -> bool:
        """Whether the next epoch has few keys, which little of the table may hold, if it is like the last one: then
        nobody has to look at them first."""
        return self._last is not None and self._last <= KEYS_HERE // 4 and not self._large

    def merged(
        self,
        rows: DataFrame,
        feed: Feed,
        columns: StructType,
        folder: str,
        told: tuple[int, Sequence[Span]] | None = None,
    ) -> tuple[list[str], list[str]] | None:
        """The files that were written, and those that they replace; None if it is more than can be done here. `told` is
        how many keys there are and between which values, where somebody has looked."""
        kinds = {each.name: each.dataType for each in columns.fields}
        if told is not None:
            self._last = told[0]
        nested = any(isinstance(kind, _NESTED) for kind in kinds.values())
        if nested or (told or (0,))[0] > KEYS_HERE or not all(type(kinds[name]) in _EXACT for name in self.key):
            return None
        files = self.table.files()
        if told is not None and self._too_much(files, told[1]):
            return None  # before anything is computed
        asked = shaped(rows, feed, columns, DIFF)
        # Where nobody has counted, one more than can be done here says that it is too much, whatever else there is.
        epoch = (asked if told is not None else asked.limit(KEYS_HERE + 1)).toArrow()
        keys, self._last = epoch.select(self.key), epoch.num_rows
        if not self._last:
            return [], []
        if self._last > KEYS_HERE:
            return None
        spans = spans_of(keys) if told is None else told[1]
        if told is None and self._too_much(files, spans):
            return None
        within = [each for each in files if merging.overlaps(each, self.key, spans)]
        if len(self.key) > 1 and any(column.null_count for column in keys.columns):
            return None  # to a join of Arrow's, null is not null
        if len(self.key) == 1 and spans[0] is not None:
            known = sorted(keys.column(0).to_pylist())
            within = [each for each in within if merging.holds(each, self.key[0], known)]
        came = fitted(epoch.filter(epoch.column(DIFF).to_numpy() > 0), self.table.arrow())
        return self._written(came, keys, files, within, folder)

    def _written(
        self,
        came: pyarrow.Table,
        keys: pyarrow.Table,
        files: Sequence[DataFile],
        within: Sequence[DataFile],
        folder: str,
    ) -> tuple[list[str], list[str]] | None:
        old = self._touched(within, keys)
        taken, anew = self._merger.taken(old, files)
        if anew and merging.bytes_of(taken) > SORTED_HERE:
            return None
        place = f"{DATA}/{folder}"
        self.table.place.make(place)
        large = [] if anew else [each for each in taken if each.size_bytes >= merging.SMALL_BYTES]
        paths = [f"{place}/{number}.parquet" for number in range(len(large))]
        alone = dict(zip((each.path for each in large), paths, strict=True))

        def rest(file: DataFile) -> pyarrow.Table | None:
            left = self._rest(file, keys)
            if file.path not in alone:
                return left
            if left.num_rows:
                self._write(left, alone[file.path])
            else:
                paths.remove(alone[file.path])
            return None

        import pyarrow

        together = [each for each in self._each(taken, rest) if each is not None]
        whole = pyarrow.concat_tables([came, *together])
        paths += self._divided(whole, f"{place}/new", merging.bytes_of(taken) - merging.bytes_of(large))
        self.table.place.begin_settling(paths)
        return paths, [each.path for each in taken]

    def _divided(self, rows: pyarrow.Table, path: str, bytes_: int) -> list[str]:
        """Writes rows sorted by their key: of each value of the columns that divide the table, files of some size."""
        paths: list[str] = []
        for part in self._parts(rows):
            ordered = part.sort_by([(name, "ascending") for name in self.key])
            share = bytes_ * part.num_rows // max(1, rows.num_rows)
            count = max(1, -(-part.num_rows // merging.ROWS_A_FILE), -(-share // merging.BYTES_A_FILE))
            length = -(-part.num_rows // count)
            for first in range(0, part.num_rows, length):
                paths.append(f"{path}{len(paths)}.parquet")
                self._write(ordered.slice(first, length), paths[-1])
        return paths

    def _parts(self, rows: pyarrow.Table) -> list[pyarrow.Table]:
        names = list(self.table.partition_by)
        if not names or not rows.num_rows:
            return [rows] if rows.num_rows else []
        places: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for place, values in enumerate(zip(*(rows.column(name).to_pylist() for name in names), strict=True)):
            places[values].append(place)
        return [rows.take(each) for each in places.values()]

    def _each(self, files: Sequence[DataFile], act: Callable[[DataFile], Any]) -> list[Any]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(act, files))

    def _too_much(self, files: Sequence[DataFile], spans: Sequence[Span]) -> bool:
        within = [each for each in files if merging.overlaps(each, self.key, spans)]
        self._large = merging.bytes_of(within) > BYTES_HERE
        return self._large

    def _touched(self, within: Sequence[DataFile], keys: pyarrow.Table) -> Sequence[DataFile]:
        """Those that hold one of the keys; all of them for some epochs after a look that found nearly all."""
        if self._unseen:
            self._unseen -= 1
            return within
        found = self._each(within, lambda one: self._any(one, keys))
        old = [each for each, held in zip(within, found, strict=True) if held]
        if within and merging.bytes_of(old) > merging.NEARLY_ALL * merging.bytes_of(within):
            self._unseen = merging.UNSEEN
        return old

    def _any(self, file: DataFile, keys: pyarrow.Table) -> bool:
        """Whether one of the keys is in a file, by its key's columns alone."""
        return bool(held(self._read(file, self.key), keys).any())

    def _rest(self, file: DataFile, keys: pyarrow.Table) -> pyarrow.Table:
        whole = self._read(file)
        return whole.filter(~held(whole.select(self.key), keys))

    def _read(self, file: DataFile, columns: Sequence[str] | None = None) -> pyarrow.Table:
        import pyarrow
        from pyarrow import parquet

        place, schema = self.table.place, self.table.arrow()
        wanted = schema if columns is None else pyarrow.schema([schema.field(name) for name in columns])
        with parquet.ParquetFile(place.arrow(file.path), filesystem=place.filesystem) as opened:
            names = [name for name in wanted.names if name in opened.schema_arrow.names]
            return fitted(opened.read(columns=names), wanted)

    def _write(self, rows: pyarrow.Table, path: str) -> None:
        from pyarrow import parquet

        place, where = self.table.place, self.table.place.arrow(path)
        options = {"filesystem": place.filesystem, **written_as(rows)}
        parquet.write_table(rows, where, row_group_size=_ROWS_A_GROUP, **options)


def spans_of(keys: pyarrow.Table) -> list[Span]:
    """Between which values the keys are; None where nothing can be said."""
    import pyarrow.compute as compute

    found: list[Span] = []
    for column in keys.columns:
        told: dict[str, Any] = {"min": None}
        with contextlib.suppress(OverflowError, ValueError):  # days and moments that Python does not know
            told = compute.min_max(column).as_py() if not column.null_count else told
        found.append((told["min"], told["max"]) if type(told["min"]) in merging.ORDERED else None)
    return found


def held(rows: pyarrow.Table, keys: pyarrow.Table) -> Any:
    """Which of the rows, of a key's columns alone, have one of the keys: an array of booleans."""
    import numpy
    import pyarrow
    import pyarrow.compute as compute

    if len(keys.column_names) == 1:
        known = keys.column(0).cast(rows.schema.field(0).type).combine_chunks()
        return compute.is_in(rows.column(0), value_set=known).to_numpy()
    found = numpy.zeros(rows.num_rows, dtype=bool)
    numbered = rows.append_column("__row", pyarrow.array(numpy.arange(rows.num_rows)))
    joined = numbered.join(keys.cast(rows.schema), keys.column_names, join_type="left semi")
    found[joined.column("__row").to_numpy()] = True
    return found
