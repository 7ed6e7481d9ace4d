"""PostgreSQL as a sink: the suite, every type, and tables that grow."""

from __future__ import annotations

import contextlib
import itertools
import random
import string
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace import local
from millrace.config import Settings
from millrace.errors import SinkColumnUnfit, SinkFailed, SinkRefusesMost, SinkTableGone, SinkTableUnfit
from millrace.kernel.pieces import copy_pieces
from millrace.sinks import DIFF, VERSION, Epoch, Feed, RefusedRow, Sink, Writer, postgres_writer
from millrace.sinks.postgres import postgres as postgres_sink
from millrace.sinks.postgres_direct import Direct
from millrace.sinks.postgres_table import Target
from millrace.sinks.postgres_writer import PostgresWriter
from millrace.sinks.tasks import in_tasks
from millrace.testing.sinks import SinkSuite

TYPES = """
    tiny byte, short short, whole int, long long, single float, double double, yes boolean, day date, at timestamp,
    local timestamp_ntz, bytes binary, text string, money decimal(12,2), huge decimal(38,18), numbers array<int>,
    words array<string>, moments array<timestamp>, blobs array<binary>, pair struct<a:int,b:string>,
    pairs array<struct<a:int>>, tags map<string,int>
"""

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)


def ran(url: str, *statements: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        for statement in statements:
            found = connection.execute(statement)  # type: ignore[call-overload]
            rows = found.fetchall() if found.description else []
    return rows


class TestPostgres(SinkSuite):
    @pytest.fixture(autouse=True)
    def _server(self, settings: Settings, postgres: str) -> None:
        self.project, self.url = settings, postgres

    def settings(self) -> Settings:
        return self.project

    def sink(self, *, keyed: bool) -> Sink:
        return postgres_sink(f"held{next(_numbers)}", key="id" if keyed else None)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        return ran(self.url, f'SELECT * FROM "{sink.table}"')  # type: ignore[attr-defined]

    def refused_row(self, sink: Sink) -> Mapping[str, Any]:
        ran(self.url, f'ALTER TABLE "{sink.table}" ADD CHECK (score < 100)')  # type: ignore[attr-defined]
        return {"id": 4711, "name": "odd", "score": 1000.0}

    def too_large_row(self, sink: Sink) -> Mapping[str, Any]:
        """Larger than an entry of an index can be."""
        ran(self.url, f'CREATE INDEX ON "{sink.table}" (name)')  # type: ignore[attr-defined]
        return {"id": 4712, "name": "".join(random.choices(string.ascii_letters, k=20_000))}

    def without_ledger(self, sink: Sink) -> AbstractContextManager[None]:
        """The server refuses the entry, inside the transaction: of the short way, and of the long one."""

        @contextlib.contextmanager
        def refusing() -> Iterator[None]:
            ran(
                self.url,
                "CREATE OR REPLACE FUNCTION refused() RETURNS trigger AS 'BEGIN RAISE ''not now''; END' "
                "LANGUAGE plpgsql",
                "CREATE TRIGGER refused BEFORE INSERT OR UPDATE ON millrace_ledger FOR EACH ROW "
                f"WHEN (NEW.sink = '{sink.name}') EXECUTE FUNCTION refused()",
            )
            try:
                yield
            finally:
                ran(self.url, "DROP TRIGGER refused ON millrace_ledger")

        return refusing()

    def away(self) -> AbstractContextManager[None]:
        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            local.down(self.project, ("postgres",))
            try:
                yield
            finally:
                self.url = local.up(self.project, ("postgres",))["postgres"]

        return stopped()


def epoch(sink: Sink, settings: Settings, rows: DataFrame, *, number: int = 0) -> list[RefusedRow]:
    """Writes one epoch of rows, all that came unless they say otherwise."""
    feed = Feed(rows.drop(DIFF).schema, sink.key)
    sink.check(feed)
    writer, refused = sink.open(settings, "flow", feed, Path()), list[RefusedRow]()
    diff = F.col(DIFF) if DIFF in rows.columns else F.lit(1)
    given = rows.withColumn(DIFF, diff).withColumn(VERSION, F.lit(number).cast("long"))
    with contextlib.closing(writer):
        writer.write(Epoch("flow", number, "[]"), given, refused.extend)
    return refused


def test_every_type_is_held_as_it_is(spark: SparkSession, settings: Settings, postgres: str) -> None:
    sink = postgres_sink(f"Every Type{next(_numbers)}")
    day, at = date(2026, 2, 28), datetime(2026, 2, 28, 23, 59, 59, 123456, UTC)
    local_at, odd = datetime(1, 1, 1, 0, 0, 0, 1), "tab\t, line\nend, \\N, \\., quote\" and 'x' €\r"
    values = (
        *(-128, -32768, -2147483648, -9223372036854775808, 1.5, float("-inf"), True, day, at, local_at, b"\x00\xff\\"),
        *(odd, Decimal("-1234567890.12"), Decimal("0.000000000000000001"), [1, None, 3], [odd, None, ""], [at, None]),
        *([b"\x00", None], (1, odd), [(1,), None], {"a": 1, odd: 2}),
    )
    schema = StructType.fromDDL(TYPES)
    empty = tuple([] if field.dataType.typeName() == "array" else None for field in schema.fields)
    rows = spark.createDataFrame([values, empty, (None,) * len(values)], schema)
    ends = spark.sql("""
        SELECT date_from_unix_date(2147483647) AS day, timestamp_micros(-9223372036854775807 - 1) AS at,
               TIMESTAMP_NTZ '+294247-01-10 04:00:54.775807' AS local
        UNION ALL SELECT DATE '-0043-03-15', TIMESTAMP '+12345-01-02 03:04:05.678', TIMESTAMP_NTZ '0000-12-31 00:00:00'
    """)
    nul = spark.createDataFrame([("a\0b",), ("ab",)], "text string")
    rows = rows.unionByName(ends, allowMissingColumns=True).unionByName(nul, allowMissingColumns=True)
    (refused,) = epoch(sink, settings, rows)
    assert "character 0" in refused.reason

    (found,) = ran(postgres, f'SELECT * FROM "{sink.table}" WHERE tiny IS NOT NULL')
    by_name = dict(zip(schema.names, values, strict=True))
    by_name |= {"pair": {"a": 1, "b": odd}, "pairs": [{"a": 1}, None]}
    assert found == by_name
    # What Python cannot hold, in the server's own words.
    words = "day::text, at::text, local::text, text, numbers::text"
    others = [tuple(row.values()) for row in ran(postgres, f'SELECT {words} FROM "{sink.table}" WHERE tiny IS NULL')]
    assert sorted(others, key=str) == sorted(
        [
            ("infinity", "-infinity", "infinity", None, None),
            ("0044-03-15 BC", "12345-01-02 03:04:05.678+00", "0001-12-31 00:00:00 BC", None, None),
            (None, None, None, "ab", None),
            (None, None, None, None, "{}"),
            (None, None, None, None, None),
        ],
        key=str,
    )


def test_keys_come_change_and_go_in_one_epoch(spark: SparkSession, settings: Settings, postgres: str) -> None:
    """Also where one statement for all cannot do it: a value that must be unique passes from one row to another."""
    name = f"passed{next(_numbers)}"
    ran(postgres, f"CREATE TABLE {name} (id bigint PRIMARY KEY, code text UNIQUE, tags text[])")
    sink, columns = postgres_sink(name, key="id"), f"id long, code string, tags array<string>, {DIFF} int"

    def written(number: int, *rows: tuple[int, str, list[str | None] | None, int]) -> dict[int, Any]:
        assert epoch(sink, settings, spark.createDataFrame(list(rows), columns), number=number) == []
        return {row["id"]: (row["code"], row["tags"]) for row in ran(postgres, f"SELECT * FROM {name}")}

    held = {1: ("a", ["x", None]), 2: ("b", []), 3: ("c", None)}
    assert written(0, *((key, code, tags, 1) for key, (code, tags) in held.items())) == held
    held = {1: ("A", None), 3: ("c", None), 4: ("d", ["y"])}
    assert written(1, (1, "A", None, 1), (2, "b", [], -1), (4, "d", ["y"], 1), (5, "never", None, -1)) == held
    held = {1: ("A", None), 4: ("d", ["y"]), 0: ("c", []), 9: ("e", None)}
    assert written(2, (0, "c", [], 1), (3, "c", None, -1), (9, "e", None, 1)) == held


def test_a_table_grows_with_the_rows_and_keeps_what_it_has(
    spark: SparkSession, settings: Settings, postgres: str
) -> None:
    name = f"grown{next(_numbers)}"
    ran(
        postgres,
        f"CREATE TABLE {name} (id int PRIMARY KEY, code varchar(4), price numeric(6,2), own text DEFAULT 'kept')",
        f"INSERT INTO {name} VALUES (7, 'old', 1.5)",
    )
    sink = postgres_sink(name, key="id")
    rows = spark.createDataFrame(
        [(5_000_000_000, "long", Decimal("12345678.123"), 1.5), (7, "new", None, None), (8, "too long", None, None)],
        "id long, code string, price decimal(12,3), score double",
    )
    (refused,) = epoch(sink, settings, rows)
    assert "value too long for type character varying(4)" in refused.reason
    assert refused.key == "8"
    assert ran(postgres, f"SELECT * FROM {name} ORDER BY id") == [
        {"id": 7, "code": "new", "price": None, "own": "kept", "score": None},
        {"id": 5_000_000_000, "code": "long", "price": Decimal("12345678.123"), "own": "kept", "score": 1.5},
    ]

    with pytest.raises(SinkColumnUnfit, match=r"'own'.*the table has it as text, and rows have it as integer"):
        epoch(postgres_sink(name, key="id", name="other"), settings, spark.sql("SELECT 1L AS id, 5 AS own"))
    with pytest.raises(SinkColumnUnfit, match=r"'id'.*the table wants a value for it"):
        epoch(postgres_sink(name, name="other"), settings, spark.sql("SELECT 'a' AS code"))
    with pytest.raises(SinkTableUnfit, match="no unique index on code"):
        epoch(postgres_sink(name, key="code", name="other"), settings, rows)
    with pytest.raises(SinkTableUnfit, match='schema "nowhere" does not exist'):
        epoch(postgres_sink("nowhere.items"), settings, rows)
    ran(postgres, f"DROP TABLE {name}")
    with pytest.raises(SinkTableGone, match="holds flow up to epoch 0: put it back, or build it again"):
        epoch(sink, settings, rows, number=1)
    with pytest.raises(SinkColumnUnfit, match="PostgreSQL has no type for interval"):
        epoch(postgres_sink(name, name="other"), settings, spark.sql("SELECT INTERVAL '1' DAY AS length"))


def test_new_rows_take_the_short_way_until_a_row_does_not_allow_it(
    spark: SparkSession, settings: Settings, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged: list[bool] = []
    staging = PostgresWriter._stage
    monkeypatch.setattr(PostgresWriter, "_stage", lambda self, rows: staged.append(True) or staging(self, rows))

    def written(writer: Writer, number: int, *rows: tuple[int, str, int]) -> tuple[bool, int]:
        """Whether it went the long way, and how many rows were refused."""
        refused: list[RefusedRow] = []
        staged.clear()
        given = spark.createDataFrame(list(rows), f"id long, name string, {DIFF} int").repartition(2)
        given = given.withColumn(VERSION, F.lit(number).cast("long"))
        writer.write(Epoch("flow", number, "[]"), given, refused.extend)
        return bool(staged), len(refused)

    def holds(sink: Sink) -> list[tuple[int, str]]:
        return sorted((row["id"], row["name"]) for row in ran(postgres, f"SELECT * FROM {sink.table}"))  # type: ignore[attr-defined]

    columns = StructType.fromDDL("id long, name string")
    keys, rows = (postgres_sink(f"short{next(_numbers)}", key=key) for key in ("id", None))
    with contextlib.closing(keys.open(settings, "flow", Feed(columns, ("id",), signed=True), Path())) as writer:
        assert written(writer, 0, (1, "a", 1), (2, "b", 1)) == (False, 0)
        assert written(writer, 1, (3, "c", 1)) == (False, 0)
        assert written(writer, 2) == (False, 0)
        assert written(writer, 3, (4, "d", 1), (2, "B", 1)) == (True, 0)
        assert written(writer, 4, (1, "a", -1), (5, "e", 1)) == (True, 0)
    assert holds(keys) == [(2, "B"), (3, "c"), (4, "d"), (5, "e")]
    with contextlib.closing(rows.open(settings, "flow", Feed(columns), Path())) as writer:
        assert written(writer, 0, (1, "a", 1), (1, "a", 1)) == (False, 0)
        assert written(writer, 1, (2, "b\0", 1), (3, "c", 1)) == (True, 1)
        assert written(writer, 2, (4, "d", 1)) == (True, 0)
        assert written(writer, 3, (5, "e", 1)) == (False, 0)
    assert holds(rows) == [(1, "a"), (1, "a"), (3, "c"), (4, "d"), (5, "e")]


def test_a_task_of_the_short_way_that_is_done_again_or_cut_off(
    spark: SparkSession, settings: Settings, postgres: str
) -> None:
    """Also where nobody asks the ledger: Spark's repetition is not the user's."""
    sink = postgres_sink(f"short{next(_numbers)}")
    numbers = spark.range(3).select(F.lit(None).cast("string"), F.lit(None).cast("string"), "id", F.lit(1))
    sink.open(settings, "flow", Feed(spark.range(1).schema), Path()).close()
    copy = sql.SQL("COPY {} (id) FROM STDIN (FORMAT BINARY)").format(sql.Identifier(sink.table))
    pieces = copy_pieces(numbers.coalesce(1), ["bigint"], signed=False)

    def task(number: int) -> Direct:
        return Direct(sink, postgres, "flow", Epoch("flow", number, "[]", checked=False), Target.of(sink.table), copy)

    for _ in range(2):
        assert in_tasks(pieces, sink, task(0)) == [True]
        assert sorted(row["id"] for row in ran(postgres, f"SELECT id FROM {sink.table}")) == [0, 1, 2]
    *cut, end = pieces.collect()
    assert end[:1] == b"E"
    with pytest.raises(SinkFailed, match="cut off"):
        list(task(1)(iter(cut)))
    assert ran(postgres, f"SELECT count(*) AS rows FROM {sink.table}") == [{"rows": 3}]
    read: list[str] = []

    def told() -> Iterator[bytes]:
        yield from (*cut, end)
        read.append("to the end")

    assert list(task(1)(told())) == [True]
    assert read == ["to the end"], "Spark ends a worker that left anything unread, and starts another"


def test_what_a_lost_task_has_staged_is_never_merged(spark: SparkSession, settings: Settings, postgres: str) -> None:
    sink = postgres_sink(f"staged{next(_numbers)}")
    rows = spark.range(10).toDF("id")
    # A table that rows cannot be copied into as they are.
    ran(postgres, f"CREATE TABLE {sink.table} (id numeric)")
    feed = Feed(rows.schema)
    writer = sink.open(settings, "flow", feed, Path())
    given = rows.withColumn(DIFF, F.lit(1)).withColumn(VERSION, F.lit(0).cast("long"))
    # As a task of a killed process does that is still at work: rows under the number of another attempt.
    (staging,) = (row["name"] for row in ran(postgres, "SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND "
                                             "relname LIKE 'millrace_staged_%' ORDER BY oid DESC LIMIT 1"))  # fmt: skip
    ran(postgres, f'INSERT INTO {staging} (id, "__diff", "__attempt") VALUES (99, 1, 4711)')
    writer.write(Epoch("flow", 0, "[]"), given, lambda _: None)
    writer.close()
    assert {row["id"] for row in ran(postgres, f"SELECT id FROM {sink.table}")} == set(range(10))
    assert ran(postgres, f"SELECT count(*) AS rows FROM {staging}") == [{"rows": 0}]


@pytest.mark.parametrize("why", ["no text can hold them", "the server refuses them"])
def test_a_target_that_refuses_most_rows_ends_the_epoch(
    spark: SparkSession, settings: Settings, postgres: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(postgres_writer, "MOST_REFUSED", 5)
    sink = postgres_sink(f"most{next(_numbers)}")
    ran(postgres, f"CREATE TABLE {sink.table} (id bigint CHECK (id > 0), name text)")
    name = "concat('a', char(0))" if why == "no text can hold them" else "'a'"
    some = spark.range(-5, 1).selectExpr("id", f"{name} AS name")
    with pytest.raises(SinkRefusesMost, match="refused more than 5 rows of one epoch"):
        epoch(sink, settings, some)
    assert ran(postgres, f"SELECT * FROM {sink.table}") == []
    # Nothing of it counts as written: with a target that was mended it is.
    ran(postgres, f"ALTER TABLE {sink.table} DROP CONSTRAINT {sink.table}_id_check")
    assert not epoch(sink, settings, spark.range(-5, 1).selectExpr("id", "'b' AS name"))
    assert len(ran(postgres, f"SELECT * FROM {sink.table}")) == 6
