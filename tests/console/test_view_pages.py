"""The pages of views and of the lake in a real browser, over what their flows write: rows, changes as they come,
versions, queries."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from millrace.config import Settings
from millrace.flow import load_app
from millrace.lakehouse import Catalog, LakeTable
from millrace.log import Log
from tests.command import until
from tests.console import browser as own
from tests.lakehouse.filled import COLUMNS, epoch, file_of
from tests.serve.world import Written

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.server

APP = '''
    """Orders, and what they come to."""

    import millrace as mr

    app = mr.App("sold")
    app.topic("sold_orders", "id long not null, region string, amount decimal(12,2), at timestamp", time="at",
              lateness="10 seconds")

    app.view("revenue", key="region", sql="""
        SELECT region, count(*) AS orders, sum(amount) AS total, max(at) AS latest
        FROM sold_orders
        GROUP BY region""")
    app.view("unfilled", key="region", sql="SELECT region, count(*) AS n FROM sold_orders GROUP BY region")
'''
SLOW = "SELECT region FROM revenue, generate_series(1, 100000) a, generate_series(1, 100000) b WHERE a = -b"
REGIONS = ("Berlin", "Bremen", "Essen", "Hamburg", "Jena", "Kiel", "Köln", "Leipzig", "Mainz", "Ulm")


def row(region: str, orders: int, total: str | None) -> dict[str, Any]:
    return {"region": region, "orders": orders, "total": total, "latest": "2026-01-31T12:00:00.000Z"}


@pytest.fixture(scope="module")
def written(settings: Settings, postgres: str) -> Iterator[Written]:
    module = settings.folder / "sold.py"
    module.write_text(textwrap.dedent(APP))
    found = Written(Log(settings), load_app("sold:app", settings), "revenue").begin()
    with contextlib.ExitStack() as ending:
        ending.callback(found.end)
        ending.callback(module.unlink)
        found.write(*(row(name, 7 * n % 23 + 3, f"{(91 * n % 64 + 9) * 101}.{n}0") for n, name in enumerate(REGIONS)))
        found.applied()
        yield found


@pytest.fixture(scope="module")
def stored(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> LakeTable:
    """A table of a lake of our own, with a few versions."""
    with_lake = replace(settings, lake=replace(settings.lake, folder=tmp_path_factory.mktemp("lake")))
    table = Catalog(with_lake).table("sold_lake", "delta")
    table.load()
    table.create(COLUMNS, ())
    for number in range(6):
        epoch(table, number, [file_of(table, range(10 * number, 10 * number + 10))])
    return table


@pytest.fixture(scope="module")
def address(settings: Settings, written: Written, stored: LakeTable) -> Iterator[str]:
    with own.console(settings.folder, "sold:app", env={"MILLRACE_LAKE_FOLDER": str(stored.folder.parent)}) as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with own.page(browser, address) as found:
        yield found


def cells(page: Page, panel: str) -> list[list[str]]:
    """What the table of a panel shows."""
    rows = page.locator(".mr-panel", has=page.get_by_text(panel, exact=True)).locator(".mr-rows tbody tr")
    return [line.split("\t") for line in rows.all_inner_texts()]


def falls(totals: list[list[str]]) -> bool:
    """A row that is drawn just now has no cells yet."""
    return all(totals) and totals == sorted(totals, key=lambda each: -float(each[0]))


def test_a_view_is_found_from_the_map_and_changes_are_seen_as_they_come(
    page: Page, address: str, written: Written
) -> None:
    page.goto(address)
    page.get_by_role("button", name="view revenue").click()
    page.get_by_role("dialog").get_by_role("link", name="View revenue").click()
    page.wait_for_url("**/view/revenue")
    page.get_by_text("Nothing has changed since somebody looks").wait_for()
    until(lambda: [line[0] for line in cells(page, "Rows")] == list(REGIONS), "all rows, by their key")
    assert cells(page, "Rows")[0] == ["Berlin", "3", "909.00", "2026-01-31T12:00:00+00:00"]
    lsn = written.write(row("Berlin", 4, "1009.00"), row("Zwickau", 1, None), gone=(row("Ulm", 0, None),))
    page.get_by_text(lsn, exact=True).wait_for()
    until(lambda: len(cells(page, "Changes")) == 3, "what changed")
    told = {line[2]: (line[1], line[3]) for line in cells(page, "Changes")}
    assert told["Berlin"] == ("changed", "orders: 3 → 4, total: 909.00 → 1009.00")
    assert told["Zwickau"] == ("came", "orders: 1, total: null, latest: 2026-01-31T12:00:00+00:00")
    assert told["Ulm"][0] == "gone"
    until(lambda: cells(page, "Rows")[0][:3] == ["Berlin", "4", "1009.00"], "the row as it is now")
    assert [line[0] for line in cells(page, "Rows")] == [*REGIONS[:-1], "Zwickau"]
    page.get_by_label("Search", exact=True).fill("ber")
    page.get_by_text("1 with that text, of 10 rows").wait_for()
    page.get_by_label("Search", exact=True).fill("")
    page.get_by_label("Order by").click()
    page.get_by_role("option", name="total").click()
    page.get_by_role("switch", name="Descending").click()
    until(lambda: [line[0] for line in cells(page, "Rows")][-1] == "Zwickau", "nulls last, in either direction")
    until(lambda: falls([line[2:3] for line in cells(page, "Rows")[:-1]]), "the totals fall")
    written.write(row("Kiel", 16, "1777.50"), row("Jena", 9, "5531.00"))
    until(lambda: len(cells(page, "Changes")) == 5, "what changed")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("10 rows · ").wait_for()
    page.mouse.move(640, 160)
    own.picture(page, "view")
    page.get_by_label("SQL").fill(
        "SELECT region, orders, total, round(total / orders, 2) AS mean\n"
        "FROM revenue\nWHERE orders > 1\nORDER BY mean DESC\nLIMIT 5"
    )
    page.get_by_label("SQL").press("Control+Enter")
    page.get_by_text("5 rows · ").wait_for()
    own.picture(page, "query", "Query")
    page.get_by_role("link", name="Flow revenue").click()
    page.wait_for_url("**/flow/revenue")


def test_a_query_is_answered_within_limits_or_refused_with_a_reason(page: Page, address: str) -> None:
    page.goto(f"{address}/view/revenue")
    sql, run = page.get_by_label("SQL"), page.get_by_role("button", name="Run")
    sql.fill("SELECT r.region, n FROM revenue r, generate_series(1, 30) n ORDER BY 1, 2;")
    page.get_by_label("Rows at most").fill("120")
    sql.press("Control+Enter")
    page.get_by_text("120 rows, and there are more · ").wait_for()
    until(lambda: len(cells(page, "Query")) == 50, "the first page")
    page.locator(".mr-panel", has=page.get_by_text("Query", exact=True)).get_by_role("button", name="Next page").click()
    until(
        lambda: [line[-1] for line in cells(page, "Query")[:1]] == ["21"], "the next page begins where the first ended"
    )
    for refused, code in (
        ("DELETE FROM revenue", "MR-QUERY-REFUSED"),
        ("SELECT * FROM pg_authid", "MR-QUERY-REFUSED"),
        (SLOW, "MR-QUERY-TOO-SLOW"),
    ):
        sql.fill(refused)
        run.click()
        page.get_by_text(code).wait_for()
        page.get_by_text("What to do: ").wait_for()
    page.get_by_label("Rows at most").fill("20000")
    run.click()
    page.get_by_text("MR-REQUEST-INVALID").wait_for()
    page.get_by_label("Rows at most").fill("10")
    sql.fill("SELECT count(*) AS n FROM revenue WHERE false")
    run.click()
    page.get_by_text("1 row · ").wait_for()
    until(lambda: cells(page, "Query") == [["0"]], "the answer")


def test_the_list_of_views_and_one_that_is_not_filled(page: Page, address: str) -> None:
    page.goto(f"{address}/view")
    page.get_by_role("row", name="unfilled").get_by_text("not filled yet").wait_for()
    page.get_by_role("link", name="unfilled").click()
    page.wait_for_url("**/view/unfilled")
    page.get_by_text("The view cannot be looked at").wait_for()
    page.get_by_text("What to do: ").first.wait_for()
    page.goto(f"{address}/view/revenu")
    page.get_by_text("did you mean 'revenue'?").wait_for()


def test_a_table_of_the_lake_is_asked_as_it_was(page: Page, address: str, stored: LakeTable) -> None:
    page.goto(f"{address}/lake")
    page.get_by_role("link", name="sold_lake").click()
    page.wait_for_url("**/lake/sold_lake")
    dots = page.locator(".mr-version")
    until(lambda: dots.count() == 7, "a dot for each version")
    page.get_by_text("version 6 · ").wait_for()
    page.get_by_role("button", name="version 2", exact=True).click()
    until(lambda: page.get_by_label("As of").input_value() == "2", "it is chosen")
    page.get_by_text("holds shop.orders up to 0:20 1:20").wait_for()
    run = page.get_by_role("button", name="Run")
    run.click()
    page.get_by_text("20 rows · ").wait_for()
    page.get_by_text("as of sold_lake version 2").wait_for()
    page.get_by_role("button", name="Older").click()
    until(lambda: page.get_by_label("As of").input_value() == "1", "the version before")
    for _ in range(2):
        page.get_by_role("button", name="Newer").click()
    until(lambda: page.get_by_label("As of").input_value() == "3", "the next version")
    page.get_by_label("SQL").fill(
        "SELECT region, count(*) AS orders, sum(amount) AS total FROM sold_lake GROUP BY region"
    )
    page.get_by_label("SQL").press("Control+Enter")
    until(lambda: cells(page, "Query") == [["north", "30", "435.00"]], "the answer of version 3")
    page.mouse.move(640, 90)
    own.picture(page, "lake")
    epoch(stored, 6, [file_of(stored, range(60, 65))])
    until(lambda: dots.count() == 8, "a version that came meanwhile")
    page.get_by_role("button", name="Newest").click()
    run.click()
    until(lambda: cells(page, "Query")[0][1] == "65", "the answer of the newest")
    page.get_by_label("As of").fill("soon")
    run.click()
    page.get_by_text("MR-LAKE-MOMENT-INVALID").wait_for()
    page.get_by_label("As of").fill("1 minute ago")
    page.get_by_label("SQL").fill("SELECT * FROM read_text('/etc/passwd')")
    run.click()
    page.get_by_text("MR-LAKE-QUERY-INVALID").wait_for()
    page.goto(f"{address}/lake/sold_lak")
    page.get_by_text("MR-LAKE-TABLE-UNKNOWN").wait_for()
