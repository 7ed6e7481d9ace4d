"""A large map, a long topic and many dead letters: what a browser is given is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace.config import Settings
from millrace.console import page_topic
from millrace.console.page_topic import MOST_LETTERS, Letters, letters_of
from millrace.console.watch import Watch
from millrace.flow import App
from millrace.log import Log
from tests.command import until
from tests.console import browser as own

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.server

NODES = 50
# Elements of the whole page for a node of the map, its edge and its label included; and for a page of 50 records.
MOST_EACH, MOST_RECORDS_PAGE = 14, 1_500

APP = f"""
import millrace as mr

app = mr.App("large")
topics = [app.topic(f"large_{{n}}", "n long") for n in range({NODES // 2})]
for n, topic in enumerate(topics):
    app.stream(topic, name=f"flow_{{n}}", schema="n long")(lambda rows: rows)
"""


@pytest.fixture(scope="module")
def log(settings: Settings) -> Log:
    found = Log(replace(settings, prefix="large"))
    found.topics.create("large_0", partitions=1)
    with found.writer("large_0") as writer:
        for number in range(10_000):
            writer.write({"n": number}, key=f"k{number}")
    return found


@pytest.fixture(scope="module")
def address(log: Log, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("large")
    (folder / "large.py").write_text(APP)
    (folder / "millrace.toml").write_text(f'prefix = "large"\n[kafka]\nbootstrap = "{bootstrap}"\n')
    with own.console(folder, "large:app") as found:
        yield found


def test_fifty_nodes_and_ten_thousand_records(browser: Browser, address: str) -> None:
    with own.page(browser, address) as page:

        def elements() -> int:
            return int(page.evaluate("document.querySelectorAll('*').length"))

        page.goto(address)
        nodes = page.locator(".mr-node")
        until(lambda: nodes.count() >= NODES, "the map")
        page.get_by_text("10,000 records").wait_for()
        assert nodes.count() <= 2 * NODES  # a stream has a topic of its own
        assert elements() < MOST_EACH * nodes.count() + 200
        page.goto(f"{address}/topic/large_0")
        page.get_by_label("Records", exact=True).fill("10000")
        page.get_by_role("button", name="Read", exact=True).click()
        page.get_by_text("10,000 records read; the newest first").wait_for()
        lines = page.locator(".mr-records tbody tr")
        assert lines.count() == 50
        assert elements() < MOST_RECORDS_PAGE
        for text in ("99", "999", "nowhere"):
            found = sum(text in str(number) for number in range(10_000))
            page.get_by_label("Search", exact=True).fill(text)
            page.get_by_text(f"{found} of them with that text").wait_for()
            assert lines.count() <= 50


def test_of_many_dead_letters_the_newest_are_read_and_only_when_some_came(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_topic, "MOST_LOOKED_AT", 1_000)
    records = list(log.newest("large_0", 2))
    dead = f"{records[0].topic}.dead"
    for record in records:
        log.dead.put(record, "odd")
    with log.writer(dead) as writer:
        for number in range(1_200):
            writer.write({"n": number})
    watch = Watch(App("large"), log.settings, "large:app")
    found = letters_of(watch, "large_0", Letters())
    assert [row["letter"] for row in found.rows] == [str(1_201 - n) for n in range(MOST_LETTERS)]
    assert found.more
    assert letters_of(watch, "large_0", found) is found
    log.dead.replay("large_0", ["1200"])
    after = letters_of(watch, "large_0", found)
    assert {row["letter"] for row in after.rows if row["replayed"] == "yes"} == {"1200"}
