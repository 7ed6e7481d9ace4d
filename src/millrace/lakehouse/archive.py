"""A topic's records in the lake as they are, bytes, headers, times and offsets, for longer than Kafka keeps them; and
back into a topic, which goes on with the live one at the exact offset where the archive ends.

What holds: a commit adds records that follow on the ones that are there, and says which offset is next of each
partition. Two archivers at once conflict, and the second begins again behind the first. Nothing is left out in silence:
records that Kafka had let go before they were archived are an error.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from millrace.errors import ArchiveGap, ArchiveUnfit, LakeConflict, ServerError
from millrace.lakehouse.compacting import came_of, compact, sweep
from millrace.lakehouse.moments import read_by
from millrace.lakehouse.retention import forget
from millrace.lakehouse.table import DATA, Committed, LakeTable, Note

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from millrace.log import Log, Record

FOLDER = "archive"
RECORDS_A_COMMIT = 100_000
# No record ever goes; but files that were written together stay so long as they were.
KEPT = timedelta(days=1)
_FORGETS_S = 3600.0


def columns() -> StructType:
    from pyspark.sql import types as to  # their text form would need a session

    header = to.StructType([to.StructField("name", to.StringType()), to.StructField("value", to.BinaryType())])
    kinds = {"partition": to.IntegerType(), "offset": to.LongType(), "time": to.TimestampType()}
    texts = {"key": to.BinaryType(), "value": to.BinaryType(), "headers": to.ArrayType(header)}
    return to.StructType([to.StructField(name, kind) for name, kind in {**kinds, **texts}.items()])


def named(topic: str) -> str:
    """What the archive of a topic is called unless somebody says otherwise."""
    return re.sub(r"[^A-Za-z0-9_]|^(?=[0-9])", "_", topic)


def archive(log: Log, topic: str, table: LakeTable, most: int = RECORDS_A_COMMIT) -> int:
    """Archives what a topic holds and the table does not, up to its end of now; gives how many records that are."""
    ends = {number: end for number, (_, end) in log.topics.offsets(topic).items()}
    if not table.load():
        table.create(columns(), (), KEPT)
    elif table.note() is None and table.columns.names != columns().names:
        raise ArchiveUnfit(table=table.name, topic=topic, reason="it has other columns than an archive has")
    sweep(table, FOLDER)
    added = 0
    while True:
        try:
            if (found := _commit(log, topic, table, ends, most)) is None:
                return added
            added += found
        except LakeConflict:
            table.load()


def follow(log: Log, topic: str, table: LakeTable, wait: Callable[[], bool] | None = None) -> Iterator[int]:
    """Archives a topic again and again, as long as `wait` says so, which takes its time; gives how many records each
    time. Small files are written together on the way."""
    forgot = None
    while True:
        yield archive(log, topic, table)
        with contextlib.suppress(LakeConflict):  # another one is at it
            compact(table, alike=True)
            if forgot is None or time.monotonic() - forgot > _FORGETS_S:
                forget(table, datetime.now(UTC) - KEPT)
                forgot = time.monotonic()
        if wait is None or not wait():
            return


def _commit(log: Log, topic: str, table: LakeTable, ends: Mapping[int, int], most: int) -> int | None:
    """The next records of one partition; None if there are none."""
    note, outside = table.note(), log.topics.outside(topic)
    if note is not None and note.flow != _flow(outside):
        raise ArchiveUnfit(table=table.name, topic=topic, reason=f"it holds what {note.flow} writes")
    done = {} if note is None else read_by(note, outside)
    for number, (first, end) in log.topics.offsets(topic).items():
        at = done.get(number, 0)
        if first > at:
            raise ArchiveGap(topic=topic, partition=number, first=at, end=first)
        if end < at:
            raise ArchiveUnfit(table=table.name, topic=topic, reason=_made_anew(number, at, end))
        if at >= ends[number]:
            continue
        records = list(islice(_records(log, topic, number, at, ends[number]), most))
        # The last offsets of a partition may be marks of transactions, which are no records.
        upto = records[-1].offset + 1 if len(records) == most else ends[number]
        after = {each: done.get(each, 0) for each in ends} | {number: upto}
        spans = {str(each): [upto if each != number else at, upto] for each, upto in after.items()}
        entry = json.dumps([{outside: spans}], separators=(",", ":"))
        folder = f"{FOLDER}/{table.version + 1}-{uuid.uuid4().hex[:8]}"
        path = _write(table, records, folder) if records else None
        try:
            epoch = 0 if note is None else note.epoch + 1
            table.commit(Committed(Note(_flow(outside), epoch, entry, folder), [] if path is None else [path]))
        except LakeConflict:  # after any other error it may be there all the same, and what is not is swept later
            if not came_of(table, f"{DATA}/{folder}"):
                table.place.remove_folder(f"{DATA}/{folder}")
                raise
        return len(records)
    return None


def _made_anew(partition: int, at: int, end: int) -> str:
    return f"it holds partition {partition} up to offset {at}, and the topic ends at {end}: it was made anew"


def _records(log: Log, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
    for record in log.read(topic, start, partition=partition):
        if record.offset >= end:
            return
        yield record


def _flow(outside: str) -> str:
    return f"archive of {outside}"


def _write(table: LakeTable, records: Sequence[Record], folder: str) -> str:
    import pyarrow
    from pyarrow import parquet

    rows = [
        {
            "partition": each.partition,
            "offset": each.offset,
            "time": each.time,
            "key": each.key,
            "value": each.value,
            "headers": [{"name": name, "value": value} for name, value in each.headers],
        }
        for each in records
    ]
    path = f"{DATA}/{folder}/records.parquet"
    table.place.make(f"{DATA}/{folder}")
    where, filesystem = table.place.arrow(path), table.place.filesystem
    written = pyarrow.Table.from_pylist(rows, table.arrow())
    parquet.write_table(written, where, store_schema=False, filesystem=filesystem)
    return path


def restore(log: Log, table: LakeTable, into: str, of: str | None = None) -> int:
    """Writes an archive into a topic that has nothing else, partition by partition, and then what its live topic has
    from the archive's end on. One that was begun goes on; gives how many records it wrote. Each partition has the
    records of its original, in their order. With `of`, it has to be the archive of that topic."""
    note = table.note()
    if note is None or not note.flow.startswith(_flow("")):
        reason = "it is no archive of a topic, so its rows lack partition, offset and headers (`millrace lake archive`)"
        raise ArchiveUnfit(table=table.name, topic=of or into, reason=reason)
    outside = note.flow.removeprefix(_flow(""))
    if of is not None and outside != log.topics.outside(of):
        raise ArchiveUnfit(table=table.name, topic=of, reason=f"it is the archive of {outside}")
    live = log.settings.unnamed(outside) or outside
    ends = read_by(note, outside)
    if not log.topics.exists(into):
        # Records keep their times, and old ones would expire at once.
        log.topics.create(into, partitions=len(ends), retention="forever")
    held = log.topics.offsets(into)
    if unfit := _unfit(log, table, live, into, len(ends), len(held)):
        raise ArchiveUnfit(table=table.name, topic=into, reason=unfit)
    if left_out := _leaves_out(log, live, ends):
        raise ArchiveUnfit(table=table.name, topic=live, reason=left_out)
    wrote = 0
    with log.writer(into) as writer:
        for number, end in ends.items():
            there = held[number][1]  # each record is one, in the same order: what is there is the beginning
            for record in islice(_whole(log, table, live, number, end), there, None):
                key, value, headers, time = record
                writer.write(value, key=key, headers=headers, partition=number, time=time)
                wrote += 1
    return wrote


def _unfit(log: Log, table: LakeTable, live: str, into: str, wanted: int, has: int) -> str | None:
    if into == live:
        return "it is the archive of that very topic, and a record would be there twice"
    if has != wanted:
        return f"{live} has {wanted} partitions, and this one {has}"
    if _is_compacted(log, into) and _keyless(table):
        return "it is compacted, and so takes no record without a key, of which the archive has some"
    return None


def _leaves_out(log: Log, live: str, ends: Mapping[int, int]) -> str | None:
    """Which records of the live topic do not follow on the archive."""
    for number, (first, last) in log.topics.offsets(live).items() if log.topics.exists(live) else ():
        if number not in ends and last:
            return f"it lacks partition {number}, which the topic has by now: archive it first"
        if first < last < ends.get(number, 0):
            return _made_anew(number, ends[number], last)
    return None


def _is_compacted(log: Log, topic: str) -> bool:
    with contextlib.suppress(ServerError):  # who may write to a topic need not be allowed to see how it is set
        return "compact" in log.topics.config(topic)["cleanup.policy"]
    return False


def _keyless(table: LakeTable) -> bool:
    from millrace.lakehouse.asking import connected, words

    scan = words(table)
    with connected(scan, place=table.place) as connection:
        found = connection.execute(f"SELECT 1 FROM {scan} WHERE key IS NULL LIMIT 1")  # noqa: S608 -- our own words
        return found.fetchone() is not None


_Plain = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], datetime | None]


def _whole(log: Log, table: LakeTable, live: str, partition: int, end: int) -> Iterator[_Plain]:
    """A partition's records: those of the archive, then those of the topic from its end on."""
    from millrace.lakehouse.asking import connected, words

    scan = words(table)
    query = f'SELECT key, value, headers, time FROM {scan} WHERE partition = $number ORDER BY "offset"'  # noqa: S608
    with connected(scan, place=table.place) as connection:
        for batch in connection.execute(query, {"number": partition}).to_arrow_reader():
            for row in batch.to_pylist():
                yield row["key"], row["value"], _pairs(row["headers"]), row["time"]
    if not log.topics.exists(live) or (place := log.topics.offsets(live).get(partition)) is None:
        return
    if (first := place[0]) > end:
        raise ArchiveGap(topic=live, partition=partition, first=end, end=first)
    for record in log.read(live, end, partition=partition):
        yield record.key, record.value, list(record.headers), record.time


def _pairs(headers: Sequence[Mapping[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(each["name"], each["value"]) for each in headers or ()]
