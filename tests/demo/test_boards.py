"""The leaderboard, the trending tags and the attribution of clicks are what plain Python makes of the same events."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millrace.demo import attribution, leaderboard, pageviews, trending
from millrace.flow import Topic
from millrace.testing import Play
from tests.rotation import today

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, 10, tzinfo=UTC)
SEED = today()
MINUTE = timedelta(minutes=1)
Begin = Callable[..., Play]
Rows = list[dict[str, Any]]


def moments(chance: random.Random, count: int, gap_s: float) -> list[datetime]:
    at, found = START, []
    for _ in range(count):
        at += timedelta(milliseconds=chance.randrange(1, round(2_000 * gap_s)))
        found.append(at)
    return found


def fed(p: Play, topic: Topic, rows: Rows, parts: int) -> None:
    for part in range(parts):
        p.feed(topic, rows[part * len(rows) // parts : (part + 1) * len(rows) // parts])


def text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"


@pytest.mark.turn(0, 4)
def test_the_leaders_are_the_best_and_redis_has_everybody(play: Begin) -> None:
    chance = random.Random(SEED)
    rows = [leaderboard.score(chance, n, 400) | {"at": at} for n, at in enumerate(moments(chance, 1_500, 1))]
    p = play(leaderboard.app)
    (scores,) = (topic for topic in p.app.graph().topics if topic.name == "scores")
    fed(p, scores, rows[:1_000], 3)
    p.feed(scores, rows[1_000:], crash="after write")
    p.restart()
    points = {row["player"]: row["points"] for row in rows}
    best = sorted(points.items(), key=lambda each: (-each[1], each[0]))[: leaderboard.BEST]
    ranking: dict[tuple[str, int], int] = {}
    for row in p.rows("leaders"):
        named = row["player"], row["points"]
        if row["__diff"] > 0:
            ranking[named] = row["rank"]
        elif ranking.get(named) == row["rank"]:
            del ranking[named]
    assert sorted(ranking, key=lambda each: ranking[each]) == best
    assert sorted(ranking.values()) == list(range(1, leaderboard.BEST + 1))
    assert {row["player"]: row["points"] for row in p.rows("redis.players")} == points


@pytest.mark.turn(1, 4)
def test_the_ten_tags_of_five_minutes_are_told_every_minute(play: Begin) -> None:
    chance = random.Random(SEED)
    rows = [trending.post(chance, n, at) for n, at in enumerate(moments(chance, 900, 0.8))]
    p = play(trending.app)
    fed(p, trending.posts, rows, 4)
    windows = defaultdict[datetime, Counter[str]](Counter)
    for row in rows:
        minute = row["at"].replace(second=0, microsecond=0)
        for tag in {tag.lower() for tag in row["tags"]}:
            for hops in range(1, 6):
                windows[minute + hops * MINUTE][tag] += 1
    closed = {end: counts for end, counts in windows.items() if end <= rows[-1]["at"] - timedelta(seconds=5)}
    assert len(closed) > 5
    expected = {
        (text(end), rank): (tag, posts)
        for end, counts in closed.items()
        for rank, (tag, posts) in enumerate(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:10], 1)
    }
    found = {(row["window_end"], row["rank"]): (row["tag"], row["posts"]) for row in p.rows(trending.trending)}
    assert found == expected
    assert any(tag.startswith("#news") for tag, _ in found.values())


@pytest.mark.turn(2, 4)
def test_page_views_are_counted_exactly_about_and_again_when_phones_come_back(play: Begin) -> None:
    chance = random.Random(SEED)
    made = [(at, pageviews.view(chance, at, 200)) for at in moments(chance, 4_000, 0.3)]
    on_time = [row for at, row in made if row["at"] == at]
    # Of minutes that are over when they come back, after some ten.
    offline = [
        {**row, "at": START + chance.randrange(480) * timedelta(seconds=1)} for at, row in made if row["at"] != at
    ]
    assert len(offline) > 10
    half = len(on_time) // 2
    back = on_time[half]["at"]
    p = play(pageviews.app)
    p.feed(pageviews.pageviews, on_time[:half])
    p.feed(pageviews.pageviews, [{**row, "arrival": back} for row in offline])
    p.feed(pageviews.pageviews, on_time[half:], crash="after write")
    p.restart()

    def counts(some: Rows) -> dict[str, Counter[str]]:
        found = defaultdict[str, Counter[str]](Counter)
        for row in some:
            end = row["at"].replace(second=0, microsecond=0) + MINUTE
            if end <= on_time[-1]["at"] - timedelta(seconds=2):
                found[text(end)][row["url"]] += 1
        return found

    told: dict[str, dict[str, int]] = defaultdict(dict)
    for row in p.rows(pageviews.per_minute):
        told[row["window_end"]][row["url"]] = row["views"]
    assert told == counts([*on_time, *offline])
    board: dict[str, list[tuple[str, int]]] = {
        end: sorted(each.items(), key=lambda one: (-one[1], one[0]))[:10] for end, each in counts(on_time).items()
    }
    found = {(row["window_end"], row["rank"]): (row["url"], row["views"]) for row in p.rows(pageviews.busiest)}
    assert found == {(end, rank): each for end, some in board.items() for rank, each in enumerate(some, 1)}
    assert {
        (end, each): told for (end, each), told in changing(p.rows(pageviews.busiest_now)).items() if end in board
    } == {(end, url): (rank, views) for end, some in board.items() for rank, (url, views) in enumerate(some, 1)}
    about = {(row["window_end"], row["url"]): row for row in p.rows(pageviews.busiest_about)}
    assert {end for end, _ in about} == set(board)
    for (end, url), row in about.items():
        assert row["at_least"] <= counts(on_time)[end][url] <= row["at_most"]
        assert row["all_views"] == counts(on_time)[end].total()
    assert p.late(pageviews.busiest) == len(offline)


def changing(rows: Rows) -> dict[tuple[str, str], tuple[int, int]]:
    """Rank and views of each page of a minute, after all signed rows."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for row in rows:
        page, told = (row["window_end"], row["url"]), (row["rank"], row["views"])
        if row["__diff"] > 0:
            found[page] = told
        elif found.get(page) == told:
            del found[page]
    return found


@pytest.mark.turn(3, 4)
def test_clicks_belong_to_impressions_of_the_last_30_minutes(play: Begin) -> None:
    chance = random.Random(SEED)
    shown = [attribution.impression(chance, f"a-{n}") | {"at": at} for n, at in enumerate(moments(chance, 200, 12))]
    clicked = []
    for n in range(0, 200, 2):  # some within the 30 minutes, some after
        row = attribution.click(chance, "a", n + 20)
        at = next((each["at"] for each in shown if each["impression"] == row["impression"]), shown[n]["at"])
        clicked.append(row | {"at": at + timedelta(seconds=chance.uniform(0, 2_400))})
    clicked.sort(key=lambda row: row["at"])
    last = START + timedelta(hours=9)
    p = play(attribution.app, views=False)
    ends = [*(START + part * 25 * MINUTE for part in range(5)), last]
    for first, end in itertools.pairwise(ends):
        for topic, rows in ((attribution.impressions, shown), (attribution.clicks, clicked)):
            p.feed(topic, [row for row in rows if first <= row["at"] < end])
    p.feed(attribution.impressions, [{"impression": "last", "campaign": "sale", "at": last}])
    p.feed(attribution.clicks, [{"impression": "last of all", "at": last}])

    expected = set()
    for row in shown:
        own = [
            click["at"]
            for click in clicked
            if click["impression"] == row["impression"] and timedelta() <= click["at"] - row["at"] <= 30 * MINUTE
        ]
        outcome = "clicked" if own else "no click"
        expected |= {(row["impression"], outcome, text(at) if at else None) for at in own or [None]}
    joined = {each[::2] for each in expected}
    expected |= {
        (click["impression"], "no impression", text(click["at"]))
        for click in clicked
        if (click["impression"], text(click["at"])) not in joined
    }
    found = [(row["impression"], row["outcome"], row["clicked"]) for row in p.rows(attribution.attributed)]
    assert (set(found) - expected, expected - set(found)) == (set(), set())
    assert len(found) == len(expected)
    assert {outcome for _, outcome, _ in found} == {"clicked", "no click", "no impression"}
    assert p.late(attribution.attributed) == 0

    counted = {(row["campaign"], row["window_start"]): row for row in p.rows(attribution.click_through)}
    for (campaign, start), row in counted.items():
        own_ids = {each["impression"] for each in shown if _is_in(each, campaign, start)}
        own_clicked = {name for name, outcome, _ in expected if outcome == "clicked" and name in own_ids}
        assert (row["impressions"], row["clicked"]) == (len(own_ids), len(own_clicked))
        assert row["click_through"] == len(own_clicked) / len(own_ids)
    assert {(each["campaign"], text(each["at"].replace(minute=0, second=0, microsecond=0))) for each in shown} == set(
        counted
    )


def _is_in(row: dict[str, Any], campaign: str, start: str) -> bool:
    return row["campaign"] == campaign and text(row["at"].replace(minute=0, second=0, microsecond=0)) == start
