"""How an epoch becomes a version of a lake table.

    data/FLOW/VERSION-ATTEMPT/part-….parquet   what Spark wrote; nobody reads it before a commit names it
    the commit                                 adds these files, takes away those they replace, says which epoch it is

Of a table that holds keys, an epoch takes the place of rows in older files. Those files are written again without these
rows (copy on write): every version is plain Parquet that any reader knows, and old versions keep the old files.
"""

from __future__ import annotations

import contextlib
import math
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.config import Settings
from millrace.errors import LakeTaken, MillraceError, SinkFailed, SinkTargetUnfit
from millrace.failpoint import FailPoint
from millrace.kernel.calling import quoted
from millrace.lakehouse import Catalog, Committed, LakeTable, Note
from millrace.lakehouse.catalog import MARKS
from millrace.lakehouse.compacting import debt
from millrace.lakehouse.moments import records
from millrace.lakehouse.retention import LEFT_S
from millrace.lakehouse.table import DATA
from millrace.lakehouse.types import Growth, growth
from millrace.sinks.contract import DIFF, Feed, Refuse, Writer
from millrace.sinks.lake_files import fill, read, shaped, slug
from millrace.sinks.lake_here import Here
from millrace.sinks.lake_keeping import Keeping, still_writes
from millrace.sinks.lake_merging import Merging, parted
from millrace.sinks.ledger import Entry, Epoch
from millrace.sinks.tasks import reason_of
from millrace.sinks.witness import WitnessedLedger

if TYPE_CHECKING:
    from millrace.sinks.lake import Lake


# How many rows came of a record in so many epochs: windows give none in most, and all at once in one.
_EPOCHS = 8


class LakeWriter(Writer):
    def __init__(self, sink: Lake, settings: Settings, flow: str, feed: Feed, folder: Path) -> None:
        self._sink, self._flow, self._feed = sink, flow, feed
        self._wanted = sink.stored(feed)
        self._table = Catalog(settings).table(sink.table, sink.format)
        self._ledger = WitnessedLedger(sink, flow, folder, self._held, self._commit)
        self._merging = Merging(self._table, feed.key, tidies=sink.compact)
        self._here = Here(self._merging)
        self._turn = threading.Lock()
        self._keeping = Keeping(sink, settings, f"{slug(flow)}.compacted", self._turn, keyed=bool(feed.key))
        self._next: Committed | None = None
        self._yields: deque[float] = deque(maxlen=_EPOCHS)
        self._figures: Mapping[str, float] = {}
        try:
            with failing(sink):
                ready(sink, self._table, feed)
                self._sweep()
        except BaseException:
            self._table.close()
            raise

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- it takes every row
        with failing(self._sink), self._turn:
            if not self._table.load():  # the next attempt opens it anew, and sees what the ledger's copy says
                raise SinkFailed(sink=self._sink.name, reason="its table is gone", where=self._sink.where)
            if not self._ledger.due(epoch):
                return
            grown = self._grown()
            folder = f"{slug(self._flow)}/{self._table.version + 1}-{uuid.uuid4().hex[:8]}"
            if self._feed.key:
                files, gone = self._merged(rows, grown, folder)
            else:
                files, gone = self._appended(rows, grown, folder, records(epoch.ranges))
            FailPoint.SINK_IN_BULK.reached(self._sink.name)
            note = Note(self._flow, epoch.number, epoch.ranges, folder)
            self._next = Committed(note, files, gone, grown.columns if self._rewrites(grown) else None, grown.renamed)
            self._ledger.write(epoch)
            debt_files = self._look(records(epoch.ranges))
        self._keeping.after(debt_files)

    def figures(self) -> Mapping[str, float]:
        history = self._keeping.history_bytes
        return {**self._figures, **({} if history is None else {"history_bytes": history})}

    def _look(self, came: int | None) -> int:
        files = self._table.files()
        debt_files = debt(self._table, files)
        new = set(self._next.files) if self._next is not None else set()
        # Where columns grew, all rows of before came once more.
        if came and self._next is not None and self._next.columns is None:
            self._yields.append(sum(each.rows for each in files if each.path in new) / came)
        bytes_ = sum(each.size_bytes for each in files)
        self._figures = {"files": len(files), "bytes": bytes_, "debt_files": debt_files}
        return debt_files

    def close(self) -> None:
        self._keeping.end()
        self._table.close()

    def _held(self) -> Entry | None:
        note = self._table.note()
        if note is not None and note.flow not in ("", self._flow):
            raise LakeTaken(sink=self._sink.name, table=self._sink.table, flow=note.flow, where=self._sink.where)
        return None if note is None else Entry(note.epoch, note.ranges)

    def _commit(self, _: Epoch) -> None:
        assert self._next is not None
        self._table.commit(self._next)

    def _sweep(self) -> None:
        """Removes what attempts left that were cut off. A folder is called by the version that it was to become: where
        that is not there, or came of another folder, nobody will ever read it. A flow has one driver."""
        self._held()
        place, came, own = self._table.place, self._table.version, slug(self._flow)
        together = f"{own}.compacted"
        swept = [own] if still_writes(self._sink.table, together) else [own, together]
        names = [f"{above}/{name}" for above in swept for name in place.names(f"{DATA}/{above}")]
        for above in swept:
            place.abandon(f"{DATA}/{above}/")
        place.abandon("", datetime.now(UTC) - timedelta(seconds=LEFT_S))
        known = {each.number: each.note and each.note.written for each in self._table.versions()} if names else {}
        for name in names:
            number = name.partition("/")[2].partition("-")[0]
            if number.isdecimal() and (int(number) > came or known.get(int(number), name) != name):
                place.remove_folder(f"{DATA}/{name}")

    def _grown(self) -> Growth:
        """The table with the columns that rows now have. Where types cannot grow by themselves, or columns are renamed,
        that is for the commit, for which all files are written again."""
        found = growth(self._table.columns, self._wanted, self._sink.renamed)
        if found.renamed:
            return found
        if found.added:
            self._table.add(found.added)
        if found.widened and self._table.grows:
            self._table.grow(found.columns)
        return found

    def _rewrites(self, grown: Growth) -> bool:
        return bool(grown.renamed) or (grown.widened and not self._table.grows)

    def _appended(self, rows: DataFrame, grown: Growth, folder: str, came: int | None) -> tuple[list[str], list[str]]:
        # To count them first is to compute them twice. Each record may become several rows, or some of them one.
        count = rows.count() if came is None else math.ceil(came * (max(self._yields, default=0) or 1))
        old = self._table.files() if self._rewrites(grown) else []
        if came is None and not count and not old:
            return [], []
        new = shaped(rows, self._feed, grown.columns)
        held = read(new, self._table, old, grown.columns, renamed=grown.renamed) if old else None
        frame = new if held is None else new.unionByName(held)
        gone, by = [each.path for each in old], self._sink.cluster_by
        parts = parted(frame, count, sum(each.size_bytes for each in old))
        if not by or parts == 1:
            return fill(self._table, frame.coalesce(parts), folder, self._sink.partition_by, by), gone
        rows.persist()  # where the ranges are is found by looking at the rows once more
        try:
            ranged = frame.repartitionByRange(parts, *(F.col(quoted(name)) for name in by))
            return fill(self._table, ranged, folder, self._sink.partition_by, by), gone
        finally:
            rows.unpersist()

    def _merged(self, rows: DataFrame, grown: Growth, folder: str) -> tuple[list[str], list[str]]:
        """The rows that came, and those of the files that hold a key of the epoch, without these keys."""
        rewrites, given = self._rewrites(grown), (rows, self._feed, grown.columns, folder)
        if self._here.likely and not rewrites and (here := self._here.merged(*given)) is not None:
            return here
        rows.persist()  # each use would compute the last row of each key again
        try:
            count, spans = self._merging.told(rows)
            if not rewrites and (here := self._here.merged(*given, (count, spans))) is not None:
                return here
            merge = self._merging.of(rows, grown, count, spans, everything=rewrites)
            if not merge.count and not merge.old:
                return [], []
            frame, order = merge.frame(shaped(rows.where(F.col(DIFF) > 0), self._feed, grown.columns))
            files = fill(self._table, frame, folder, self._sink.partition_by, order)
            return files, [each.path for each in merge.old]
        finally:
            rows.unpersist()


def ready(sink: Lake, table: LakeTable, feed: Feed) -> None:
    """Makes the table, or sees that it can take the rows."""
    wanted = sink.stored(feed)
    if not table.load():
        from pyspark.sql.types import StructType

        refuse_other_format(sink, table)
        table.create(StructType(wanted), sink.partition_by, sink.keep, key=feed.key)
    refuse_unfit(sink, table, growth(table.columns, wanted, sink.renamed), rebuilt=False)
    _refuse_other_key(sink, table, feed)
    table.keeps(sink.keep, sink.cluster_by, feed.key)


def refuse_other_format(sink: Lake, table: LakeTable) -> None:
    """Two tables in a folder would let go of each other's files, and queries would find one of them."""
    for other, folder in MARKS.items():
        if other != table.format and table.place.has_folder(folder):
            reason, remedy = f"there it is a table of {other}", "name another table, or move that one away"
            raise SinkTargetUnfit(sink=sink.name, target=sink.table, reason=reason, remedy=remedy, where=sink.where)


def _refuse_other_key(sink: Lake, table: LakeTable, feed: Feed) -> None:
    """Epochs would take the place of rows that have the new key in common, and leave others that do."""
    now = {old: new for new, old in sink.renamed.items()}
    known = {now.get(each, each) for each in table.key}
    if known and known != set(feed.key):
        reason = f"its rows are known by {', '.join(sorted(known))}, and these by {', '.join(feed.key) or 'nothing'}"
        remedy = f"name the same key, build it again with `millrace rebuild {sink.name}`, or name another table"
        raise SinkTargetUnfit(sink=sink.name, target=sink.table, reason=reason, remedy=remedy, where=sink.where)


def refuse_unfit(sink: Lake, table: LakeTable, found: Growth, *, rebuilt: bool) -> None:
    """Refuses columns that a table cannot come to have; one that is `rebuilt` in Delta can have any."""
    if found.unfit is not None and not (rebuilt and table.format == "delta"):
        column, old, new = found.unfit
        reason = f"its column {column!r} is {old.simpleString()} there and {new.simpleString()} here"
        remedy = "name another table: Iceberg keeps older versions by the same columns"
        if table.format == "delta":
            remedy = f"build it again with `millrace rebuild {sink.name}`, or name another table"
        raise SinkTargetUnfit(sink=sink.name, target=sink.table, reason=reason, remedy=remedy, where=sink.where)
    for name, before in sink.renamed.items():
        if {name, before} <= set(table.columns.names):
            reason = f"it has {before!r} and {name!r}, so neither is the other's new name"
            raise SinkTargetUnfit(
                sink=sink.name, target=sink.table, reason=reason, remedy="leave it out of renamed", where=sink.where
            )
    for added in found.added:
        if added.name in table.former:
            reason = f"another column was called {added.name!r} there, by which older versions know it"
            raise SinkTargetUnfit(
                sink=sink.name, target=sink.table, reason=reason, remedy="give it another name", where=sink.where
            )
    if table.partition_by != sink.partition_by:
        reason = f"its files are divided by {', '.join(table.partition_by) or 'nothing'}"
        raise SinkTargetUnfit(
            sink=sink.name, target=sink.table, reason=reason, remedy="divide by the same columns", where=sink.where
        )


@contextlib.contextmanager
def failing(sink: Lake) -> Iterator[None]:
    """What libraries and the disk say, in our words."""
    try:
        yield
    except MillraceError:
        raise
    except OSError as error:
        raise SinkFailed(sink=sink.name, reason=reason_of(error), where=sink.where) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("_internal", "deltalake", "pyiceberg", "pyarrow"):
            raise
        raise SinkFailed(sink=sink.name, reason=reason_of(error), where=sink.where) from error
