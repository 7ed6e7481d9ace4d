"""Epochs that a sink owes: their rows are kept beside the checkpoint until its server answers.

<flow>/sinks/<sink>/owed/000000012/epoch.json     its number and ranges
<flow>/sinks/<sink>/owed/000000012/rows/…         its rows, as Parquet

An epoch is there as a whole or not at all: it is written elsewhere and renamed, after the disk has it.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.disk import sync, sync_alone, write_whole
from millrace.errors import Where
from millrace.failpoint import FailPoint
from millrace.kernel.calling import quoted
from millrace.sinks.contract import DIFF, VERSION, Feed
from millrace.sinks.ledger import Epoch, due, entry_text

FOLDER = "owed"
_DIGITS = 12
_EPOCH, _ROWS, _DRAFT, _PAID = "epoch.json", "rows", "draft", "paid"


class Owed:
    """Oldest first. `bytes` is how much of the disk they take."""

    def __init__(self, folder: Path, sink: str, where: Where) -> None:
        self._folder, self._sink, self._where = folder, sink, where
        self._guard = threading.Lock()
        # Who asks for an epoch may do so while it is paid, and its files go.
        self._held = {each.number: (each, _size(path)) for path in self._paths() for each in [_told(path)]}

    def sweep(self) -> None:
        """Removes what a crash left half written, or half removed."""
        for left in (_DRAFT, _PAID):
            shutil.rmtree(self._folder / left, ignore_errors=True)

    @property
    def epochs(self) -> int:
        return len(self._held)

    @property
    def bytes(self) -> int:
        with self._guard:
            return sum(size for _, size in self._held.values())

    def put(self, epoch: Epoch, rows: DataFrame) -> None:
        """Keeps an epoch; one that is there already, by the ledger's own rule, is left alone."""
        with self._guard:
            last = self._held[max(self._held)][0] if self._held else None
        if last is not None and not due(self._sink, epoch, last.entry, self._where):
            return
        draft = self._folder / _DRAFT
        shutil.rmtree(draft, ignore_errors=True)
        rows.write.parquet((draft / _ROWS).absolute().as_uri())
        write_whole(draft / _EPOCH, entry_text(epoch))
        sync(draft)
        FailPoint.OWED_WRITTEN.reached(self._sink)
        path = self._path(epoch)
        draft.rename(path)
        sync_alone(self._folder)  # the flow forgets these rows
        with self._guard:
            self._held[epoch.number] = (epoch, _size(path))

    def first(self) -> Epoch | None:
        with self._guard:
            return self._held[min(self._held)][0] if self._held else None

    def rows(self, spark: SparkSession, epoch: Epoch, feed: Feed) -> DataFrame:
        """In today's columns: one that has come since is null, and one that has grown is of its new type."""
        rows = spark.read.parquet((self._path(epoch) / _ROWS).absolute().as_uri())
        held = {each: F.col(quoted(each)) for each in rows.columns}
        columns = [
            held.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in feed.columns.fields
        ]
        return rows.select(*columns, DIFF, VERSION)

    def written(self, epoch: Epoch) -> None:
        path, aside = self._path(epoch), self._folder / _PAID
        # In one step: one of which a crash left the number and not the rows could never be written.
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        with self._guard:
            del self._held[epoch.number]
        shutil.rmtree(aside, ignore_errors=True)

    def _path(self, epoch: Epoch) -> Path:
        return self._folder / f"{epoch.number:0{_DIGITS}}"

    def _paths(self) -> list[Path]:
        return [path for path in self._folder.glob("[0-9]*") if (path / _EPOCH).exists()]


def _told(path: Path) -> Epoch:
    raw = json.loads((path / _EPOCH).read_text(encoding="utf-8"))
    return Epoch(raw["flow"], int(raw["epoch"]), raw["ranges"])


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
