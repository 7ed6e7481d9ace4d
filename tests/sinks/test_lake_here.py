"""Epochs of few keys that the driver merges itself: every version is what a dictionary says, for keys of one column and
of several, of null, and for tables that are divided; and no file is written again that holds none of the keys."""

from __future__ import annotations

import random
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

from millrace.lakehouse import Committed
from millrace.lakehouse.delta import Delta
from millrace.lakehouse.place import Disk
from millrace.sinks import lake_here
from millrace.sinks import lake_merging as merging
from millrace.sinks.contract import DIFF
from millrace.sinks.lake_here import Here, held
from tests.rotation import today

COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("day", DateType()),
        StructField("region", StringType()),
        StructField("name", StringType()),
    ]
)
DAYS = [date(2026, 1, day) for day in range(1, 4)]


class Merged:
    """A table whose epochs are merged here, and what it should hold."""

    def __init__(self, folder: Path, key: list[str], partition_by: list[str]) -> None:
        self.table = Delta("merged", Disk(folder / "merged"))
        self.table.create(COLUMNS, partition_by)
        self.here, self.key = Here(merging.Merging(self.table, key)), key
        self.wanted: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.number = 0

    def epoch(self, rows: list[dict[str, Any]], gone: list[dict[str, Any]]) -> int:
        """Gives how many files were written again."""
        schema = self.table.arrow()
        came = pyarrow.Table.from_pylist(rows, schema)
        keys = pyarrow.Table.from_pylist([*rows, *gone], schema).select(self.key)
        files = self.table.files()
        spans: list[merging.Span] = [None] * len(self.key)
        within = [each for each in files if merging.overlaps(each, self.key, spans)]
        done = self.here._written(came, keys, files, within, f"flow/{self.number}")
        assert done is not None
        self.number += 1
        self.table.commit(Committed(None, *done))
        for row in gone:
            self.wanted.pop(self.key_of(row), None)
        for row in rows:
            self.wanted[self.key_of(row)] = row
        return len(done[1])

    def key_of(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def rows(self) -> list[dict[str, Any]]:
        paths = [self.table.folder / each.path for each in self.table.files()]
        return [row for path in paths for row in parquet.ParquetFile(path).read().to_pylist()]


@pytest.mark.parametrize("key", [["id"], ["region", "day"], ["id", "region"]], ids="+".join)
@pytest.mark.parametrize("partition_by", [[], ["region"]], ids=lambda given: "divided" if given else "whole")
def test_epochs_are_what_a_dictionary_says(
    key: list[str], partition_by: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, merged = random.Random(today()), Merged(tmp_path, key, partition_by)
    monkeypatch.setattr(merging, "MOST_SMALL", 3)
    for number in range(12):
        monkeypatch.setattr(merging, "SMALL_BYTES", draw.choice((0, 2_000, 4_000_000)))
        monkeypatch.setattr(merging, "ROWS_A_FILE", draw.choice((3, 1_000_000)))
        changes = {}
        for _ in range(draw.randint(1, 12)):
            region = draw.choice(["north", "south", "a/b", None if key == ["id"] else "east"])
            nothing = key == ["id"] and draw.random() < 0.1
            row = {"id": None if nothing else draw.randrange(30), "day": draw.choice(DAYS), "region": region}
            changes[merged.key_of(row)] = {**row, "name": f"{number} {draw.random()}"}
        gone = [row for row in changes.values() if draw.random() < 0.3]
        merged.epoch([row for row in changes.values() if row not in gone], gone)
        assert sorted(map(str, merged.rows())) == sorted(map(str, merged.wanted.values()))
        for path in partition_by and [merged.table.folder / each.path for each in merged.table.files()]:
            assert len(set(parquet.read_table(path, partitioning=None).column("region").to_pylist())) == 1


def test_files_without_one_of_the_keys_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "SMALL_BYTES", 0)
    merged = Merged(tmp_path, ["id"], [])
    for first in (0, 100, 200):
        merged.epoch([{"id": first + each, "day": None, "region": "x", "name": "y"} for each in range(0, 100, 2)], [])
    before = {each.path for each in merged.table.files()}
    assert merged.epoch([{"id": 131, "day": None, "region": "x", "name": "between"}], []) == 0
    assert merged.epoch([{"id": 130, "day": None, "region": "x", "name": "there"}], [{"id": 5}, {"id": 7}]) == 1
    assert len(before & {each.path for each in merged.table.files()}) == 2


def test_no_epoch_is_computed_in_vain_where_much_of_the_table_may_hold_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged = Merged(tmp_path, ["id"], [])
    row = {"id": 1, "day": None, "region": "x", "name": "y"}
    merged.epoch([row], [])
    computed = []

    class Rows:
        def limit(self, _: int) -> Rows:
            return self

        def toArrow(self) -> pyarrow.Table:  # noqa: N802 -- Spark's name
            computed.append(1)
            return pyarrow.Table.from_pylist([row], merged.table.arrow()).append_column(DIFF, [[1]])

    monkeypatch.setattr(lake_here, "shaped", lambda *_: Rows())

    def merge(told: tuple[int, list[merging.Span]] | None = None) -> bool:
        place = f"flow/{uuid.uuid4().hex[:8]}"
        done = merged.here.merged(None, None, COLUMNS, place, told)  # type: ignore[arg-type]
        return done is not None

    few = (1, [(1, 1)])
    assert merge(few)
    assert merged.here.likely
    computed.clear()
    with monkeypatch.context() as patch:
        patch.setattr(lake_here, "BYTES_HERE", 0)
        assert not merge()
        assert (computed, merged.here.likely) == ([1], False), "once, and then it is known"
        assert not merge(few)
        assert computed == [1]
    assert merge(few)
    assert merged.here.likely


def test_nothing_is_said_of_days_that_python_does_not_know() -> None:
    days = pyarrow.array([2**31 - 1, 0], pyarrow.int32()).cast(pyarrow.date32())
    assert lake_here.spans_of(pyarrow.table({"day": days, "id": [2, 1]})) == [None, (1, 2)]


def test_null_is_a_key_like_others() -> None:
    rows = pyarrow.table({"id": pyarrow.array([1, None, 3], pyarrow.int64())})
    assert list(held(rows, pyarrow.table({"id": pyarrow.array([None, 3], pyarrow.int32())}))) == [False, True, True]
    assert list(held(rows, pyarrow.table({"id": pyarrow.array([3], pyarrow.int64())}))) == [False, False, True]
