"""A lake table that is appended to as a topic: every row once, in the order of versions, whoever was cut off where."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql.types import DateType, LongType, MapType, StringType, StructField, StructType

from millrace.config import Settings
from millrace.errors import LakeFollowingGap, LakeNotAppended
from millrace.lakehouse import Catalog, Committed, LakeTable
from millrace.lakehouse.compacting import compact
from millrace.lakehouse.delta import Delta
from millrace.lakehouse.following import HEADER, Following, Mark, _plain
from millrace.lakehouse.place import Disk
from millrace.lakehouse.retention import forget
from millrace.log import Log
from tests.lakehouse.filled import COLUMNS, IN_S3, epoch, file_of, format_of, project_of
from tests.rotation import today, todays

pytestmark = pytest.mark.server

_numbers = itertools.count(1)


@pytest.fixture(params=todays(("iceberg", "delta", IN_S3), 1))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LakeTable]:
    settings = project_of(request.param, tmp_path, request)
    found = Catalog(settings).table(f"followed{uuid.uuid4().hex[:8]}", format_of(request.param))
    found.create(COLUMNS, ())
    yield found
    found.close()


@pytest.fixture
def log(settings: Settings) -> Log:
    found = Log(replace(settings, prefix=f"followed{next(_numbers)}"))
    found.topics.create("rows", partitions=3, retention="forever")
    return found


def rows(log: Log) -> list[int]:
    """The rows' ids in their order, which their places give."""
    placed = {record.offset * 3 + record.partition: record.json() for record in log.read("rows")}
    assert sorted(placed) == list(range(len(placed)))
    return [placed[number]["id"] for number in sorted(placed)]


def caught_up(log: Log, table: LakeTable, after: int | None = None) -> int:
    """By somebody new, who is cut off after so many looks."""
    looks = itertools.count()
    ended = (lambda: False) if after is None else (lambda: next(looks) >= after)
    table.load()
    return Following(log, "rows", ["id", "amount", "later"], ended=ended).catch_up(table)


def test_each_row_comes_once_in_the_order_of_versions(log: Log, table: LakeTable) -> None:
    draw, number, wanted = random.Random(today()), itertools.count(1), [1, 2, 3, 4]
    assert caught_up(log, table) == 0
    epoch(table, 0, [file_of(table, [1, 2, 3])])
    epoch(table, 1, [file_of(table, [4])])  # both are there when it begins
    for place in range(2, 9):
        for _ in range(draw.randint(0, 2)):
            caught_up(log, table, draw.randrange(6))
            assert rows(log) == wanted[: len(rows(log))] or place == 2
        if draw.random() < 0.3:
            caught_up(log, table)
            compact(table)
        ids = [10 * place + each for each in range(next(number) % 5)]
        epoch(table, place, [file_of(table, ids)] if ids else [])
        wanted += ids
    caught_up(log, table)
    assert sorted(rows(log)) == sorted(wanted)
    assert caught_up(log, table) == 0
    (first,) = list(log.read("rows", limit=1, partition=0))
    assert first.json() == {"id": 1, "amount": "1.00"}, "of the columns that are named, those that its file has"


def test_a_writer_that_was_killed_leaves_partitions_of_different_lengths(log: Log, table: LakeTable) -> None:
    epoch(table, 0, [file_of(table, range(3))])
    caught_up(log, table)
    epoch(table, 1, [file_of(table, range(3, 10))])
    mark = Mark(table.version, 3, 7).text()
    for number, partition in ((3, 0), (6, 0), (9, 0), (4, 1)):  # the third partition's were on their way
        log.write("rows", {"id": number}, headers={HEADER: mark}, partition=partition)
    assert caught_up(log, table) == 3
    assert rows(log) == list(range(10))


def test_what_cannot_be_followed(log: Log, table: LakeTable) -> None:
    epoch(table, 0, [file_of(table, [1])])
    caught_up(log, table)
    # Nothing happened for long: only the last version is left, and it is all there.
    forget(table, datetime.now(UTC) + timedelta(days=1))
    epoch(table, 1, [file_of(table, [2])])
    caught_up(log, table)
    assert rows(log) == [1, 2]
    epoch(table, 2, [file_of(table, [3])])
    forget(table, datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(LakeFollowingGap, match="which is gone"):
        caught_up(log, table)
    other = Log(replace(log.settings, prefix=f"followed{next(_numbers)}"))
    other.topics.create("rows", partitions=3)
    caught_up(other, table)
    assert sorted(rows(other)) == [1, 2, 3]
    epoch(table, 3, [file_of(table, [9])], gone=[table.files()[0].path])
    with pytest.raises(LakeNotAppended, match="takes rows away"):
        caught_up(other, table)


def test_versions_that_went_without_a_row_that_was_lost(log: Log, table: LakeTable) -> None:
    epoch(table, 0, [file_of(table, [1, 2])])
    epoch(table, 1, [file_of(table, [3])])
    caught_up(log, table)
    for number, ids in ((2, [4]), (3, [5, 6])):
        compact(table)
        forget(table, datetime.now(UTC) + timedelta(days=1))
        assert caught_up(log, table) == 0
        epoch(table, number, [file_of(table, ids)])
        caught_up(log, table)
    assert sorted(rows(log)[:3]) == [1, 2, 3]
    assert rows(log)[3:] == [4, 5, 6]
    # Of a table with a key, as many rows need not be the same ones.
    compact(table)
    forget(table, datetime.now(UTC) + timedelta(days=1))
    table.keeps(None, key=["id"])
    with pytest.raises(LakeFollowingGap):
        caught_up(log, table)
    table.keeps(None, key=())
    # The writing of a version's rows was cut off: which of them are missing, nobody can say any more.
    epoch(table, 4, [file_of(table, range(10, 20))])
    caught_up(log, table, after=4)
    assert 6 < len(rows(log)) < 16
    compact(table)
    forget(table, datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(LakeFollowingGap):
        caught_up(log, table)


def test_a_table_that_was_built_again_need_not_have_the_same_rows(log: Log, table: LakeTable) -> None:
    epoch(table, 0, [file_of(table, [1, 2])])
    caught_up(log, table)
    table.is_rebuilt()
    epoch(table, 1, [file_of(table, [1, 5])], gone=[each.path for each in table.files()])
    forget(table, datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(LakeFollowingGap):
        caught_up(log, table)


def test_values_that_json_has_none_for() -> None:
    given = {"bytes": b"\x00\xff", "far": float("inf"), "none": float("nan"), "parts": [{"a": b"x"}], "text": ""}
    assert _plain(given) == {"bytes": "AP8=", "far": "inf", "none": "nan", "parts": [{"a": "eA=="}], "text": ""}
    assert _plain("", emptied=True) is None


def test_days_that_python_does_not_know(tmp_path: Path) -> None:
    """They are texts in the topic, and no reason to stand still."""
    table = Delta("far", Disk(tmp_path / "far"))
    table.create(
        StructType([StructField("day", DateType()), StructField("tags", MapType(StringType(), LongType()))]), ()
    )
    days = pyarrow.array([2**31 - 1, 0], pyarrow.int32()).cast(pyarrow.date32())
    tags = pyarrow.array([[("a", 1)], None], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    table.place.make("data")
    parquet.write_table(pyarrow.table({"day": days, "tags": tags}), table.place.arrow("data/far.parquet"))
    table.commit(Committed(None, ["data/far.parquet"]))
    following = Following(None, "far", ["day", "tags", "none"])  # type: ignore[arg-type] -- nothing is written
    found = list(following._rows(table, table.files()))
    assert found == [{"day": "infinity", "tags": {"a": 1}}, {"day": date(1970, 1, 1), "tags": None}]
