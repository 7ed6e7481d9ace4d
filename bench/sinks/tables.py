"""The sides of `bench.sinks.stores` that are tables: in PostgreSQL, of new rows and of rows that are there, and in
files. Each target is checked to hold every row."""

from __future__ import annotations

import shutil
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg

from bench.sinks.rows import row_of
from millrace import local
from millrace.sinks import DIFF, VERSION
from millrace.sinks.files import files
from millrace.sinks.postgres import postgres

if TYPE_CHECKING:
    from bench.sinks.stores import Bench

SIDES = ("postgres", "again", "files")
COPY_BYTES = 1024 * 1024
_COLUMNS = "id bigint PRIMARY KEY, name text, score double precision, seen boolean, at timestamptz"
_MERGED = """MERGE INTO {table} t USING arrived s ON t.id = s.id
             WHEN MATCHED THEN UPDATE SET name = s.name, score = s.score, seen = s.seen, at = s.at
             WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name, s.score, s.seen, s.at)"""

_numbers = count(1)


def postgres_ours(bench: Bench) -> float:
    return _ours(bench, epochs=1)


def again_ours(bench: Bench) -> float:
    return _ours(bench, epochs=3)


def _ours(bench: Bench, epochs: int) -> float:
    table = f"ours{next(_numbers)}"
    found = bench.ours(postgres(table, key="id"), bench.records, epochs=epochs)
    with _connected(bench) as connection:
        _dropped(connection, table, bench.records)
    return found


def postgres_bare(bench: Bench) -> float:
    table, lines = f"bare{next(_numbers)}", _lines(bench.records)
    with _connected(bench) as connection:
        _run(connection, f"CREATE TABLE {table} ({_COLUMNS})")
        began = monotonic()
        _copied(connection, table, lines)
        connection.commit()
        spent_s = monotonic() - began
        _dropped(connection, table, bench.records)
    return round(bench.records / spent_s)


def again_bare(bench: Bench) -> float:
    table, lines = f"bare{next(_numbers)}", _lines(bench.records)
    with _connected(bench) as connection:
        _run(connection, f"CREATE TABLE {table} ({_COLUMNS})")
        _copied(connection, table, lines)
        connection.commit()
        began = monotonic()
        _run(connection, f"CREATE TEMPORARY TABLE arrived (LIKE {table}) ON COMMIT DROP", commit=False)
        _copied(connection, "arrived", lines)
        _run(connection, _MERGED.format(table=table))
        spent_s = monotonic() - began
        _dropped(connection, table, bench.records)
    return round(bench.records / spent_s)


def _lines(records: int) -> bytes:
    rows = map(row_of, range(records))
    return "".join("\t".join(str(value) for value in row.values()) + "\n" for row in rows).encode()


def _copied(connection: psycopg.Connection[Any], table: str, lines: bytes) -> None:
    with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:  # type: ignore[call-overload]
        for first in range(0, len(lines), COPY_BYTES):
            copy.write(lines[first : first + COPY_BYTES])


def _dropped(connection: psycopg.Connection[Any], table: str, records: int) -> None:
    found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # type: ignore[call-overload]
    assert found == (records,)
    _run(connection, f"DROP TABLE {table}")


def _run(connection: psycopg.Connection[Any], statement: str, *, commit: bool = True) -> None:
    connection.execute(statement)  # type: ignore[call-overload]
    if commit:
        connection.commit()


def _connected(bench: Bench) -> psycopg.Connection[Any]:
    return psycopg.connect(local.address(bench.settings, "postgres"))


def files_ours(bench: Bench) -> float:
    folder = f"ours{next(_numbers)}"
    found = bench.ours(files(folder), bench.records)
    _removed(bench, folder)
    return found


def files_bare(bench: Bench) -> float:
    folder = f"bare{next(_numbers)}"
    with bench.rows(bench.records) as rows:
        began = monotonic()
        rows.drop(DIFF, VERSION).write.parquet(str(bench.settings.folder / folder))
        spent_s = monotonic() - began
    _removed(bench, folder)
    return round(bench.records / spent_s)


def _removed(bench: Bench, folder: str) -> None:
    path = bench.settings.folder / folder
    assert bench.spark.read.parquet(str(path)).count() == bench.records
    shutil.rmtree(path)
