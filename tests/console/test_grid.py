"""Rows as texts: nothing of them is lost, nothing of them is a page's own HTML."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from millrace.console.grid import PAGE, Grid, cell


def test_rows_keep_their_digits_their_nulls_and_columns_of_one_name() -> None:
    grid = Grid.of_json(['{"a":1.10,"a":null,"b":{"c":[1,2.5]}}', '{"a":900719925474099312345,"a":true,"b":"x"}'])
    assert grid.columns == ("a", "a", "b")
    assert grid.rows == (("1.10", None, '{"c": [1, 2.5]}'), ("900719925474099312345", "true", "x"))
    assert Grid.of_json([]) == Grid((), ())


def test_values_of_python() -> None:
    east = timezone(timedelta(hours=2))
    assert [cell(each) for each in (None, "x", True, Decimal("1.50"), datetime(2026, 1, 1, 2, tzinfo=east), [1])] == [
        None, "x", "true", "1.50", "2026-01-01T00:00:00+00:00", "[1]",
    ]  # fmt: skip
    assert cell(datetime(2026, 1, 1)) == "2026-01-01T00:00:00"
    assert cell({"at": datetime(2026, 1, 1, tzinfo=UTC)}) == '{"at": "2026-01-01 00:00:00+00:00"}'


@given(st.integers(0, 3 * PAGE))
def test_every_row_is_on_one_page(count: int) -> None:
    grid = Grid(("n",), tuple((str(number),) for number in range(count)))
    pages = [re.findall(r"<td [^>]*>(\d+)</td>", grid.html(page)) for page in range(1, grid.pages + 1)]
    assert [int(each) for page in pages for each in page] == list(range(count))
    assert all(len(page) == PAGE for page in pages[:-1])


def test_money_stands_right_too() -> None:
    drawn = Grid(("balance", "name"), (("$1,967.78", "$x"), ("$-3.10", "y"))).html()
    assert '<th class="mr-right">balance</th><th class="">name</th>' in drawn


def test_numbers_stand_right_fresh_rows_are_marked_and_what_is_html_is_shown() -> None:
    drawn = Grid(("n", "t"), (("1", "<b>"), (None, "2"))).html(fresh={1})
    assert '<th class="mr-right">n</th><th class="">t</th>' in drawn
    assert "&lt;b&gt;" in drawn
    assert '<tr class=mr-fresh><td class="mr-right mr-null">null</td>' in drawn
