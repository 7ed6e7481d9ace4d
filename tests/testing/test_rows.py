"""Rows of a play: what a table in Markdown says, and when it is what a topic holds."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from millrace.errors import PlayRowsInvalid
from millrace.testing import tables


def test_a_table_in_markdown_is_rows() -> None:
    text = """
    | name | at    |
    | :--- | ----: |
    | ada  | 10:00 |
    |      | 9:30  |
    """
    assert tables.read(text) == [{"name": "ada", "at": "10:00"}, {"name": None, "at": "9:30"}]
    assert tables.read(tables.shown(tables.read(text))) == tables.read(text)
    for wrong in ("", "name\n----\nada", "| a | b |\n| 1 |"):
        with pytest.raises(PlayRowsInvalid):
            tables.read(wrong)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("12", "long", 12),
        ("12", "string", "12"),
        ("12.50", "decimal(8,2)", "12.50"),
        ("true", "BOOLEAN", True),
        ("[1, 2]", "array<int>", [1, 2]),
        ("9:30", "timestamp", datetime(2026, 1, 1, 9, 30, tzinfo=UTC)),
        ("10:00:00.5", "timestamp", datetime(2026, 1, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-03-01T10:00:00+01:00", "timestamp", datetime(2026, 3, 1, 9, tzinfo=UTC)),
        (None, "long", None),
    ],
)
def test_a_cell_has_its_columns_type(text: str | None, kind: str, value: Any) -> None:
    assert tables.typed(text, kind) == value


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("10:00", "2026-01-01T10:00:00.000000Z", True),
        ("10:01", "2026-01-01T10:00:00.000000Z", False),
        (datetime(2026, 1, 1, 10, tzinfo=UTC), "2026-01-01T11:00:00+01:00", True),
        ("1.50", 1.5, True),
        ("x", 1.5, False),
        (Decimal("1.5"), "1.50", True),
        (1, True, False),
        ("true", True, True),
        (None, 0, False),
        ("", None, False),
        (None, None, True),
        ('{"a": 1}', {"a": 1}, True),
        ([1], [2], False),
        ("a", "a", True),
        ("10", "10", True),
    ],
)
def test_what_counts_as_the_same(expected: Any, found: Any, same: bool) -> None:
    assert tables.same(expected, found) is same
