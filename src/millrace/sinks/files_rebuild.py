"""Files built again: a folder beside the old one, with all rows as one epoch, which exchanges names with it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructType

from millrace.disk import exchange, sync, sync_alone, write_whole
from millrace.errors import SinkFailed
from millrace.sinks.comparing import Held, canonical
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, Writer
from millrace.sinks.files import EPOCH, LEDGER, NAMED, entry_in, fill, path_of
from millrace.sinks.last import last_of_each
from millrace.sinks.ledger import Entry, Epoch, entry_text
from millrace.sinks.rebuilding import Rebuilding, Site, Which
from millrace.sinks.tasks import JSON_OPTIONS, reason_of
from millrace.sinks.texts import document, joined_key

if TYPE_CHECKING:
    from millrace.sinks.files import Files

# In a folder that was built: it has not been swept yet. Readers pass over it.
_MARK = "_rebuilt"


class FilesRebuilding(Rebuilding):
    def __init__(self, sink: Files, root: Path, site: Site) -> None:
        self._sink, self._root, self._site = sink, root, site
        self._beside = root.with_name(f"{root.name}.{site.purpose}")
        self._known = Feed(site.feed.columns, site.key, site.feed.signed)

    @property
    def keyed(self) -> bool:
        return self._site.feed.signed and bool(self._site.key)

    def held(self) -> Entry | None:
        found = entry_in(self._root, self._sink)
        return None if found is None else found.entry

    def begin(self, epoch: Epoch) -> Writer:
        self.discard()
        folder = self._beside / f"{EPOCH}{epoch.number}"
        with self._failing():
            folder.mkdir(parents=True)
        return _Appending(self._sink, folder, self._site.feed)

    def there(self, which: Which) -> Iterator[Held]:
        root = self._root if which == "live" else self._beside
        if any(root.glob(f"{EPOCH}*/[!_.]*")):
            yield from self._texts(self._read(root))

    def wanted(self, rows: DataFrame) -> Iterator[Held]:
        yield from self._texts(rows)

    def switch(self, epoch: Epoch) -> None:
        with self._failing():
            if self._beside.exists() and not (self._root / _MARK).exists():
                write_whole(self._beside / f"{EPOCH}{epoch.number}" / LEDGER, entry_text(epoch))
                write_whole(self._beside / _MARK, "")
                sync(self._beside)
                self._exchange()
            self._keep_others()
            shutil.rmtree(self._beside, ignore_errors=True)
            (self._root / _MARK).unlink(missing_ok=True)

    def _keep_others(self) -> None:
        """What somebody else has put beside the epochs stays there."""
        for each in self._beside.iterdir() if self._beside.exists() else ():
            if not NAMED.fullmatch(each.name) and not each.name.startswith("_"):
                each.rename(self._root / each.name)

    def _exchange(self) -> None:
        if self._root.exists():
            exchange(self._root, self._beside)
        else:
            self._beside.rename(self._root)
        sync_alone(self._root.parent)

    def discard(self) -> None:
        shutil.rmtree(self._beside, ignore_errors=True)

    def _read(self, root: Path) -> DataFrame:
        reader, feed = self._site.spark.read.format(self._sink.format), self._site.feed
        if self._sink.format == "json":
            schema = StructType(list(feed.columns.fields))
            if feed.signed:
                schema = schema.add(DIFF, IntegerType()).add(VERSION, LongType())
            return reader.schema(schema).options(**JSON_OPTIONS).load(path_of(root))
        found = reader.option("mergeSchema", "true").load(path_of(root))
        lacking = [each for each in feed.columns.fields if each.name not in found.columns]
        return found.withColumns({each.name: F.lit(None).cast(each.dataType) for each in lacking})

    def _texts(self, rows: DataFrame) -> Iterator[Held]:
        """Of a table the rows that it has now, of a stream all."""
        if self.keyed:
            names = [*self._site.feed.columns.names, DIFF]
            rows = last_of_each(rows, self._site.key, names, F.struct(VERSION, DIFF)).where(F.col(DIFF) > 0)
            found = rows.select(joined_key(self._known), document(self._known))
        else:
            found = rows.select(document(self._known), F.lit(None).cast("string"))
        with self._failing():
            for key, text in found.toLocalIterator():
                yield (key, canonical(text)) if self.keyed else (canonical(key), None)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, PySparkException) as error:
            raise SinkFailed(sink=self._sink.name, reason=reason_of(error), where=self._sink.where) from error


class _Appending(Writer):
    """All that it is given goes to one folder."""

    def __init__(self, sink: Files, folder: Path, feed: Feed) -> None:
        self._sink, self._folder, self._feed = sink, folder, feed

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- files take every row
        fill(self._folder, rows, self._feed, self._sink.format, mode="append")
