"""What live pages show is what plain Python makes of the same records, and an app has the pages that fit it."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import millrace as mr
from millrace.console import charts
from millrace.console.board import Board, bring
from millrace.console.board_fraud import JOURNEY, MOST_PAYMENTS, FraudBoard
from millrace.console.board_leaders import LeaderBoard
from millrace.console.board_pageviews import Line, PageviewBoard
from millrace.console.live import LIVE
from millrace.console.page_pageviews import lines_html
from millrace.demo import attribution, fraud, leaderboard, pageviews, shop, trending
from tests.demo import recomputed

START = datetime(2026, 1, 1, 10, tzinfo=UTC)


def told(board: Board, topic: str, *rows: dict[str, Any]) -> None:
    bring(board, topic, [json.dumps(row, default=_plain).encode() for row in rows])


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def made_up(count: int, cards: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Payments of the demo, and the alerts that plain Python makes of them."""
    chance = random.Random(7)
    payments = [fraud.payment(chance, n, START + timedelta(milliseconds=70 * n), cards) for n in range(count)]
    customers = [fraud.customer(number, START - timedelta(hours=1)) for number in range(cards // 2)]
    found = {**recomputed.alerts(payments, customers), **recomputed.card_testing(payments)}
    times = {each["id"]: each["at"] for each in payments}
    return payments, [{"id": name, **each._asdict(), "at": times[each.payment]} for name, each in found.items()]


@pytest.mark.parametrize(
    ("app", "pages"),
    [
        (fraud.app, ["Fraud"]),
        (fraud.exactly_once, ["Fraud"]),
        (pageviews.app, ["Page views"]),
        (leaderboard.app, ["Leaders"]),
        (shop.app, []),
        (trending.app, []),
        (attribution.app, []),
    ],
)
def test_an_app_has_the_live_pages_that_it_has_the_topics_for(app: mr.App, pages: list[str]) -> None:
    assert [page.title for page in LIVE if page.fits(app.graph())] == pages


def test_topics_of_the_same_names_with_other_columns_are_another_app() -> None:
    app = mr.App("other")
    for name in ("payments", "alerts", "card_testing"):
        app.topic(name, "id string, text string")
    app.topic("leaders", "country string, leader string")
    assert [page.title for page in LIVE if page.fits(app.graph())] == []


def test_places_alerts_and_journeys_of_the_fraud_board() -> None:
    payments, alerts = made_up(1_500, 400)
    board = FraudBoard()
    told(board, "payments", *payments[:1_000])
    told(board, "alerts", *alerts, *alerts[-5:])  # the last ones again, as after a crash
    told(board, "payments", *payments[900:])
    assert {each.id for each in board.told()} == {each["id"] for each in alerts}
    assert board.rules() == Counter(each["rule"] for each in alerts)
    assert len(board.rules()) >= 5
    by_id = {each["id"]: each for each in payments}
    where = Counter(
        (round(by_id[each["payment"]]["lat"], 1), round(by_id[each["payment"]]["lon"], 1)) for each in alerts
    )
    paid = Counter((round(each["lat"], 1), round(each["lon"], 1)) for each in payments)
    assert {(each.lat, each.lon): (each.payments, each.alerts) for each in board.places()} == {
        place: (count, where[place]) for place, count in paid.items()
    }
    journeys = board.journeys()
    assert journeys
    for one, other in journeys:
        assert one.card == other.card
        assert (one.lat, one.lon) != (other.lat, other.lon)
    times = [each.at for each in board.told(JOURNEY)]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) > 1
    options = charts.plane(
        [(each.lon, each.lat, each.country, each.payments, each.alerts) for each in board.places()], []
    )
    assert len(options["series"][0]["data"]) == len(paid)


def test_the_fraud_board_is_bounded_and_takes_nothing_else() -> None:
    board = FraudBoard()
    told(board, "payments", *({"id": n, "lat": 1, "lon": 2.5} for n in range(MOST_PAYMENTS + 5)))
    told(board, "payments", {"id": "nowhere", "lat": None})
    bring(board, "alerts", [b"no JSON", None, b"[]"])
    assert (len(board.payments), len(board.alerts)) == (MOST_PAYMENTS, 0)
    assert "5" in board.payments
    assert "4" not in board.payments


def test_minutes_of_the_page_view_board() -> None:
    board = PageviewBoard()
    first, second = "2026-01-01T10:01:00.000Z", "2026-01-01T10:02:00.000Z"
    told(board, "busiest", {"url": "/", "window_end": first, "rank": 1, "views": 90},
         {"url": "/a", "window_end": first, "rank": 2, "views": 9},
         {"url": "/b", "window_end": first, "rank": 3, "views": 8},
         {"url": "/", "window_end": second, "rank": 1, "views": 7})  # fmt: skip
    assert board.minutes() == []  # the sketch has told nothing yet
    told(board, "busiest_about", {"url": "/", "window_end": first, "rank": 1, "at_least": 89, "at_most": 95},
         {"url": "/<", "window_end": first, "rank": 2, "at_least": 5, "at_most": 11},
         {"url": "/a", "window_end": first, "rank": 3, "at_least": 2, "at_most": 8}, {"nonsense": 1})  # fmt: skip
    assert board.minutes() == [first]
    lines = board.lines(first)
    assert lines == [
        Line("/", 1, 90, 89, 95), Line("/a", 2, 9, 2, 8), Line("/b", 3, 8, None, None), Line("/<", None, None, 5, 11),
    ]  # fmt: skip
    assert [line.right for line in lines] == [True, False, None, None]
    drawn = lines_html(lines)
    assert "/&lt;" in drawn
    assert drawn.count("mr-wrong") == 1
    assert drawn.index(">/a<") < drawn.index("/&lt;")


def test_the_leader_board_is_the_ranking_whatever_the_partitions_do() -> None:
    """Changes of the best five of twenty, told as the flow tells them; partitions come in any order, and what was told
    last is told again."""
    chance = random.Random(3)
    points: dict[str, int] = {}
    ranking: dict[str, tuple[int, int]] = {}
    parts: tuple[list[dict[str, Any]], ...] = ([], [])
    for _ in range(300):
        points[f"p{chance.randrange(20)}"] = chance.randrange(1_000)
        best = sorted(points.items(), key=lambda each: (-each[1], each[0]))[:5]
        now = {player: (rank, had) for rank, (player, had) in enumerate(best, 1)}
        for diff, some, other in ((-1, ranking, now), (1, now, ranking)):
            for player, (rank, had) in some.items():
                if other.get(player) != (rank, had):
                    row = {"player": player, "rank": rank, "points": had, "__diff": diff}
                    parts[int(player[1:]) % 2].append(row)
        ranking = now
    board = LeaderBoard()
    for _ in range(2):  # read again from the beginning
        board.begin("leaders")
        left = [list(part) for part in parts]
        while any(left):
            part = chance.choice([each for each in left if each])
            told(board, "leaders", part.pop(0))
    for part in parts:
        told(board, "leaders", *part[-6:])
    assert [(each.player, each.rank, each.points) for each in board.leaders()] == [
        (player, rank, had) for player, (rank, had) in sorted(ranking.items(), key=lambda each: each[1])
    ]
    first = board.leaders()[0].player
    assert next(each.player for each in board.leaders(first.upper())) == first
