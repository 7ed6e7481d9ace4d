"""Small files written together into larger ones, in one commit that changes no row. Readers of older versions keep the
old files; a flow that writes meanwhile is not disturbed: who commits second begins again."""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from millrace.errors import LakeConflict
from millrace.failpoint import FailPoint
from millrace.lakehouse.footers import footers, only_value
from millrace.lakehouse.retention import LEFT_S
from millrace.lakehouse.table import DATA, Committed, DataFile, LakeTable

# What is smaller than the first is written together, up to about the second.
SMALL_BYTES = 32 * 1024 * 1024
TARGET_BYTES = 128 * 1024 * 1024
# Of tables with a key, where each change of a row writes its file again.
KEYED_SMALL_BYTES = 4 * 1024 * 1024
KEYED_TARGET_BYTES = 32 * 1024 * 1024
FOLDER = "compacted"
TRIES = 5
# Who writes only files of about the same size together waits until there are so many.
AT_ONCE_FILES = 8
_ROWS_A_GROUP = 128 * 1024
# So many rows are sorted together: a reader then passes over most groups of them.
_SORTED_ROWS = 8 * _ROWS_A_GROUP
# By which it is seen whether a column's values come again.
_SAMPLE_ROWS = 8_192


@dataclass(frozen=True)
class Compacted:
    """How many files were written together, and into how many."""

    files: int
    into: int


def small_bytes(table: LakeTable) -> int:
    return KEYED_SMALL_BYTES if table.key else SMALL_BYTES


def debt(table: LakeTable, files: Sequence[DataFile] | None = None) -> int:
    """How many files would be written together by whoever writes only those of about the same size. `files` are those
    of the version that is loaded, where somebody has them already."""
    return sum(len(group) for group in _groups(table, files, alike=True, exactly=False))


def compact(
    table: LakeTable,
    *,
    alike: bool = False,
    place: str = FOLDER,
    turn: AbstractContextManager[object] | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Of a table that is loaded. With `alike`, only where there are some of about the same size: so a row is written
    again a few times in all, and not each time. `place` is the folder below `DATA` for what is written. What is
    committed is committed while `turn` is held; `ended` says whether to leave it."""
    sweep(table, FOLDER)
    for _ in range(TRIES):
        groups = list(_groups(table, alike=alike))
        if not groups:
            return Compacted(0, 0)
        folder = f"{DATA}/{place}/{table.version + 1}-{uuid.uuid4().hex[:8]}"
        table.place.make(folder)
        try:
            for number, group in enumerate(groups):
                if ended():
                    return _left(table, folder)
                _write(table, group, f"{folder}/{number}.parquet")
            FailPoint.LAKE_COMPACTING.reached(f"{table.format}:{table.name}")
        except BaseException:
            _left(table, folder)
            raise
        # An error in a commit says that nobody answered, not that nothing was done: its files stay until they are
        # swept, which asks the versions.
        with turn or contextlib.nullcontext():
            done = _commit(table, folder, [each.path for group in groups for each in group])
        if done is not None:
            FailPoint.LAKE_COMPACTED.reached(f"{table.format}:{table.name}")
            return done
        _left(table, folder)
        table.load()
    raise LakeConflict(table=table.name, reason="somebody else committed first, again and again")


def _left(table: LakeTable, folder: str) -> Compacted:
    above, _, name = folder.rpartition("/")
    for each in table.place.names(above):
        if each.partition("-")[2] == name.partition("-")[2]:  # it may be called otherwise by now
            table.place.remove_folder(f"{above}/{each}")
    return Compacted(0, 0)


def _commit(table: LakeTable, folder: str, old: Sequence[str]) -> Compacted | None:
    """On what others wrote meanwhile, as long as the files are still there and have the table's columns; None if they
    are not. A folder is called by the version that it becomes."""
    columns = table.columns
    for _ in range(TRIES):
        table.load()
        if table.columns != columns or not set(old) <= {each.path for each in table.files()}:
            return None
        above, _, name = folder.rpartition("/")
        named = f"{above}/{table.version + 1}-{name.partition('-')[2]}"
        if named != folder:
            table.place.rename_folder(folder, named)
            folder = named
        new = sorted(each.path for each in table.place.files(folder))
        note = table.note()
        own = None if note is None else replace(note, own=folder.removeprefix(f"{DATA}/"))
        try:
            table.commit(Committed(own, new, old, same=True))
        except LakeConflict:
            if not came_of(table, folder):
                continue
        return Compacted(len(old), len(new))
    return None


def came_of(table: LakeTable, folder: str) -> bool:
    """Whether a version has the files of this folder: who is told that another was first may be the other. (A store
    that did not answer is asked again, and then says that the commit is there.)"""
    table.load()
    notes = [each.note.written for each in table.versions() if each.note is not None]
    return folder.removeprefix(f"{DATA}/") in notes or any(each.path.startswith(f"{folder}/") for each in table.files())


def _groups(
    table: LakeTable, files: Sequence[DataFile] | None = None, *, alike: bool, exactly: bool = True
) -> Iterator[list[DataFile]]:
    """Files that become one: small, and of the same values of the columns that divide them. Commits may tell only the
    beginning of these; `exactly` the files themselves are asked. Small files with keys are all of about the same size,
    and neighbours become one."""
    key, most = table.key, small_bytes(table)
    small = [each for each in (table.files() if files is None else files) if each.size_bytes < most]
    least = AT_ONCE_FILES if alike else 2
    if len(small) < least:
        return
    sorts: dict[tuple[Any, ...], list[DataFile]] = defaultdict(list)
    divided = table.partition_by
    if divided and exactly:
        told = footers(table.place, [each.path for each in small])
        values = {each.path: tuple(only_value(table.place, each, name) for name in divided) for each in told}
    else:
        values = {each.path: tuple(each.low.get(name) for name in divided) for each in small}
    for each in small:
        size = int(math.log(max(1, each.size_bytes), AT_ONCE_FILES)) if alike and not key else 0
        sorts[(size, *values.get(each.path, ()))].append(each)
    target = KEYED_TARGET_BYTES if key else TARGET_BYTES
    for alike_files in sorts.values():
        group: list[DataFile] = []
        for each in _by_key(alike_files, key) if key else alike_files:
            if group and sum(one.size_bytes for one in group) + each.size_bytes > target:
                yield from [group] if len(group) >= least else []
                group = []
            group.append(each)
        if len(group) >= least:
            yield group


def _by_key(files: Sequence[DataFile], key: Sequence[str]) -> list[DataFile]:
    """By the least that they hold; those of which it is not known come last."""
    known = [each for each in files if key[0] in each.low]
    return [*sorted(known, key=lambda each: each.low[key[0]]), *(each for each in files if key[0] not in each.low)]


def _write(table: LakeTable, files: Sequence[DataFile], path: str) -> None:
    """In bounded memory: some rows at a time, which are sorted where the table's rows lie side by side."""
    import pyarrow
    from pyarrow import parquet, types

    schema, place = table.arrow(), table.place
    ordered = [name for name in table.key or table.cluster_by if not types.is_nested(schema.field(name).type)]
    order = [(name, "ascending") for name in ordered]
    length = _SORTED_ROWS if order else _ROWS_A_GROUP
    with parquet.ParquetFile(place.arrow(files[0].path), filesystem=place.filesystem) as file:
        first = next(file.iter_batches(_SAMPLE_ROWS), None)
    options = {"filesystem": place.filesystem, **written_as(None if first is None else fitted(first, schema))}
    with parquet.ParquetWriter(place.arrow(path), schema, **options) as writer:
        held: list[Any] = []
        for each in files:
            with parquet.ParquetFile(place.arrow(each.path), filesystem=place.filesystem) as file:
                for batch in file.iter_batches(_ROWS_A_GROUP):
                    held.append(fitted(batch, schema))
                    if sum(one.num_rows for one in held) >= length:
                        writer.write_table(_ordered(pyarrow.Table.from_batches(held, schema), order), _ROWS_A_GROUP)
                        held = []
        if held:
            writer.write_table(_ordered(pyarrow.Table.from_batches(held, schema), order), _ROWS_A_GROUP)


def _ordered(rows: Any, order: Sequence[tuple[str, str]]) -> Any:
    return rows.sort_by(list(order)) if order else rows


def written_as(rows: Any) -> dict[str, Any]:
    """The options with which Arrow writes such rows (a batch, a table, or None). Only columns whose values come again
    get a dictionary: to try it with others takes half of the time, the files are larger, and slower to read. Decimals
    are whole numbers there, as Spark writes them."""
    import pyarrow.compute as compute
    from pyarrow import types

    options: dict[str, Any] = {"compression": "snappy", "store_schema": False, "store_decimal_as_integer": True}
    if rows is None or any(types.is_nested(each.type) for each in rows.schema):
        return options
    sample = rows.slice(0, _SAMPLE_ROWS)
    few = [name for name in sample.schema.names if 4 * _distinct(compute, sample.column(name)) <= sample.num_rows]
    return {**options, "use_dictionary": few or False}


def _distinct(compute: Any, column: Any) -> int:
    import pyarrow

    try:
        return int(compute.count_distinct(column, mode="all").as_py())
    except pyarrow.ArrowNotImplementedError:  # not for every type
        return len(column)


def fitted(batch: Any, schema: Any) -> Any:
    """A batch or table with the columns that the table has now: older files may lack some, and have narrower types."""
    import pyarrow

    columns = [
        batch.column(each.name).cast(each.type)
        if each.name in batch.schema.names
        else pyarrow.nulls(batch.num_rows, each.type)
        for each in schema
    ]
    return type(batch).from_arrays(columns, schema=schema)


def sweep(table: LakeTable, folder: str) -> None:
    """Removes what was left below a folder of `DATA`. What is there is called by the version that it was to become:
    where that is not there, or says that it came of another one there, nobody will ever read it."""
    place, now = f"{DATA}/{folder}", time.time()
    table.place.abandon("", datetime.fromtimestamp(now - LEFT_S, UTC))
    names = [name for name, changed_s in table.place.changed_s(place).items() if now - changed_s > LEFT_S]
    if not names:
        return
    said = {each.number: each.note.written for each in table.versions() if each.note is not None}
    # Others repeat the note of the version before, and say nothing of their own files.
    said = {number: name for number, name in said.items() if name.partition("/")[2].startswith(f"{number}-")}
    for each in names:
        number, name = each.partition("-")[0], f"{folder}/{each}"
        if number.isdecimal() and (int(number) > table.version or said.get(int(number), name) != name):
            table.place.remove_folder(f"{place}/{each}")
