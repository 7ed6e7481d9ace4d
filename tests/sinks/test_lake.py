"""The lakehouse as a sink: the suite for both formats, every type as all readers see it, and tables that grow."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace import local
from millrace.config import Settings
from millrace.errors import (
    LakeConflict,
    LakeTableAway,
    LakeTaken,
    OptionInvalid,
    SinkColumnUnfit,
    SinkFailed,
    SinkKeyUnknown,
    SinkTargetGone,
    SinkTargetUnfit,
)
from millrace.lakehouse import Catalog, Committed, LakeTable, Note, place
from millrace.lakehouse.asking import connected
from millrace.lakehouse.table import DATA
from millrace.sinks import VERSION, Feed, Sink, lake_files, lake_here, lake_merging
from millrace.sinks import lake_writer as writing
from millrace.sinks.lake import lake
from millrace.testing.sinks import SinkSuite
from tests.rotation import todays
from tests.sinks.lake_written import Written, numbers, rows_of

FORMATS = ("delta", "iceberg")
TYPES = """
    tiny byte, short short, whole int, long long, single float, double double, yes boolean, day date, at timestamp,
    local timestamp_ntz, bytes binary, text string, money decimal(12,2), huge decimal(38,18), numbers array<int>,
    words array<string>, pair struct<a:int,b:string>, pairs array<struct<a:int>>, tags map<string,int>
"""

pytestmark = [pytest.mark.spark, pytest.mark.server]


class LakeSuite(SinkSuite):
    format: ClassVar[Any]

    @pytest.fixture(autouse=True)
    def _server(self, settings: Settings, postgres: str) -> None:
        self.project, self.url = settings, postgres

    def settings(self) -> Settings:
        return self.project

    def sink(self, *, keyed: bool) -> Sink:
        return lake(f"held{next(numbers)}", format=self.format, key="id" if keyed else None)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        with Catalog(self.project).opened(sink.table) as table:  # type: ignore[attr-defined]
            return rows_of(table)


@pytest.mark.turn(0, 2)
class TestDelta(LakeSuite):
    format = "delta"


@pytest.mark.turn(1, 2)
class TestIceberg(LakeSuite):
    format = "iceberg"

    def away(self) -> AbstractContextManager[None]:
        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            local.down(self.project, ("postgres",))
            try:
                yield
            finally:
                self.url = local.up(self.project, ("postgres",))["postgres"]

        return stopped()


@pytest.fixture
def written(spark: SparkSession, settings: Settings, postgres: str, tmp_path: Path) -> Callable[[str], Written]:
    assert postgres
    return lambda kind: Written(spark, settings, tmp_path, kind)


@pytest.mark.parametrize("kind", todays(FORMATS, 1))
def test_every_type_is_the_same_to_every_reader(kind: str, written: Callable[[str], Written]) -> None:
    made = written(kind)
    day, at = date(2026, 2, 28), datetime(2026, 2, 28, 23, 59, 59, 123456, UTC)
    local_at, odd = datetime(1, 1, 1, 0, 0, 0, 1), "tab\t, line\nend, quote\" and 'x' €\0"
    values = (
        *(-128, -32768, -2147483648, -9223372036854775808, 1.5, float("-inf"), True, day, at, local_at, b"\x00\xff"),
        *(odd, Decimal("-1234567890.12"), Decimal("0.000000000000000001"), [1, None, 3], [odd, None, ""]),
        *((1, odd), [(1,), None], {"a": 1, odd: 2}),
    )
    schema = StructType.fromDDL(TYPES)
    empty = tuple([] if field.dataType.typeName() == "array" else None for field in schema.fields)
    other = [(None,) * 5 + (math.nan,) + (None,) * (len(values) - 6)]
    rows = made.spark.createDataFrame([values, empty, (None,) * len(values), *other], schema)
    made.write(rows)
    wanted = dict(zip(schema.names, values, strict=True))
    wanted |= {"pair": {"a": 1, "b": odd}, "pairs": [{"a": 1}, None], "tags": [("a", 1), (odd, 2)]}

    with made.table() as table:
        for reader in (rows_of, _own_reader):
            found = reader(table)
            (filled,) = [row for row in found if row["tiny"] is not None]
            filled["tags"].sort()  # a map has no order
            assert filled == wanted, reader
            assert sorted(len(row["words"]) for row in found if row["words"] is not None) == [0, 3]
            assert len([row for row in found if row["double"] is not None and math.isnan(row["double"])]) == 1
        with connected() as connection:  # NaN is above all numbers
            assert connection.sql(f"SELECT * FROM {table.scan()} WHERE double > 1").to_arrow_table().num_rows == 1
        paths = [f"file://{table.folder / each.path}" for each in table.files()]
        again = made.spark.read.parquet(*paths)
        cast = rows.select(*(F.col(name).cast(again.schema[name].dataType) for name in schema.names))
        assert sorted(map(str, again.collect())) == sorted(map(str, cast.collect()))
        # By what is told of them, readers pass over files.
        (low,), (high,) = (
            {each.low["whole"] for each in table.files()},
            {each.high["whole"] for each in table.files()},
        )
        assert low == high == -2147483648

    for column, reason in (("INTERVAL '1' DAY", "has no type for interval"), ("parse_json('1')", "variant")):
        with pytest.raises(SinkColumnUnfit, match=reason):
            made.write(made.spark.sql(f"SELECT {column} AS odd"))


def _own_reader(table: LakeTable) -> list[dict[str, Any]]:
    """As the library of the format reads them."""
    import pyarrow

    raw = table._table  # type: ignore[attr-defined]
    frame = raw.scan().to_arrow() if table.format == "iceberg" else pyarrow.table(raw.to_pyarrow_table())
    found: list[dict[str, Any]] = frame.to_pylist()
    return found


@pytest.mark.parametrize("kind", todays(FORMATS[::-1], 1))
def test_keys_are_replaced_where_they_are_and_older_versions_stay(kind: str, written: Callable[[str], Written]) -> None:
    made = written(kind)
    sink = made.sink(key="id", partition_by="region")
    frame = made.spark.createDataFrame

    def rows(*given: tuple[Any, ...]) -> DataFrame:
        return frame(list(given), "id long, region string, amount decimal(12,2)")

    made.write(rows(*((n, "a/b=c" if n % 2 else None, Decimal(n)) for n in range(10))), sink)
    made.write(rows(*((n, "far", Decimal(n)) for n in range(100, 110))), sink)
    with made.table() as table:
        files = {each.path for each in table.files()}
    # One moves to another part, one is new; then two go, one of which never was.
    made.write(rows((1, None, Decimal(11)), (10, "a/b=c", Decimal(10))), sink)
    with made.table() as table:
        kept = files & {each.path for each in table.files()}
        assert kept, "files without any of the keys stay"
        assert kept != files
        version = table.version
    made.write(rows((2, None, Decimal(2)), (77, "no", None)), sink, gone=True)

    wanted = {n: ("a/b=c" if n % 2 else None, Decimal(n)) for n in range(11)} | {1: (None, Decimal(11))}
    wanted |= {10: ("a/b=c", Decimal(10))} | {n: ("far", Decimal(n)) for n in range(100, 110)}
    before = dict(wanted)
    del wanted[2]
    found = {row["id"]: (row["region"], row["amount"]) for row in made.rows()}
    assert found == wanted
    assert {row["id"]: row[VERSION] for row in made.rows()}[1] == 2, "a row knows its place in the log"
    with made.table() as table, connected() as connection:
        (then,) = [each for each in table.versions() if each.number == version]
        told = connection.sql(f"SELECT id, region, amount FROM {table.scan(then)}").to_arrow_table().to_pylist()
        assert {row["id"]: (row["region"], row["amount"]) for row in told} == before
        assert len(connection.sql(f"SELECT id FROM {table.scan()} WHERE region = 'far'").to_arrow_table()) == 10


@pytest.mark.parametrize("kind", todays(FORMATS, 1))
def test_files_lie_side_by_side_by_key(
    kind: str, written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    measures = {"SMALL_BYTES": 0, "ROWS_A_CORE": 20_000, "ROWS_A_FILE": 10_000, "BYTES_A_FILE": 50_000, "MOST_DEEP": 2}
    for name, value in measures.items():
        monkeypatch.setattr(lake_merging, name, value)
    monkeypatch.setitem(lake_files._WRITING, "parquet.block.row.count.limit", "4000")
    monkeypatch.setattr(lake_here, "KEYS_HERE", 0)  # as tables that are too large for the driver
    made = written(kind)
    sink = made.sink(key="id")

    def epoch(first: int, end: int, step: int = 1) -> None:
        # In no order, as a topic's partitions bring them.
        rows = made.spark.range(first, end, step).selectExpr("id", f"'{made.number}' AS text")
        made.write(rows.repartition(4, F.hash("id")), sink)

    def spans() -> list[tuple[int, int]]:
        with made.table() as table:
            return sorted((each.low["id"], each.high["id"]) for each in table.files())

    epoch(0, 40_000)
    before = spans()
    assert len(before) == 4
    assert all(first[1] < then[0] for first, then in itertools.pairwise(before)), "no key lies in two"
    with made.table() as table:
        groups = [parquet.read_metadata(table.folder / each.path) for each in table.files()]
        kept = {each.path for each in table.files() if each.low["id"] > 1_000}
    assert max(told.row_group(n).num_rows for told in groups for n in range(told.num_row_groups)) == 4_000
    epoch(0, 1_000, 10)
    with made.table() as table:
        assert kept <= {each.path for each in table.files()}, "files without any of the keys stay"
        assert len(table.files()) == 5
    epoch(0, 40_000, 7)
    assert len(spans()) == 6, "each by itself, and one that lies over them all"
    epoch(0, 40_000, 11)
    after = spans()
    assert len(after) > 1
    assert all(first[1] < then[0] for first, then in itertools.pairwise(after)), "what lay over each other does not"
    wanted = dict.fromkeys(range(40_000), "0") | dict.fromkeys(range(0, 1_000, 10), "1")
    wanted |= dict.fromkeys(range(0, 40_000, 7), "2") | dict.fromkeys(range(0, 40_000, 11), "3")
    found = made.rows()
    assert len(found) == 40_000
    assert {row["id"]: row["text"] for row in found} == wanted


@pytest.mark.parametrize("kind", todays(FORMATS, 1))
def test_a_table_grows_with_its_rows(kind: str, written: Callable[[str], Written]) -> None:
    made = written(kind)
    for sink in (made.sink(key="id"), made.sink()):
        made.number, made.name, made.folder = 0, f"grown{next(numbers)}", made.folder / "next"
        sink = lake(made.name, format=made.format, key=sink.key or None, name="lake")
        made.write(made.spark.sql("SELECT 1 AS id, CAST(1 AS FLOAT) AS score, 1.5BD AS price, 'a' AS old"), sink)
        wide = "5000000000L AS id, 2.5D AS score, CAST(1234567.5 AS DECIMAL(12,1)) AS price, array(1) AS more"
        made.write(made.spark.sql(f"SELECT {wide}"), sink)
        # Narrower ones are taken as they are, and what rows no longer have is null.
        made.write(made.spark.sql("SELECT 7 AS id, CAST(7 AS FLOAT) AS score"), sink)
        found = sorted(made.rows(), key=lambda row: row["id"])
        assert [(row["id"], row["score"], row["price"], row["old"], row["more"]) for row in found] == [
            (1, 1.0, Decimal("1.5"), "a", None),
            (7, 7.0, None, None, None),
            (5_000_000_000, 2.5, Decimal("1234567.5"), None, [1]),
        ]
        remedy = "millrace rebuild lake" if kind == "delta" else "name another table: Iceberg"
        with pytest.raises(SinkTargetUnfit, match=f"'old' is string there and int here.*{remedy}"):
            made.write(made.spark.sql("SELECT 1 AS id, 1 AS old"), sink)
        for key, told in (("old", "old"), (None, "nothing")) if sink.key else ():
            with pytest.raises(SinkTargetUnfit, match=f"known by id, and these by {told}: .*millrace rebuild lake"):
                made.write(made.spark.sql("SELECT 1 AS id, 'a' AS old"), made.sink(key=key))
    with pytest.raises(SinkTargetUnfit, match="divided by nothing: divide by the same"):
        made.write(made.spark.sql("SELECT 1 AS id"), lake(made.name, format=made.format, name="x", partition_by="id"))
    other: Any = {"delta": "iceberg", "iceberg": "delta"}[kind]
    with pytest.raises(SinkTargetUnfit, match=f"there it is a table of {kind}: name another table"):
        made.write(made.spark.sql("SELECT 1 AS id"), lake(made.name, format=other, name="y"))


@pytest.mark.parametrize("kind", todays(FORMATS[::-1], 1))
def test_two_writers_and_what_is_left_of_one_that_was_cut_off(
    kind: str, written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = written(kind)
    rows = made.spark.range(5)
    made.write(rows)
    with pytest.raises(LakeTaken, match=f"{made.name}', which flow writes"):
        made.write(rows, flow="other")

    # Somebody commits between the files and their commit: nothing of this epoch is there, and it can be written again.
    filled = writing.fill

    def beaten(table: LakeTable, *words: Any) -> list[str]:
        found = filled(table, *words)
        with made.table() as other:
            other.commit(Committed(other.note()))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(writing, "fill", beaten)
        with pytest.raises(LakeConflict, match="somebody else committed first: nothing has changed"):
            made.write(rows)
    assert len(made.rows()) == 5
    with made.table() as table:
        left = _folders(table)
    assert len(left) == 2
    made.write(rows)
    assert len(made.rows()) == 10
    with made.table() as table:
        assert len(_folders(table)) == 2
        assert len(_folders(table) & left) == 1, "what was left is gone, what is read is not"

    # A commit that says nothing of us, a disk that is full, and a table that somebody removed.
    with made.table() as table:
        table.commit(Committed(None))
        assert table.note() == Note("flow", 1, "[1]", table.note().folder)  # type: ignore[union-attr]
        folder = table.folder
    with monkeypatch.context() as patch:
        patch.setattr(place, "sync_alone", _full)
        with pytest.raises(SinkFailed, match="No space left"):
            made.write(rows)
    made.write(rows)
    assert len(made.rows()) == 15
    folder.rename(folder.with_name(f"{folder.name}_away"))
    gone = (SinkTargetGone, "flow up to epoch 2, and somebody emptied it")
    if kind == "iceberg":  # the catalog knows that there was one
        gone = (LakeTableAway, f"nothing is at {folder}.*millrace rebuild")
    with pytest.raises(gone[0], match=gone[1]):
        made.write(rows)


def _folders(table: LakeTable) -> set[str]:
    return {path.name for path in (table.folder / DATA / "flow").iterdir()}


def _full(folder: Path) -> None:
    raise OSError(28, "No space left on device", str(folder))


def test_what_cannot_be_a_lake_table(spark: SparkSession) -> None:
    for words, option in (
        ({"table": "a b"}, "table"),
        ({"format": "hudi"}, "format"),
        ({"key": []}, "key"),
        ({"partition_by": [1]}, "partition_by"),
        ({"cluster_by": [""]}, "cluster_by"),
    ):
        with pytest.raises(OptionInvalid, match=option):
            lake(**{"table": "orders", **words})
    columns = spark.sql("SELECT 1 AS id, 2 AS ID, 1.5D AS score, true AS yes, 1 AS `a b`").schema
    for name, options, refusal, reason in (
        ("id", {"key": "nix"}, SinkKeyUnknown, "'nix'"),
        ("id", {"partition_by": "nix"}, SinkKeyUnknown, "'nix'"),
        ("score", {"partition_by": "score"}, SinkColumnUnfit, "not divided by a double"),
        ("id", {"cluster_by": "nix"}, SinkKeyUnknown, "'nix'"),
        ("id", {"cluster_by": "id", "key": "id"}, SinkColumnUnfit, "with a key lies side by side by that"),
        ("yes", {"cluster_by": "yes"}, SinkColumnUnfit, "no order by a boolean"),
        ("a b", {}, SinkColumnUnfit, "no spaces"),
    ):
        with pytest.raises(refusal, match=reason):
            lake("orders", **options).check(
                Feed(StructType([columns[name]]), tuple(filter(None, [options.get("key")])))
            )
    with pytest.raises(SinkColumnUnfit, match="however it is spelt"):
        lake("orders").check(Feed(StructType(columns.fields[:2])))
