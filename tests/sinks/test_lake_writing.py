"""How an epoch's files come about: how many, what the driver may hold, what is waited for, and what is remembered."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as Classic

from millrace.config import Settings
from millrace.lakehouse import LakeTable, place
from millrace.lakehouse.asking import connected
from millrace.lakehouse.compacting import compact
from millrace.lakehouse.footers import footers
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Writer, lake_files, lake_here, lake_merging
from tests.rotation import todays
from tests.sinks.lake_written import Written, numbers, refuse
from tests.sinks.test_lake import FORMATS

pytestmark = [pytest.mark.spark, pytest.mark.server]

FLOW = "flow"


@pytest.fixture
def written(spark: SparkSession, settings: Settings, postgres: str, tmp_path: Path) -> Callable[[str], Written]:
    assert postgres
    return lambda kind: Written(spark, settings, tmp_path / str(next(numbers)), kind)


class Going:
    """One writer, as a flow has it, and the offsets that its epochs read."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.number, self.offset = writer, 0, 0

    def epoch(self, rows: DataFrame, records: int | None = None) -> None:
        end = self.offset + (rows.count() if records is None else records)
        ranges = f'[{{"items":{{"0":[{self.offset},{end}]}}}}]'
        given = rows.withColumn(DIFF, F.lit(1)).withColumn(VERSION, F.lit(end).cast("long"))
        self.writer.write(Epoch(FLOW, self.number, ranges), given, refuse)
        self.number, self.offset = self.number + 1, end


@contextlib.contextmanager
def going(made: Written, rows: DataFrame, **options: Any) -> Iterator[Going]:
    sink = made.sink(**options)
    feed = Feed(rows.schema, sink.key, bool(sink.key))
    with contextlib.closing(sink.open(made.settings, FLOW, feed, made.folder / "own")) as writer:
        yield Going(writer)


def test_sinks_that_write_side_by_side_share_their_sessions_settings(spark: SparkSession) -> None:
    frame = spark.range(1)

    def held() -> dict[str, str | None]:
        return {name: spark.conf.get(name) for name in (*lake_files._SESSION, *lake_files._ONE_BY_ONE)}

    before = held()
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(lake_files.set_for_files(frame))
        needed = held()
        second.enter_context(lake_files.set_for_files(frame))
        first.close()
        assert held() == needed != before, "the second is still at work"
    assert held() == before


def test_the_driver_is_given_no_more_rows_than_it_may_hold(
    written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a small epoch nobody counts the next one first."""
    made, given, to_arrow = written("delta"), [], Classic.toArrow
    few = made.spark.range(2).selectExpr("id", "'few' AS text")

    def arrow(frame: Classic) -> Any:
        found = to_arrow(frame)
        given.append(found.num_rows)
        return found

    monkeypatch.setattr(lake_here, "KEYS_HERE", 10)
    monkeypatch.setattr(Classic, "toArrow", arrow)
    with going(made, few, key="id") as flow:
        flow.epoch(few)
        flow.epoch(made.spark.range(0, 1_000, 1, 4).selectExpr("id", "'many' AS text"))
    assert given == [2, 11]
    assert {(row["id"], row["text"]) for row in made.rows()} == {(n, "many") for n in range(1_000)}


@pytest.mark.parametrize("kind", todays(FORMATS, 1))
def test_an_epoch_after_a_small_one_is_written_by_all_cores(
    kind: str, written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, most = written(kind), 250_000
    rows = made.spark.range(0, most, 1, 8).selectExpr("id")

    def files(flow: Going, given: DataFrame, records: int) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(Classic, "count", _uncounted)
            flow.epoch(given, records)
        with made.table() as table:
            return len(table.files())

    cores = made.spark.sparkContext.defaultParallelism
    with going(made, rows, compact=False) as flow:
        assert files(flow, rows.limit(1), 1) == 1
        assert files(flow, rows, most) == 1 + min(cores, 5)
        # A window: most epochs give nothing, and none of them says that the next one will.
        assert files(flow, rows.where("id < 0"), most) == 1 + min(cores, 5)
        assert files(flow, rows, most) == 1 + 2 * min(cores, 5)
    assert cores > 1
    assert len(made.rows()) == 2 * most + 1


def _uncounted(_: Any) -> int:
    raise AssertionError("to count is to compute the rows twice")


@pytest.mark.parametrize("kind", todays(FORMATS[::-1], 1))
def test_a_table_is_divided_by_any_value(kind: str, written: Callable[[str], Written]) -> None:
    """Also by texts that are too long to be told at a file's end, each of which stays by itself when small files are
    written together."""
    texts = ["x" * 5_000 + "1", "x" * 5_000 + "2", "a/b=c", "", None]
    for column, values in (
        ("text string", texts),
        ("whole int", ["0", "-7", "2147483647", None]),
        ("tiny byte", ["-128", "0"]),
        ("yes boolean", ["true", "false", None]),
        ("day date", ["1969-12-31", "2026-02-28", None]),
    ):
        made, (name, sort) = written(kind), column.split()
        base = made.spark.createDataFrame([(n, value) for n, value in enumerate(values)], "id int, value string")
        rows = base.select("id", F.col("value").cast(sort).alias(name))
        wanted = {row["id"]: row[name] for row in rows.collect()}
        sink = made.sink(partition_by=name)
        for _ in range(2):
            made.write(rows, sink)
        with made.table() as table:
            assert len(table.files()) == 2 * len(values)
            compact(table)
            assert len(table.files()) == len(values), column
        emptied = {None if value == "" and kind == "delta" else value for value in wanted.values()}
        held = made.rows()
        assert len(held) == 2 * len(values)
        # Delta knows no empty text where it divides.
        assert all(row[name] == wanted[row["id"]] or (wanted[row["id"]] == "" and row[name] is None) for row in held)
        for value in emptied - {None}:
            found = made.asked(f"SELECT count(*) AS n FROM {{}} WHERE {name} = CAST(? AS VARCHAR)::{_sql(sort)}", value)
            assert found[0]["n"] == 2 * sum(each == value for each in wanted.values()), (column, value)


def _sql(sort: str) -> str:
    return {"string": "VARCHAR", "int": "INTEGER", "byte": "TINYINT"}.get(sort, sort)


@pytest.mark.parametrize("kind", todays(FORMATS[::-1], 1))
def test_rows_that_are_appended_lie_side_by_side_and_readers_pass_over_the_others(
    kind: str, written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_merging, "ROWS_A_FILE", 5_000)
    made = written(kind)
    # In no order, as a topic's partitions bring them.
    rows = made.spark.range(20_000).selectExpr("id", "id % 7 AS other").repartition(4, F.hash("id"))
    with going(made, rows, cluster_by=["id"]) as flow:
        flow.epoch(rows)
    assert files_read(made, "id BETWEEN 120 AND 180") == (1, 61)
    assert files_read(made, "other = 3") == (4, 2857)
    with made.table() as table:
        assert table.cluster_by == ("id",)
        compact(table)
        (file,) = table.files()
        ids = parquet.read_table(table.folder / file.path).column("id").to_pylist()
    assert ids == list(range(20_000)), "it is sorted again when it is written together"
    with going(made, rows) as flow:
        assert flow.writer._table.cluster_by == ()  # type: ignore[attr-defined]


def files_read(made: Written, where: str) -> tuple[int, int]:
    """How many files DuckDB read for a query, by what the commits say of them; and how many rows it found."""
    with made.table() as table, connected() as connection:
        query = f"SELECT count(*) FROM {table.scan()} WHERE {where}"
        (told,) = connection.sql(f"EXPLAIN ANALYZE {query}").fetchall()
        found = re.search(r"Total Files Read: (\d+)", told[1])
        assert found is not None, told[1]
        return int(found[1]), connection.sql(query).fetchall()[0][0]


@pytest.mark.parametrize("kind", todays(FORMATS, 1))
def test_what_spark_wrote_is_on_its_way_to_the_disk_while_its_ends_are_read(
    kind: str, written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, synced = written(kind), threading.Event()
    sync, read = place.sync_alone, LakeTable.footers

    def seen(path: Path) -> None:
        sync(path)
        if path.suffix == ".parquet":
            synced.set()

    def ends(table: LakeTable, paths: Any) -> Any:
        assert synced.wait(60), "nobody began"
        return read(table, paths)

    monkeypatch.setattr(place, "sync_alone", seen)
    monkeypatch.setattr(LakeTable, "footers", ends)
    made.write(made.spark.range(3))
    assert len(made.rows()) == 3


@pytest.mark.parametrize("kind", todays(FORMATS, 1))
def test_columns_whose_values_never_come_again_are_written_without_trying_a_dictionary(
    kind: str, written: Callable[[str], Written]
) -> None:
    made = written(kind)
    rows = made.spark.range(0, 20_000, 1, 1).selectExpr("id", "concat('r', id % 5) AS region", "hash(id) AS `a.b`")
    with going(made, rows, compact=False) as flow:
        table: LakeTable = flow.writer._table  # type: ignore[attr-defined]
        flow.epoch(rows)
        assert table.varied == {"id"}
        table._varied = frozenset({"id", "region"})
        flow.epoch(rows)
        told = {each.path: each.varied for each in footers(table.place, [each.path for each in table.files()])}
        assert sorted(map(len, told.values())) == [2, 3], "it is written as it was said"
        table._filled = 0
        assert not table.varied, "now and then it is tried again"
    assert len(made.rows()) == 40_000


@pytest.mark.parametrize("key", [["day"], ["id", "day", "stamp"]], ids="+".join)
def test_days_that_python_does_not_know_are_keys_like_others(
    key: list[str], written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's infinity, of rows that are valid until others take their place."""
    made = written(todays(FORMATS, 1)[0])

    def rows(word: str) -> DataFrame:
        ends = "date_from_unix_date(2147483647) AS day, timestamp_micros(9223372036854775807) AS stamp"
        return made.spark.sql(f"SELECT id, {ends}, '{word}' AS word FROM range(1)")

    with going(made, rows(""), key=key) as flow:
        for word in ("first", "by the driver"):
            flow.epoch(rows(word))
        monkeypatch.setattr(lake_here, "KEYS_HERE", 0)
        flow.epoch(rows("by Spark"))
    ends = "day::VARCHAR AS day, stamp::VARCHAR AS stamp"
    wanted = [{"id": 0, "day": "infinity", "stamp": "infinity", "word": "by Spark"}]
    assert made.asked(f"SELECT id, {ends}, word FROM {{}} WHERE day = 'infinity'") == wanted
