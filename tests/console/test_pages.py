"""Every page in a real browser, over a real Kafka and a real run: each action clicked, what came of it looked up."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from millrace.capture import capture
from millrace.config import Settings
from millrace.log import Log
from tests import command
from tests.command import until
from tests.console import browser as own
from tests.shop import Shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.server, pytest.mark.spark]

APP = '''
    """An app with a flow that is well, one that fails, and one behind that."""

    from datetime import UTC, datetime, timedelta

    import millrace as mr
    from pyspark.sql import functions as F

    app = mr.App("seen")
    seen_visits = app.topic("seen_visits", "url string, user long, at timestamp", time="at", lateness="1 second")


    @app.stream(seen_visits, key="url")
    def seen_views(v):
        return mr.window(v, "5 seconds", by="url", views=mr.count(), emit="updates", late=mr.late.drop())


    @app.stream(seen_visits, schema="url string")
    def seen_broken(v):
        return v.select(F.raise_error(F.lit("no such shop")).cast("string").alias("url"))


    @app.stream(seen_broken)
    def seen_behind(v):
        return v


    @app.traffic(seen_visits, rate=200)
    def visitors(chance):
        at = datetime.now(UTC) - timedelta(seconds=min(chance.expovariate(4), 1.5))
        return {"url": chance.choice(["/", "/shop", "/cart"]), "user": chance.randrange(100), "at": at}
'''


@pytest.fixture(scope="module")
def address(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The console of an app that runs; what needs its flows waits for them. Their checkpoints are not among those of
    the shared project, of which other tests know."""
    module = settings.folder / "seen.py"
    module.write_text(textwrap.dedent(APP))
    env = {"MILLRACE_SPARK_CHECKPOINTS": str(tmp_path_factory.mktemp("checkpoints"))}
    with (
        command.start("run", "seen:app", "--master", "local[2]", "--log", "json", cwd=settings.folder, env=env),
        own.console(settings.folder, "seen:app", env=env) as found,
    ):
        yield found
    module.unlink()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with own.page(browser, address) as found:
        yield found


def test_a_topic_is_browsed(page: Page, address: str, settings: Settings) -> None:
    log = Log(settings)
    log.topics.create("seen_many", partitions=3)
    for number in range(21):  # more than one page of the list
        log.topics.create(f"seen_at_first_{number}", partitions=1)
    with log.writer("seen_many") as writer:
        for number in range(10_000):
            writer.write({"n": number, "city": "Berlin" if number == 4_242 else "Rome"}, key=f"k{number % 7}")
    page.goto(f"{address}/topic")
    page.get_by_text("1-20 of").wait_for()
    page.get_by_label("Search", exact=True).fill("seen_m")
    page.get_by_role("row", name="seen_many").get_by_role("cell", name="10,000", exact=True).wait_for()
    page.get_by_role("link", name="seen_many").click()
    page.wait_for_url("**/topic/seen_many")
    page.get_by_text("Nothing of this topic has died").wait_for()
    page.get_by_text("No group has read this topic").wait_for()
    page.get_by_label("Records", exact=True).fill("10000")
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("10,000 records read; the newest first").wait_for()
    assert page.locator(".mr-records tbody tr").count() == 50
    page.get_by_text("7 keys: ").wait_for()
    own.picture(page, "topic")
    page.get_by_label("Search", exact=True).fill("berlin")
    page.get_by_text("1 of them with that text").wait_for()
    page.locator(".mr-records tbody tr").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("the next record of its key").wait_for()
    changed = dialog.locator("tr.mr-changed").all_inner_texts()
    assert [line.split() for line in changed] == [["n", "4235", "4242"], ["city", "Rome", "Berlin"]]
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="hidden")  # while it is there, it takes the focus
    page.get_by_label("Search", exact=True).fill("")
    page.get_by_role("button", name="Next page").click()
    page.get_by_label("Partition", exact=True).fill("1")
    page.get_by_label("From", exact=True).fill("earliest")
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("7 keys").wait_for(state="hidden")
    held = log.topics.offsets("seen_many")[1]
    page.get_by_text(f"{held[1]:,} records read").wait_for()
    shown = [line.split("\t") for line in page.locator(".mr-records tbody tr").all_inner_texts()]
    assert {line[1] for line in shown} == {"1"}
    assert shown[0][2] == f"{held[1] - 1:,}", "the newest of that partition"
    page.get_by_label("From", exact=True).fill("1,000")  # as the table shows it
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text(f"{held[1] - 1_000:,} records read").wait_for()
    page.get_by_label("From", exact=True).fill("nonsense")
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("MR-POSITION-INVALID").wait_for()


def test_a_reading_that_follows_is_stopped(page: Page, address: str, settings: Settings) -> None:
    log = Log(settings)
    log.topics.create("seen_new", partitions=1)
    log.write("seen_new", "before")
    page.goto(f"{address}/topic/seen_new")
    stop = page.get_by_role("button", name="Stop")
    assert stop.is_disabled()
    page.get_by_role("switch", name="Follow").click()
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_text("Reading: 0 records so far").wait_for()
    log.write("seen_new", "one that came meanwhile")
    page.get_by_role("cell", name="one that came meanwhile").wait_for()
    stop.click()
    page.get_by_text("1 record read (stopped)").wait_for()
    assert stop.is_disabled()


def test_a_group_is_moved_only_with_its_name(page: Page, address: str, settings: Settings) -> None:
    log = Log(settings)
    log.topics.create("seen_group", partitions=1)
    for number in range(20):
        log.write("seen_group", {"n": number})
    with log.join("seen_readers", ["seen_group"]) as reader:
        assert [record.offset for record in reader.records(limit=1)] == [0]
    page.goto(f"{address}/topic/seen_group")
    page.get_by_role("button", name="Seek …").click()
    dialog = page.get_by_role("dialog")
    move = dialog.get_by_role("button", name="Move", exact=True)
    typed = dialog.get_by_label("Type seen_readers to move it")
    assert move.is_disabled()
    assert typed.is_disabled()
    dialog.get_by_label("To", exact=True).fill("5")
    dialog.get_by_role("button", name="What would move").click()
    dialog.get_by_role("cell", name="4 left out").wait_for()
    typed.fill("seen_reader")
    assert move.is_disabled()
    typed.fill("seen_readers")
    own.picture(page, "seek")
    dialog.get_by_label("To", exact=True).fill("6")  # another place: the catch falls again
    until(move.is_disabled, "the catch fell")
    dialog.get_by_label("To", exact=True).fill("5000")
    dialog.get_by_role("button", name="What would move").click()
    dialog.get_by_text("MR-SEEK-OUTSIDE").wait_for()
    dialog.get_by_label("To", exact=True).fill("5")
    dialog.get_by_role("button", name="What would move").click()
    dialog.get_by_role("cell", name="5", exact=True).wait_for()
    typed.fill("seen_readers")
    move.click()
    page.get_by_text("group seen_readers was moved in 1 partition").wait_for()
    dialog.wait_for(state="hidden")
    page.get_by_role("button", name="Seek …").click()
    dialog.get_by_label("To", exact=True).fill("earliest")
    dialog.get_by_role("button", name="What would move").click()
    dialog.get_by_role("cell", name="5 read again").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="hidden")
    assert log.groups.places("seen_readers") == {"seen_group": {0: 5}}


def test_dead_letters_are_replayed(page: Page, address: str, settings: Settings) -> None:
    log = Log(settings)
    log.topics.create("seen_dying", partitions=1)
    for value in ("{", "[", "("):
        log.write("seen_dying", value)
    for record in list(log.read("seen_dying")):
        log.dead.put(record, f"no JSON: {record.text}")
    page.goto(f"{address}/topic/seen_dying")
    page.get_by_text("no JSON: {").wait_for()
    page.get_by_role("button", name="Replay selected").click()
    page.get_by_text("Select letters first").wait_for()
    page.get_by_role("row", name="no JSON: [").get_by_role("checkbox").click()
    page.get_by_role("button", name="Replay selected").click()
    page.get_by_role("button", name="Replay", exact=True).click()
    page.get_by_text("1 dead letter written back to seen_dying").wait_for()
    assert [letter.replayed for letter in log.dead.list("seen_dying")] == [False, True, False]
    page.get_by_role("cell", name="yes", exact=True).wait_for()
    own.picture(page, "deadletters", "Dead letters")
    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("button", name="Cancel").click()
    assert len(list(log.read("seen_dying"))) == 4
    page.get_by_role("button", name="Replay all").click()
    page.get_by_role("button", name="Replay", exact=True).click()
    page.get_by_text("2 dead letters written back to seen_dying").wait_for()
    assert [record.text for record in log.read("seen_dying")] == ["{", "[", "(", "[", "{", "("]


def test_the_map_shows_who_is_to_blame(page: Page, address: str, settings: Settings) -> None:
    page.goto(address)
    broken, behind = (page.get_by_role("button", name=f"stream seen_{name}") for name in ("broken", "behind"))
    page.locator(".mr-node.held").first.wait_for()
    until(lambda: "held" in (broken.get_attribute("class") or ""), "the flow that failed is the cause")
    until(lambda: "late" in (behind.get_attribute("class") or ""), "the flow behind it is the victim")
    views = page.get_by_role("button", name="stream seen_views")
    until(lambda: "well" in (views.get_attribute("class") or ""), "the other flow is well")
    until(lambda: "/s" in views.inner_text(), "it has a rate")
    until(lambda: "at least once" in views.inner_text(), "it says what it guarantees")
    until(lambda: page.locator(".mr-edges path.held").count() == 1, "one edge is held")
    own.picture(page, "map")
    broken.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("MR-BODY-FAILED").wait_for()
    dialog.get_by_text("def seen_broken(v):").wait_for()  # its line
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    behind.focus()
    page.keyboard.press("Enter")
    dialog.get_by_text("Late because of seen_broken").wait_for()
    page.keyboard.press("Escape")
    views.click()
    dialog.get_by_role("link", name="Flow seen_views").click()
    page.wait_for_url("**/flow/seen_views")


def test_a_flow_over_time(page: Page, address: str, settings: Settings) -> None:
    page.goto(f"{address}/flow")
    page.get_by_role("cell", name="failed").first.wait_for()
    page.get_by_role("link", name="seen_views").click()
    page.wait_for_url("**/flow/seen_views")
    page.get_by_text("running", exact=True).wait_for()
    page.get_by_text(re.compile("loses (none of these|at most)")).wait_for()
    until(lambda: page.locator(".mr-chart canvas").count() == 8, "its charts")

    def have_points() -> bool:
        """Each series of each chart, and of the rows more than none."""
        charts = own.drawn(page)
        rows = charts["Rows a second 0"]
        assert len(charts) == 8
        return all(series and all(series.values()) for series in charts.values()) and all(
            any(value > 0 for _, value in rows[name]) for name in ("in", "out")
        )

    until(have_points, "points in its charts")
    own.picture(page, "flow")
    own.picture(page, "arrivals", "Arrival of seen_visits")
    page.goto(f"{address}/flow/seen_veiws")
    page.get_by_text("did you mean 'seen_views'?").wait_for()


@pytest.mark.turn(0, 2)
def test_a_capture_and_what_a_change_changed(page: Page, address: str, shop: Shop) -> None:
    shop.run(
        "CREATE TABLE orders (id int PRIMARY KEY, what text)",
        "INSERT INTO orders SELECT n, 'tea' FROM generate_series(1, 500) n",
        "ANALYZE orders",
    )
    shop.captures.add(capture(shop.name, ["orders"]))
    page.goto(f"{address}/capture")
    page.get_by_text(f"Capture {shop.name}", exact=True).wait_for()
    page.get_by_text("streaming · ").wait_for()
    page.get_by_text("log kept for it").wait_for()
    bar = page.get_by_role("progressbar", name="snapshot of public.orders")
    until(lambda: bar.get_attribute("aria-valuenow") == "1", "the snapshot is done")
    shop.run("UPDATE orders SET what = 'mint' WHERE id = 7")
    own.picture(page, "capture")
    page.get_by_role("link", name="public.orders").click()
    page.wait_for_url(f"**/topic/{shop.name}.public.orders")
    topic = Log(shop.settings)
    until(lambda: any(b"mint" in (each.value or b"") for each in topic.read(f"{shop.name}.public.orders")), "captured")
    page.get_by_role("button", name="Read", exact=True).click()
    page.get_by_label("Search", exact=True).fill("mint")
    page.get_by_text("1 of them with that text").wait_for()
    page.locator(".mr-records tbody tr").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("updated").first.wait_for()
    assert [line.split() for line in dialog.locator("tr.mr-changed").all_inner_texts()] == [["what", "tea", "mint"]]
    own.picture(page, "change")
