"""The console without servers and without a run: it says what to do, and shows what there is to see. With 50 nodes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command import millrace, until
from tests.console import browser as own

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.server

APP = """
    import millrace as mr

    app = mr.App("large")
    before = app.topic("visits", "url string, at timestamp", time="at", lateness="2 seconds")
    for number in range(24):

        def body(v):
            return v

        body.__name__ = f"step{number}"
        made = app.stream(before, schema="url string")(body)
        before = made if number % 4 == 3 else before
    app.topic("alone", "url string")
    empty = mr.App("empty")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("away")
    (found / "large.py").write_text(textwrap.dedent(APP))
    return found


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with own.console(folder, "large:app") as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with own.page(browser, address) as found:
        yield found


def test_a_large_map_of_an_app_that_never_ran(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_text("No flow of this app runs").wait_for()
    page.get_by_text("`millrace run large:app`").wait_for()
    page.get_by_text("The topics cannot be looked at").wait_for()
    page.get_by_text("millrace up").first.wait_for()
    until(lambda: page.locator(".mr-node").count() == 50, "every node is drawn")
    until(lambda: page.locator(".mr-edges path").count() == 48, "and every edge")
    last = page.get_by_role("button", name="stream step23", exact=True)
    far = (last.bounding_box() or {"x": 0})["x"]
    page.get_by_role("button", name="Fit").click()
    until(lambda: (last.bounding_box() or {"x": far})["x"] < own.SIZE["width"] < far, "all of it is in the window")
    page.get_by_role("button", name="Fit").click()
    until(lambda: (last.bounding_box() or {"x": 0})["x"] == far, "and as large as before")
    node = page.get_by_role("button", name="stream step23", exact=True)
    node.click()
    page.get_by_role("dialog").get_by_text("Made at large.py").wait_for()
    until(lambda: "never run" in node.inner_text(), "it says that it never ran")


def test_every_other_page_says_what_to_do(page: Page, address: str) -> None:
    page.goto(f"{address}/flow/step3")
    page.get_by_text("This flow does not run").wait_for()
    page.get_by_text("MR-SERVER-DOWN").wait_for()
    for path in ("topic", "topic/visits", "capture"):
        page.goto(f"{address}/{path}")
        page.get_by_text("MR-SERVER-DOWN").first.wait_for()
        page.get_by_text("What to do: ").first.wait_for()
    page.goto(f"{address}/view")
    page.get_by_text("App large has no views").wait_for()
    page.goto(f"{address}/lake")
    page.get_by_text("The lake has no tables yet").wait_for()
    page.get_by_text(".to(mr.lake(NAME))").wait_for()


@pytest.mark.turn(1, 2)
def test_an_empty_app(browser: Browser, folder: Path) -> None:
    with own.console(folder, "large:empty") as address, own.page(browser, address) as page:
        page.goto(address)
        page.get_by_text("App empty has no topics and no streams").wait_for()
        page.goto(f"{address}/flow")
        page.get_by_text("App empty has no flows").wait_for()


def test_where_there_are_tokens_a_browser_shows_one(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(textwrap.dedent(APP))
    secret = millrace("token", "create", "me", "--scope", "console", cwd=tmp_path).stdout.strip()
    with own.console(tmp_path, "large:app") as address, own.page(browser, address) as page:
        page.goto(f"{address}/flow")
        page.wait_for_url("**/enter")
        page.get_by_label("Token").fill("mrt_guessed")
        page.get_by_role("button", name="Enter").click()
        page.get_by_text("MR-TOKEN-INVALID").wait_for()
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Enter").click()
        page.wait_for_url(f"{address}/")
        until(lambda: page.locator(".mr-node").count() == 50, "the map, by a WebSocket that was let in")


def test_what_the_command_refuses(folder: Path) -> None:
    for args, sentence in (
        (("--listen", "0.0.0.0:9110"), "MR-CONSOLE-PUBLIC"),
        (("--listen", "here"), "--listen here is not [HOST:]PORT"),
    ):
        done = millrace("console", "large:app", *args, cwd=folder)
        assert (done.returncode, sentence in done.stderr) == (1, True), done.stderr
