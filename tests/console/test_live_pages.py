"""The live pages of the demos in a real browser, over what their flows write: while nothing has come, and then."""

from __future__ import annotations

import itertools
import random
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from millrace.config import Settings
from millrace.console.board_bank import EVENTS
from millrace.demo.fraud import CARDS
from millrace.log import Log
from tests.command import until
from tests.console import browser as own
from tests.console.test_boards import made_up, plain_books, recorded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.server

# The topics of four demos in one app: each of its pages needs nothing else.
APP = """
    import millrace as mr
    from millrace.demo import fraud

    app = mr.App("live")
    for name, schema in (("payments", fraud.PAYMENT), ("alerts", fraud.ALERT), ("card_testing", fraud.ALERT)):
        app.topic(name, schema)
    replaces = "replaces array<struct<start: timestamp, end: timestamp>>"
    app.topic("per_minute", f"url string, window_start timestamp, window_end timestamp, views long, {replaces}")
    app.topic("busiest_now", "url string, window_end timestamp, views long, rank int, __diff int")
    app.topic("busiest", "url string, window_end timestamp, views long, rank int")
    about = "at_least long, at_most long, all_views long"
    app.topic("busiest_about", f"url string, window_end timestamp, rank int, {about}")
    scores = app.topic("scores", "player string, points long", key="player")
    scores.to(mr.redis_ranking("live_players", member="player", score="points"))
    app.topic("leaders", "player string, points long, at timestamp, rank int, __diff int")
    app.topic("transfer_steps", "id string, type string, at timestamp")
    app.capture("bank", ["events.event"], partitions=1)["events.event"]
"""
TOPICS = ("payments", "alerts", "card_testing", "per_minute", "busiest_now", "busiest", "busiest_about", "leaders")


@pytest.fixture(scope="module")
def log(settings: Settings) -> Log:
    """Topics of our own: other tests have some of these names."""
    found = Log(replace(settings, prefix="live"))
    for name in TOPICS:
        found.topics.create(name, partitions=2)
    found.topics.create(EVENTS, partitions=1)
    return found


@pytest.fixture(scope="module")
def address(log: Log, bootstrap: str, valkey: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("live")
    (folder / "live.py").write_text(textwrap.dedent(APP))
    (folder / "millrace.toml").write_text(
        f'prefix = "live"\n[kafka]\nbootstrap = "{bootstrap}"\n[sinks.valkey]\nurl = "{valkey}"\n'
    )
    with own.console(folder, "live:app") as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with own.page(browser, address) as found:
        yield found


def write(log: Log, topic: str, rows: list[dict[str, Any]], key: str) -> None:
    with log.writer(topic) as writer:
        for row in rows:
            told = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
            writer.write(told, key=str(row[key]))


def test_fraud(page: Page, address: str, log: Log) -> None:
    page.goto(address)
    page.get_by_role("link", name="Fraud").click()
    page.wait_for_url("**/live/fraud")
    page.get_by_text("No payments in the last 15 minutes").wait_for()
    page.get_by_text("`millrace run live:app`").wait_for()
    payments, alerts = made_up(1_500, CARDS, datetime.now(UTC) - timedelta(minutes=3))
    write(log, "payments", payments, "card")
    write(log, "alerts", [each for each in alerts if each["rule"] != "card testing"], "card")
    write(log, "card_testing", [each for each in alerts if each["rule"] == "card testing"], "card")
    page.locator(".mr-plane canvas").first.wait_for()
    until(lambda: f"{len(alerts)}" in page.locator(".mr-figures").inner_text().split("\n"), "all alerts")
    newest = max(each["at"] for each in alerts)
    first = page.locator(".mr-alerts tbody tr").first
    until(lambda: f"{newest:%H:%M:%S}" in first.inner_text(), "the newest first")
    own.picture(page, "fraud")
    log.write("alerts", "no JSON")
    page.get_by_text("1 record does not fit: ").wait_for()
    page.get_by_role("button", name="Next page").click()
    page.get_by_text(f"13-24 of {len(alerts)}").wait_for()
    page.get_by_label("Rule").click()
    page.get_by_role("option", name="impossible journey").click()
    until(lambda: "km/h" in first.inner_text(), "those of one rule")
    first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("impossible journey: ").first.wait_for()
    card = first.locator("td").nth(3).inner_text()
    assert len(dialog.locator(".mr-rows tbody tr").all()) == sum(each["card"] == card for each in payments)
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="hidden")


def test_page_views(page: Page, address: str, log: Log) -> None:
    page.goto(f"{address}/live/pageviews")
    page.get_by_text("Nobody has looked at a page yet").wait_for()
    running = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    urls = ["/", *(f"/page/{number}" for number in range(2, 11))]
    first = [
        {"url": url, "window_end": running, "rank": rank, "views": int(900 / rank**0.9), "__diff": 1}
        for rank, url in enumerate(urls, 1)
    ]
    write(log, "busiest_now", first, "url")
    now, lines = (page.locator(".mr-board").nth(number).locator("tbody tr") for number in (0, 1))
    until(lambda: now.count() == 10, "the ten of the minute that runs")
    page.get_by_text("No minute is over yet").wait_for()
    one, two = first[1:3]
    write(log, "busiest_now", [{**each, "__diff": -1} for each in (one, two)], "url")
    write(log, "busiest_now", [{**two, "rank": 2, "views": 507}, {**one, "rank": 3}], "url")
    until(lambda: now.nth(1).inner_text().split() == ["2", "/page/3", "507"], "another is second")
    chance = random.Random(5)
    ended = running - timedelta(minutes=1)
    for minute in range(3):
        views = sorted((int(3_000 / rank**0.9) + chance.randrange(60) for rank in range(1, 11)), reverse=True)
        both = [{"url": url, "window_end": ended - timedelta(minutes=minute)} for url in urls]
        exact = [{**row, "rank": rank, "views": count} for row, rank, count in zip(both, itertools.count(1), views)]
        about = [
            {
                **row,
                "rank": rank,
                "at_least": (least := count - chance.randrange(90)),
                "at_most": least + 90,
                "all_views": 15_004,
            }
            for row, rank, count in zip(both, itertools.count(1), views)
        ]
        write(log, "busiest", exact, "url")
        write(log, "busiest_about", about, "url")
    until(lambda: lines.count() == 10, "the ten of the newest minute")
    until(lambda: "10 of 10" in page.locator(".mr-figures").inner_text(), "each count is in the range of the sketch")
    assert f"{ended:%H:%M}" in page.locator(".mr-figures").inner_text()
    assert "90 views (0.60% of 15,004)" in page.locator(".mr-figures").inner_text()
    told = {"window_start": ended - timedelta(hours=1, minutes=1), "window_end": ended - timedelta(hours=1)}
    before = [{"start": told["window_start"].isoformat(), "end": told["window_end"].isoformat()}]
    write(log, "per_minute", [{"url": url, **told, "views": 40, "replaces": None} for url in urls], "url")
    write(log, "per_minute", [{"url": url, **told, "views": 41, "replaces": before} for url in urls[:7]], "url")
    until(lambda: page.locator(".mr-figures").inner_text().split("\n")[-2:] == ["7", "late corrections"], "corrections")
    own.picture(page, "pageviews")
    shown = lines.first.inner_text()
    page.get_by_label("Minute").click()
    page.get_by_role("option", name=f"{ended - timedelta(minutes=2):%H:%M} of").click()
    until(lambda: lines.first.inner_text() != shown, "an older minute")


def test_leaders(page: Page, address: str, log: Log, valkey: str) -> None:
    page.goto(f"{address}/live/leaders")
    page.get_by_text("Nobody has played yet").wait_for()
    best = [
        {"player": f"player-{number * 7919 % 1_000}", "points": 90_000 - 701 * number, "rank": number + 1, "__diff": 1}
        for number in range(100)
    ]
    write(log, "leaders", best, "player")
    lines = page.locator(".mr-rows tbody tr")
    until(lambda: lines.first.inner_text().split("\t")[:3] == ["1", best[0]["player"], "90,000"], "the best is first")
    page.locator(".mr-fresh").first.wait_for(state="detached")
    assert not page.get_by_text("The topic has lost").is_visible()
    others = {f"player-{number}": 24_000 - 4 * number for number in range(1_000, 5_900)}
    with redis.Redis.from_url(valkey) as server:
        server.zadd("live_players", others | {each["player"]: each["points"] for each in best})
    asked = page.get_by_label("Player", exact=True)
    asked.fill("player-2345")
    asked.press("Enter")
    page.get_by_text("player-2345: rank 1,446 of 5,000, with 14,620 points").wait_for()
    one, two = best[0], best[1]
    went = [{**each, "__diff": -1} for each in (one, two)]
    came = [{**two, "rank": 1, "points": 95_555, "__diff": 1}, {**one, "rank": 2, "__diff": 1}]
    write(log, "leaders", [*went, *came], "player")
    until(lambda: lines.first.inner_text().split("\t") == ["1", two["player"], "95,555", "▲ 1"], "another is first")
    until(lambda: "▼ 1" in lines.nth(1).inner_text(), "and the one who was is second")
    own.picture(page, "leaders")
    asked.fill("player-x")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("player-x has not played").wait_for()
    page.get_by_role("button", name="Next page").click()
    until(lambda: lines.first.inner_text().startswith("51"), "the other fifty")
    page.get_by_label("Search").fill(best[70]["player"])
    until(lambda: best[70]["player"] in lines.first.inner_text(), "a player who was searched for")


def test_the_bank(page: Page, address: str, log: Log) -> None:
    page.goto(f"{address}/live/bank")
    page.get_by_text("Nothing has happened at the bank yet").wait_for()
    rows = recorded(300)
    business = [row for row in rows if row["after"]["type"] != "millrace.ticked"]
    with log.writer(EVENTS) as writer:
        for row in rows:
            writer.write(row, key=str(row["after"]["position"]))
    figures = page.locator(".mr-figures")
    count = len(business)
    until(lambda: f"{count} of {count}" in figures.inner_text(), "all events")

    def shows(moment: int) -> bool:
        """The figures, the newest event and the books are those of this moment."""
        balances, way = plain_books(business[:moment])
        last = business[moment - 1]["after"]
        told, (log_lines, book_lines) = figures.inner_text(), page.locator(".mr-rows tbody").all_inner_texts()
        return (
            f"{moment} of {count}" in told
            and last["at"][:19].replace("T", " ") in told
            and f"${way:,.2f}" in told
            and log_lines.split("\t")[0] == str(last["position"])
            and dict(line.split("\t") for line in book_lines.splitlines())
            == {name: f"${one:,.2f}" for name, one in balances.items()}
        )

    until(lambda: shows(count), "the books of now")
    own.picture(page, "bank")
    page.get_by_role("button", name="Next page").click()
    newest = str(business[-1]["after"]["position"])
    until(lambda: page.locator(".mr-rows td").first.inner_text() not in ("", newest), "older events")
    page.get_by_role("button", name="Previous page").click()
    until(lambda: shows(count), "the newest again")
    page.get_by_role("slider").locator("[tabindex='0']").press("ArrowLeft")
    until(lambda: shows(count - 1), "the moment before")
    for step in range(2, 41):
        page.keyboard.press("ArrowLeft")
        until(lambda: f"{count - step} of {count}" in figures.inner_text(), "a moment earlier")  # noqa: B023
    until(lambda: shows(count - 40), "the books of forty events ago")
    page.get_by_role("button", name="Now").click()
    until(lambda: shows(count), "now again")
    page.get_by_role("button", name="Replay from scratch").click()
    page.get_by_text(f"{count} events read again, the same books as before").wait_for()
    until(lambda: shows(count), "and the same books")
