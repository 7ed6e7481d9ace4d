"""Values that Python has none for: each as a text, and the others beside them as they are."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import duckdb
import pyarrow
import pytest

from millrace.lakehouse.answers import readable, values

DAY, MOMENT = date(2026, 2, 28), datetime(2026, 2, 28, 12, 0, 0, 250_000)


def counted(kind: pyarrow.DataType, *counts: int | None) -> pyarrow.Array:
    return pyarrow.array(counts, pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()).cast(kind)


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (
            counted(pyarrow.date32(), 2**31 - 1, -(2**31), 3_663_441, -735_160, -719_528, 20_512, None),
            ["infinity", "-infinity", "+12000-02-29", "-0043-03-15", "0000-01-01", DAY, None],
        ),
        (
            counted(
                pyarrow.timestamp("us", "UTC"), 2**63 - 1, -(2**63), 253_402_300_800_000_001, 1_772_280_000_250_000
            ),
            ["infinity", "-infinity", "+10000-01-01T00:00:00.000001+00:00", MOMENT.replace(tzinfo=UTC)],
        ),
        (counted(pyarrow.timestamp("us"), 253_402_300_799_999_999, -(2**63)), [datetime.max, "-infinity"]),
        (counted(pyarrow.timestamp("ns"), 1, 2), ["1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000000002"]),
        (counted(pyarrow.timestamp("s"), -62_167_219_201), ["-0001-12-31T23:59:59"]),
    ],
    ids=["day", "moment", "local", "nanoseconds", "seconds"],
)
def test_days_and_moments(column: pyarrow.Array, wanted: list[Any]) -> None:
    assert values(column) == wanted
    assert values(pyarrow.chunked_array([column, column])) == [*wanted, *wanted]


def test_spans_of_time_are_as_duckdb_writes_them() -> None:
    spans = (
        "0 s", "1 day", "14 months 2 days 5.5 seconds", "-14 months", "-2 days 90 minutes", "-0.000001 s", "100 hours"
    )  # fmt: skip
    for span in spans:
        asked = duckdb.sql(f"SELECT INTERVAL '{span}' AS span, INTERVAL '{span}'::VARCHAR AS text").to_arrow_table()
        assert values(asked["span"]) == asked["text"].to_pylist()


def test_what_has_parts() -> None:
    asked = duckdb.sql(
        "SELECT [DATE 'infinity', DATE '2026-02-28', NULL] AS list, {'a': INTERVAL 1 DAY, 'b': 5} AS parts, "
        "MAP {'x': TIMESTAMP '12000-01-01'} AS map, NULL::DATE[] AS none, TIME_NS '12:00:00.000000001' AS clock"
    ).to_arrow_table()
    assert [values(each) for each in asked.columns] == [
        [["infinity", DAY, None]],
        [{"a": "1 day", "b": 5}],
        [[("x", "+12000-01-01T00:00:00")]],
        [None],
        ["12:00:00.000000001"],
    ]


def test_bytes_are_texts_to_people_where_they_are() -> None:
    assert [readable(each) for each in (b"\xc3\xa4", b"\xff", "text", 5, None)] == ["ä", "/w==", "text", 5, None]
