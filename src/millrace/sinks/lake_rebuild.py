"""A lake table built again: its new files are written beside the old ones, unnamed, and one commit takes all old files
away and names the new ones. The versions before stay what they were."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from millrace.disk import write_whole
from millrace.errors import LakeTableAway
from millrace.lakehouse import Catalog, Committed, DataFile, Note
from millrace.lakehouse.table import DATA
from millrace.lakehouse.types import growth
from millrace.sinks.comparing import Held, canonical
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, Writer
from millrace.sinks.lake_files import fill, read, shaped, slug
from millrace.sinks.lake_writer import failing, refuse_other_format, refuse_unfit
from millrace.sinks.last import last_of_each
from millrace.sinks.ledger import Entry, Epoch, FileLedger
from millrace.sinks.rebuilding import Rebuilding, Site, Which
from millrace.sinks.texts import document, joined_key

if TYPE_CHECKING:
    from millrace.sinks.lake import Lake

# Beside the checkpoint: in which folder of the table the new files are.
_NOTE = "lake.json"
_STAGED, _ORDER = ".staged", "__write"


class LakeRebuilding(Rebuilding):
    def __init__(self, sink: Lake, site: Site) -> None:
        self._sink, self._site = sink, site
        self._columns = StructType(sink.stored(site.feed))
        self._table = Catalog(site.settings).table(sink.table, sink.format)
        self._note = site.folder_beside / _NOTE

    @property
    def keyed(self) -> bool:
        return bool(self._site.feed.key)

    def held(self) -> Entry | None:
        with failing(self._sink):
            note = self._table.note() if self._loaded() else None
        return None if note is None else Entry(note.epoch, note.ranges)

    def _loaded(self) -> bool:
        """Whether there is one: a table whose files are gone is what somebody wants to have built again."""
        try:
            return self._table.load()
        except LakeTableAway:
            return False

    def begin(self, epoch: Epoch) -> Writer:  # noqa: ARG002 -- `switch` is told again
        self.discard()
        with failing(self._sink):
            if self._loaded():
                found = growth(self._table.columns, self._columns.fields, self._sink.renamed)
                refuse_unfit(self._sink, self._table, found, rebuilt=True)
            else:
                refuse_other_format(self._sink, self._table)
        folder = f"{slug(self._site.flow)}/{self._site.purpose}-{uuid.uuid4().hex[:8]}"
        with failing(self._sink):
            self._note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._note, json.dumps({"folder": folder}))
        return _Beside(self, folder)

    def there(self, which: Which) -> Iterator[Held]:
        with failing(self._sink):
            renamed: Mapping[str, str] = {}
            if which == "new":
                files, columns = self._new(), self._columns
            else:
                loaded = self._loaded()
                files, columns = (self._table.files(), self._table.columns) if loaded else ([], self._columns)
                renamed = self._renamed() if loaded else {}
            if files:
                # What the table lacks is null in all of its rows, and what nobody wants any more is not compared.
                now = {old: new for new, old in renamed.items()}
                has = [StructField(now.get(each.name, each.name), each.dataType) for each in columns.fields]
                lacking = [each for each in self._columns.fields if each.name not in StructType(has).names]
                rows = read(self._near, self._table, files, StructType([*has, *lacking]), renamed=renamed)
                yield from self._texts(rows.select(*self._columns.names))

    def wanted(self, rows: DataFrame) -> Iterator[Held]:
        with failing(self._sink):
            came = rows.where(F.col(DIFF) > 0) if self.keyed else rows
            yield from self._texts(shaped(came, self._site.feed, self._columns))

    def _texts(self, rows: DataFrame) -> Iterator[Held]:
        # The version says where a row is in the log, not what it is.
        names = [name for name in self._columns.names if name in self._site.feed.columns.names]
        feed = Feed(StructType([self._columns[name] for name in names]), self._site.feed.key)
        if self.keyed:
            for key, text in rows.select(joined_key(feed), document(feed)).toLocalIterator():
                yield key, canonical(text)
        else:
            for (text,) in rows.select(document(feed)).toLocalIterator():
                yield canonical(text), None

    def switch(self, epoch: Epoch) -> None:
        with failing(self._sink):
            folder = self._folder()
            if folder is None:
                return
            if not self._loaded():
                key = self._site.feed.key
                self._table.create(self._columns, self._sink.partition_by, self._sink.keep, key=key, anew=True)
            note = self._table.note()
            if note is None or note.folder != folder:
                note = Note(self._site.flow, epoch.number, epoch.ranges, folder)
                new, renamed = [each.path for each in self._new()], self._renamed()
                self._table.is_rebuilt()
                self._table.commit(Committed(note, new, columns=self._columns, renamed=renamed))
            self._table.keeps(self._sink.keep, self._sink.cluster_by, self._site.feed.key)
            FileLedger(self._site.folder).write(epoch)
            self._note.unlink()

    def discard(self) -> None:
        folder = self._folder()
        if folder is not None:
            for place in (folder, f"{folder}{_STAGED}"):
                self._table.place.remove_folder(f"{DATA}/{place}")
            self._note.unlink()

    def close(self) -> None:
        self._table.close()

    def failing(self) -> AbstractContextManager[None]:
        return failing(self._sink)

    @property
    def _near(self) -> DataFrame:
        return self._site.spark.range(0)

    def _renamed(self) -> Mapping[str, str]:
        """How the table that is loaded calls columns that have another name by now."""
        return growth(self._table.columns, self._columns.fields, self._sink.renamed).renamed

    def _folder(self) -> str | None:
        try:
            return str(json.loads(self._note.read_text(encoding="utf-8"))["folder"])
        except FileNotFoundError:
            return None

    def _new(self) -> list[DataFile]:
        folder = self._folder()
        found = [] if folder is None else self._table.place.files(f"{DATA}/{folder}")
        return [DataFile(each.path, each.size_bytes, 0) for each in sorted(found, key=lambda each: each.path)]

    def stage(self, folder: str, rows: DataFrame, number: int) -> None:
        """Keeps rows of keys with their sign, and which of the writes they came with."""
        place, where = self._table.place, f"{DATA}/{folder}{_STAGED}/{number}"
        rows.withColumn(_ORDER, F.lit(number)).write.options(**place.options).parquet(place.location(where))

    def settle(self, folder: str) -> None:
        """Of each key the row that came last."""
        place, where = self._table.place, f"{DATA}/{folder}{_STAGED}"
        if not place.has_folder(where):
            return
        reader = self._site.spark.read.option("recursiveFileLookup", "true").options(**place.options)
        staged = reader.parquet(place.location(where))
        order = F.struct(_ORDER, VERSION, DIFF)
        names = [*self._site.feed.columns.names, DIFF, VERSION]
        self.fill(folder, last_of_each(staged, self._site.feed.key, names, order).where(F.col(DIFF) > 0))
        place.remove_folder(where)

    def fill(self, folder: str, rows: DataFrame) -> None:
        frame = shaped(rows, self._site.feed, self._columns)
        fill(self._table, frame, f"{folder}/{uuid.uuid4().hex[:8]}", self._sink.partition_by, self._sink.cluster_by)


class _Beside(Writer):
    """All that it is given goes to one folder: rows as they are, of keys the last of each."""

    def __init__(self, rebuilding: LakeRebuilding, folder: str) -> None:
        self._rebuilding, self._folder, self._count = rebuilding, folder, 0

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- it takes every row
        with self._rebuilding.failing():
            if self._rebuilding.keyed:
                self._rebuilding.stage(self._folder, rows, self._count)
            else:
                self._rebuilding.fill(self._folder, rows)
            self._count += 1

    def close(self) -> None:
        with self._rebuilding.failing():
            self._rebuilding.settle(self._folder)
