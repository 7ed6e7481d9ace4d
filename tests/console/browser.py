"""A real browser that looks at a real console. What a page logs as an error, a script that fails, a request that goes
anywhere but to the console: each of them fails the test, and so does a traceback in the console's own log."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import command, debian

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
LIMIT_MS = 180_000
SIZE = {"width": 1280, "height": 800}


@contextlib.contextmanager
def opened() -> Iterator[Browser]:
    debian.require(CHROMIUM, CHROMIUM.name)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def console(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a console that runs in this folder. In the end it has to stop cleanly, and to have logged no
    failure."""
    log = folder / ".millrace" / "logs" / "millrace.log"
    before = log.stat().st_size if log.exists() else 0
    with command.start("console", *args, "--listen", "0", cwd=folder, env=env) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        yield found[0]
        process.terminate()
        try:
            rest, _ = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert (process.returncode, rest.strip()) == (0, "ended"), f"{process.returncode} {rest}"
    with log.open(encoding="utf-8") as file:
        file.seek(before)
        failures = [part for part in file.read().split("\n20") if "Traceback" in part]
    own = [part for part in failures if "nicegui" in part or "millrace.console" in part or "uvicorn" in part]
    assert not own, own[0]


class Faults:
    """What a page must not do. `meant` are requests that a test makes fail on purpose."""

    def __init__(self, page: Page, address: str) -> None:
        self.found: list[str] = []
        page.on("console", lambda said: said.type == "error" and self.found.append(f"console: {said.text}"))
        page.on("pageerror", lambda error: self.found.append(f"script: {error}"))
        page.on("request", lambda request: self._requested(request, address))
        page.on("crash", lambda _: self.found.append("the page crashed"))

    def _requested(self, request: Request, address: str) -> None:
        here = address.removeprefix("http://")
        if not re.match(rf"(http|ws)://{re.escape(here)}/|data:|blob:", request.url):
            self.found.append(f"a request to elsewhere: {request.url}")


@contextlib.contextmanager
def page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(LIMIT_MS)
    opened = context.new_page()
    faults = Faults(opened, address)
    yield opened
    context.close()
    assert not faults.found, faults.found


def drawn(page: Page) -> dict[str, dict[str, list[Any]]]:
    """What the charts of a page were told to draw: the points of each series, by the panel's title."""
    found: dict[str, dict[str, list[Any]]] = page.evaluate(_DRAWN)
    return found


_DRAWN = """() => Object.fromEntries([...document.querySelectorAll(".mr-chart")].map((element, number) => {
    const title = element.closest(".mr-panel").querySelector(".mr-panel-title").innerText
    const options = getElement(Number(element.id.slice(1)))?.chart?.getOption()
    const series = (options?.series ?? []).map((each) => [each.name, each.data])
    return [`${title} ${number}`, Object.fromEntries(series)]
}))"""


def picture(page: Page, name: str, panel: str | None = None) -> None:
    """Keeps the page, or one panel of it, for the guide if `PICTURES` names a folder: `PICTURES=docs/images pytest …`.
    It ends where a panel ends, so that nothing is cut off; what is opened over the page is taken as it is seen."""
    if folder := os.environ.get("PICTURES"):
        page.wait_for_timeout(1_500)  # charts and figures of a second look
        path = Path(folder) / f"console-{name}.png"
        if panel is not None:
            page.locator(".mr-panel", has=page.get_by_text(panel, exact=True)).screenshot(path=path)
            return
        height = page.evaluate(_ENDS) or SIZE["height"]
        clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
        page.screenshot(path=path, clip=clip, full_page=True)  # type: ignore[arg-type]


_ENDS = """() => {
    if (document.querySelector(".q-dialog")) return 0
    const ends = [...document.querySelectorAll(".mr-panel, .mr-map-scroll")].filter((each) => each.offsetHeight)
        .map((each) => Math.ceil(each.getBoundingClientRect().bottom + window.scrollY))
    const panels = Math.max(0, ...ends.filter((end) => end < 1080))
    // Of a panel that is longer some rows are enough.
    const rows = [...document.querySelectorAll(".mr-panel tbody tr")].map((each) => each.getBoundingClientRect().bottom)
    return panels > 500 ? panels + 10 : Math.max(panels + 10, ...rows.filter((end) => end < 800).map(Math.ceil))
}"""
