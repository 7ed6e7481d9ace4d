"""Files: each epoch is a folder of Parquet or JSON files, there as a whole or not at all.

<path>/epoch=12/part-….parquet
<path>/epoch=12/_ledger.json       who wrote it, and what was read for it
<path>/_drafts/…                   what is being written: readers pass over names that begin with `_`
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from millrace.config import Settings
from millrace.disk import sync, sync_alone, write_whole
from millrace.errors import FilesForeign, FilesTaken, OptionInvalid, SinkColumnUnfit, SinkFailed, caller
from millrace.failpoint import FailPoint
from millrace.sinks.contract import DIFF, VERSION, Feed, Guarantee, Refuse, Sink, Writer, sink_name
from millrace.sinks.ledger import Entry, Epoch, due, entry_text
from millrace.sinks.tasks import JSON_OPTIONS, reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millrace.sinks.rebuilding import Rebuilding, Site

FORMATS = ("parquet", "json")
EPOCH, LEDGER, DRAFTS = "epoch=", "_ledger.json", "_drafts"
NAMED = re.compile(rf"{EPOCH}(0|[1-9][0-9]*)")


def files(path: str, *, format: Literal["parquet", "json"] = "parquet", name: str | None = None) -> Files:  # noqa: A002
    """Writes every row to files: each epoch a folder of Parquet or JSON (a line a row) below `path`, which is taken
    from the project's folder. Of a table, rows that came and rows that went, with `__diff` and `__version`.

    Guarantee: exactly once. An epoch's folder is put in its place by one rename, with the ledger inside; readers never
    see half an epoch. If at least once was asked for, rows of an epoch that comes again are added to its folder. The
    path must be on a mounted file system that the driver and all executors share.
    """
    where = caller()
    if not isinstance(path, str) or not path.strip("./ "):
        remedy = 'name a folder: mr.files("out/orders")'
        raise OptionInvalid(name="mr.files", option="path", given=path, remedy=remedy, where=where)
    if format not in FORMATS:
        remedy = f"choose from {', '.join(FORMATS)}"
        raise OptionInvalid(name="mr.files", option="format", given=format, remedy=remedy, where=where)
    return Files(sink_name("files", path, name), where, path=path, format=format)


@dataclass(frozen=True, eq=False)
class Files(Sink):
    kind: ClassVar[str] = "files"
    guarantee: ClassVar[Guarantee] = "exactly once"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "rows"

    path: str = field(kw_only=True)
    format: str = field(kw_only=True)

    def check(self, feed: Feed) -> None:
        for column in feed.columns.names:
            if column == EPOCH.rstrip("="):
                remedy = "give that column another name: the folders of epochs are called so"
                raise SinkColumnUnfit(
                    sink=self.name, column=column, reason="the name is taken", remedy=remedy, where=self.where
                )

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:  # noqa: ARG002 -- the contract
        return FilesWriter(self, self.root(settings), flow, feed)

    def rebuilding(self, site: Site) -> Rebuilding:
        from millrace.sinks.files_rebuild import FilesRebuilding

        return FilesRebuilding(self, self.root(site.settings), site)

    def root(self, settings: Settings) -> Path:
        return (settings.folder / Path(self.path).expanduser()).resolve()


class FilesWriter(Writer):
    def __init__(self, sink: Files, root: Path, flow: str, feed: Feed) -> None:
        self._sink, self._root, self._flow, self._feed = sink, root, flow, feed

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- files take every row
        try:
            if not due(self._sink.name, epoch, self._held(), self._sink.where):
                return
            draft = self._root / DRAFTS / f"{epoch.number}"
            shutil.rmtree(draft, ignore_errors=True)
            fill(draft, rows, self._feed, self._sink.format)
            FailPoint.SINK_IN_BULK.reached(self._sink.name)
            write_whole(draft / LEDGER, entry_text(epoch))
            sync(draft)
            FailPoint.SINK_BEFORE_LEDGER.reached(self._sink.name)
            self._place(draft, epoch)
            sync_alone(self._root)
        except OSError as error:
            raise SinkFailed(sink=self._sink.name, reason=reason_of(error), where=self._sink.where) from error

    def _place(self, draft: Path, epoch: Epoch) -> None:
        """An epoch that is there and not to be asked for comes again, beside the rows that are there: nobody knows
        whether they are the same. Its files have names of their own, and the ledger is the last."""
        folder = self._root / f"{EPOCH}{epoch.number}"
        if epoch.checked or not folder.exists():
            os.rename(draft, folder)  # noqa: PTH104 -- a folder that is there is refused
            return
        for path in sorted(draft.iterdir(), key=lambda path: path.name == LEDGER):
            path.replace(folder / path.name)
        sync_alone(folder)
        draft.rmdir()

    def _held(self) -> Entry | None:
        entry = entry_in(self._root, self._sink)
        if entry is not None and entry.flow != self._flow:
            raise FilesTaken(sink=self._sink.name, path=self._root, flow=entry.flow, where=self._sink.where)
        return None if entry is None else entry.entry


def fill(folder: Path, rows: DataFrame, feed: Feed, format: str, mode: str = "error") -> None:  # noqa: A002
    """Writes rows as files of a folder."""
    options = JSON_OPTIONS if format == "json" else {}
    names = (f"`{name.replace('`', '``')}`" for name in kept(feed))
    rows.select(*names).write.format(format).options(**options).mode(mode).save(path_of(folder))


def path_of(folder: Path) -> str:
    """As Spark takes it: a URI of Python's would have `%3D` for the `=` of an epoch's folder, and Spark keeps that."""
    return f"file://{folder.absolute()}"


def kept(feed: Feed) -> list[str]:
    return [*feed.columns.names, *((DIFF, VERSION) if feed.signed else ())]


def entry_in(root: Path, sink: Files) -> Epoch | None:
    """The last epoch that is there. Folders that are called otherwise are somebody else's, and passed over."""
    found = {int(name[1]): path for path in root.glob(f"{EPOCH}*") if (name := NAMED.fullmatch(path.name))}
    if not found:
        return None
    last = found[max(found)]
    try:
        told = json.loads((last / LEDGER).read_text(encoding="utf-8"))
        return Epoch(told["flow"], int(told["epoch"]), str(told["ranges"]))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError) as error:
        raise FilesForeign(sink=sink.name, path=last, ledger=LEDGER, where=sink.where) from error
