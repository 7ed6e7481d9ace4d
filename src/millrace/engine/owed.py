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

from millrace.errors import Where
from millrace.failpoint import FailPoint
from millrace.kernel.calling import quoted
from millrace.sinks.contract import DIFF, VERSION, Feed
from millrace.sinks.disk import sync, write_whole
from millrace.sinks.ledger import Epoch, due, entry_text

FOLDER = "owed"
_DIGITS = 12
_EPOCH, _ROWS, _DRAFT, _PAID = "epoch.json", "rows", "draft", "paid"


class Owed:
    """Oldest first. `bytes` is how much of the disk they take."""

    def __init__(self, folder: Path, sink: str, where: Where) -> None:
        self._folder, self._sink, self._where = folder, sink, where
        self._guard = threading.Lock()
        self._sizes = {path: _size(path) for path in self._paths()}

    @property
    def epochs(self) -> int:
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        with self._guard:
            return sum(self._sizes.values())

    def put(self, epoch: Epoch, rows: DataFrame) -> None:
        """Keeps an epoch; one that is there already, by the ledger's own rule, is left alone."""
        with self._guard:
            last = max(self._sizes, default=None)
        if last is not None and not due(self._sink, epoch, _told(last).entry, self._where):
            return
        draft = self._folder / _DRAFT
        shutil.rmtree(draft, ignore_errors=True)
        rows.write.parquet((draft / _ROWS).absolute().as_uri())
        write_whole(draft / _EPOCH, entry_text(epoch))
        sync(draft)
        FailPoint.OWED_WRITTEN.reached(self._sink)
        path = self._path(epoch)
        draft.rename(path)
        with self._guard:
            self._sizes[path] = _size(path)

    def first(self) -> Epoch | None:
        with self._guard:
            oldest = min(self._sizes, default=None)
        return None if oldest is None else _told(oldest)

    def rows(self, spark: SparkSession, epoch: Epoch, feed: Feed) -> DataFrame:
        """In today's columns: one that has come since is null."""
        rows = spark.read.parquet((self._path(epoch) / _ROWS).absolute().as_uri())
        columns = [
            F.col(quoted(each.name)) if each.name in rows.columns else F.lit(None).cast(each.dataType).alias(each.name)
            for each in feed.columns.fields
        ]
        return rows.select(*columns, DIFF, VERSION)

    def written(self, epoch: Epoch) -> None:
        path, aside = self._path(epoch), self._folder / _PAID
        # In one step: one of which a crash left the number and not the rows could never be written.
        shutil.rmtree(aside, ignore_errors=True)
        path.rename(aside)
        shutil.rmtree(aside)
        with self._guard:
            self._sizes.pop(path, None)

    def _path(self, epoch: Epoch) -> Path:
        return self._folder / f"{epoch.number:0{_DIGITS}}"

    def _paths(self) -> list[Path]:
        return [path for path in self._folder.glob("[0-9]*") if (path / _EPOCH).exists()]


def _told(path: Path) -> Epoch:
    raw = json.loads((path / _EPOCH).read_text(encoding="utf-8"))
    return Epoch(raw["flow"], int(raw["epoch"]), raw["ranges"])


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
