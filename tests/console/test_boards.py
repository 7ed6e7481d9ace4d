"""What live pages show is what plain Python makes of the same records, and an app has the pages that fit it."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import millrace as mr
from millrace.console import board_bank, board_leaders, charts
from millrace.console.board import Board, bring
from millrace.console.board_bank import EVENTS, BankBoard
from millrace.console.board_fraud import JOURNEY, MOST_PAYMENTS, FraudBoard
from millrace.console.board_leaders import LeaderBoard
from millrace.console.board_pageviews import Line, PageviewBoard
from millrace.console.live import LIVE
from millrace.console.page_leaders import gone_said, rank_said
from millrace.console.page_live import misfits_said
from millrace.console.page_pageviews import bound_said, lines_html
from millrace.console.ranks import Rank, ranking_of
from millrace.demo import attribution, bank, fraud, leaderboard, pageviews, shop, trending
from tests.demo import recomputed

START = datetime(2026, 1, 1, 10, tzinfo=UTC)


def told(board: Board, topic: str, *rows: dict[str, Any]) -> None:
    bring(board, topic, [json.dumps(row, default=_plain).encode() for row in rows])


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def made_up(count: int, cards: int, start: datetime = START) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Payments of the demo, and the alerts that plain Python makes of them."""
    chance = random.Random(7)
    payments = [fraud.payment(chance, n, start + timedelta(milliseconds=70 * n), cards) for n in range(count)]
    customers = [fraud.customer(number, start - timedelta(hours=1)) for number in range(cards // 2)]
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
        (bank.app, ["Bank"]),
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
    payments, alerts = made_up(1_500, fraud.CARDS)
    board = FraudBoard(lambda: START + timedelta(minutes=2))
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
    spans = ({"min": 0, "max": 0} | options[f"{one}Axis"] for one in "xy")
    _no_name_stands_on_another(options, *spans)
    (drawn_paid,) = (each["data"] for each in options["series"] if each["name"] == "payments")
    drawn = {each["name"]: each["symbolSize"] for each in drawn_paid}
    assert len(drawn) == len(paid)
    assert max(drawn.values()) == 28
    assert list(drawn.values()) == sorted(drawn.values(), reverse=True), "the more payments, the larger"


def _no_name_stands_on_another(options: dict[str, Any], across: dict[str, int], up: dict[str, int]) -> None:
    (paid,) = (each["data"] for each in options["series"] if each["name"] == "payments")
    known = [charts.boxes(each, across, up) for each in paid]
    named = [own[each["label"]["position"]] for own, each in zip(known, paid, strict=True)]
    every = [*named, *(own["circle"] for own in known)]
    assert len(paid) == 5
    for one, box in enumerate(named):
        for other in (*every[:one], *every[one + 1 :]):
            assert box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1], paid


def test_the_fraud_board_keeps_so_many_payments_and_counts_all() -> None:
    board = FraudBoard(lambda: START)
    told(board, "payments", *({"id": n, "lat": 1, "lon": 2.5, "at": START} for n in range(MOST_PAYMENTS + 5)))
    told(board, "payments", {"id": "nowhere", "lat": None, "at": START})
    assert (len(board.payments), board.paid()) == (MOST_PAYMENTS, MOST_PAYMENTS + 5)
    assert "5" in board.payments
    assert "4" not in board.payments


def test_the_fraud_board_is_of_the_last_fifteen_minutes_also_when_nothing_comes_any_more() -> None:
    """Twenty minutes of 40 payments a second, of which each hundredth raises an alert; and then silence."""
    now, rate = START, 40
    board = FraudBoard(lambda: now)
    for minute in range(20):
        rows = [
            {"id": n, "card": f"c{n % 900}", "lat": 1, "lon": 2.5, "at": START + timedelta(seconds=n / rate)}
            for n in range(60 * rate * minute, 60 * rate * (minute + 1))
        ]
        raised = [
            {"id": f"model:{row['id']}", "rule": "model", "card": row["card"], "payment": row["id"], "at": row["at"]}
            for row in rows[::100]
        ]
        first, then = (("alerts", raised), ("payments", rows))[:: 1 if minute % 2 else -1]
        for topic, some in (first, then):  # the topics are read side by side
            told(board, topic, *some)
        told(board, "alerts", *raised[-3:])  # again, as after a crash
        now += timedelta(minutes=1)
        board.age()
        lasting = min(minute + 1, 15) * 60 * rate
        assert board.paid() == board.places()[0].payments == lasting
        assert board.rules() == {"model": lasting // 100}
        assert board.places()[0].alerts == lasting // 100
        assert board.cards() == 9
    assert len(board.payments) == MOST_PAYMENTS
    assert {each.id for each in board.told()} == {f"model:{n}" for n in range(5 * 60 * rate, 20 * 60 * rate, 100)}
    before = board.n
    now += timedelta(minutes=10)
    board.age()
    assert board.n > before, "a page draws it anew"
    assert (board.paid(), board.rules().total(), len(board.told())) == (5 * 60 * rate, 120, 120)
    assert len(board.payments) == 5 * 60 * rate
    told(board, "payments", {"id": "old", "card": "c", "lat": 1, "lon": 2.5, "at": START})
    board.begin("alerts")  # it is read again
    told(board, "alerts", *raised, *raised)
    assert (board.rules().total(), board.places()[0].alerts) == (24, 24)
    now += timedelta(minutes=10)
    board.age()
    assert (board.paid(), board.places(), board.rules().total(), board.told()) == (0, [], 0, [])


def test_records_that_do_not_fit_are_counted_and_end_nothing() -> None:
    fraud_board, books, busiest = FraudBoard(lambda: START), BankBoard(), PageviewBoard()
    bring(fraud_board, "alerts", [b"no JSON", None, b"[]"])
    told(fraud_board, "payments", {"id": "1", "lat": 1, "lon": 2}, {"id": "2", "at": "yesterday"}, {"at": START})
    assert (fraud_board.misfits, fraud_board.n) == ({"alerts": 2, "payments": 2}, 1)
    opened, *rest = recorded(10)
    nonsense = {"position": 1_000, "at": "now", "id": "a-1", "type": "Deposited", "data": {"amount": "much"}}
    told(books, EVENTS, opened, {"after": None}, {"after": nonsense | {"position": 2}}, *rest)
    assert (books.misfits.total(), books.live.events) == (2, len([opened, *rest]) - 1)
    told(busiest, "busiest", {"url": "/", "window_end": "", "rank": "first", "views": 1}, {"nonsense": 1})
    assert busiest.misfits == {"busiest": 2}
    assert busiest.minutes() == []
    assert misfits_said(1) == "1 record does not fit: its fields are missing or of another kind than this page knows"
    assert misfits_said(1_200).startswith("1,200 records do not fit: their fields")


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


def test_the_running_minute_of_the_page_view_board() -> None:
    """Signed rows of two partitions, in any order between them; some are told again."""
    board, first, second = PageviewBoard(), "2026-01-01T10:01:00.000Z", "2026-01-01T10:02:00.000Z"

    def change(url: str, rank: int, views: int, diff: int, end: str = first) -> dict[str, Any]:
        return {"url": url, "window_end": end, "rank": rank, "views": views, "__diff": diff}

    assert board.now() == ("", [])
    told(board, "busiest_now", change("/", 1, 1, 1), change("/a", 2, 1, 1))
    # /a overtakes /: what came of /a is read before what went of /.
    repeated = [change("/a", 2, 1, -1), change("/a", 1, 2, 1), change("/", 1, 1, -1), change("/", 2, 1, 1)]
    for _ in range(2):
        told(board, "busiest_now", *repeated)
        assert board.now() == (first, [Line("/a", 1, 2, None, None), Line("/", 2, 1, None, None)])
    assert "by the sketch" not in lines_html(board.now()[1], sketched=False)
    told(board, "busiest_now", change("/b", 1, 1, 1, second), change("/", 2, 1, -1))
    assert board.now() == (second, [Line("/b", 1, 1, None, None)])
    board.begin("busiest_now")
    assert board.now() == ("", [])
    about = {"window_end": first, "rank": 1, "all_views": 612}
    told(board, "busiest_about", {**about, "url": "/", "at_least": 89, "at_most": 95})
    assert board.bound(first) == (6, 612)
    assert bound_said(*board.bound(first)) == "6 views (0.98% of 612)"
    assert bound_said(6, None) == "6 views"


def test_late_corrections_of_the_page_view_board() -> None:
    board, row = PageviewBoard(), {"url": "/", "window_end": "2026-01-01T10:01:00.000Z", "views": 1}
    before = [{"start": "2026-01-01T10:00:00.000Z", "end": row["window_end"]}]
    for _ in range(2):  # read again from the beginning
        board.begin("per_minute")
        told(board, "per_minute", {**row, "replaces": None}, {**row, "views": 2, "replaces": before}, {"no": "count"})
        assert board.corrected == 1
    assert board.misfits == {"per_minute": 2}


def test_the_leader_board_is_the_ranking_whatever_the_partitions_do(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert None not in {each.rose for each in board.leaders()}, "nobody has come in while somebody looked"
    monkeypatch.setattr(board_leaders, "FRESH_S", 0.0)
    told(board, "leaders", {"player": "newcomer", "rank": 6, "points": 0, "__diff": 1})
    assert board.leaders("newcomer")[0].rose is None
    first = board.leaders()[0].player
    assert next(each.player for each in board.leaders(first.upper())) == first


def test_what_is_said_of_a_rank_and_of_changes_that_are_gone() -> None:
    assert rank_said("ann", Rank(1_234, 98.0, 100_000)) == "ann: rank 1,234 of 100,000, with 98 points"
    assert rank_said("bob", None) == "bob has not played"
    assert gone_said(1_200).startswith("The topic has lost its first 1,200 changes to its retention: ")
    ranking = ranking_of(leaderboard.app.graph())
    assert ranking is not None
    assert ranking.ranking == "players"
    assert ranking_of(bank.app.graph()) is None


def recorded(count: int) -> list[dict[str, Any]]:
    """Events of a bank as a capture tells of them: accounts, and transfers that were paid or given back; of the last
    ones some are on their way."""
    chance, found = random.Random(3), list[tuple[str, str, dict[str, Any]]]()
    for number in range(5):
        found += [
            (f"a-{number}", "AccountOpened", {"owner": "sealed"}),
            (f"a-{number}", "Deposited", {"amount": "900"}),
        ]
    while len(found) < count:
        one, other, name = *(f"a-{number}" for number in chance.sample(range(5), 2)), f"t-{len(found)}"
        amount = {"amount": str(Decimal(chance.randrange(1, 9_000)) / 100), "transfer": name}
        taken = [
            (name, "TransferAsked", {"source": one, "target": other, "amount": amount["amount"]}),
            (one, "Withdrawn", amount),
            (name, "TransferTaken", {}),
            ("clock", "millrace.ticked", {}),
        ]
        accepted = [*taken, (name, "TransferAccepted", {})]
        paid = [*accepted, (other, "Deposited", amount), (name, "TransferEnded", {"reason": None})]
        late = {"reason": "nobody accepted it"}
        given_back = [*taken, (one, "Deposited", amount), (name, "TransferEnded", late)]
        open_still = (taken[:1], taken[:3], accepted, paid)
        found += chance.choice((paid, paid, given_back) if len(found) < count - 30 else open_still)
    return [
        {
            "after": {
                "position": place,
                "at": (START + timedelta(seconds=place)).isoformat(),
                "id": name,
                "type": kind,
                "data": json.dumps(data),
            }
        }
        for place, (name, kind, data) in enumerate(found, 1)
    ]


def plain_books(rows: list[dict[str, Any]]) -> tuple[dict[str, Decimal], Decimal]:
    """What accounts have, and what was taken for transfers that have not ended."""
    balances, way, asked = dict[str, Decimal](), dict[str, Decimal](), dict[str, Decimal]()
    for row in (each["after"] for each in rows):
        data, name = json.loads(row["data"]), row["id"]
        if row["type"] in ("AccountOpened", "Deposited", "Withdrawn"):
            sign = {"Deposited": 1, "Withdrawn": -1}.get(row["type"], 0)
            balances[name] = balances.get(name, Decimal(0)) + sign * Decimal(data.get("amount", 0))
        elif row["type"] == "TransferAsked":
            asked[name] = Decimal(data["amount"])
        elif row["type"] == "TransferTaken":
            way[name] = asked[name]
        elif row["type"] == "TransferEnded":
            way.pop(name, None)
    return balances, sum(way.values(), Decimal(0))


def test_the_books_of_the_bank_are_those_of_its_events_at_every_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = recorded(400)
    business = [row for row in rows if row["after"]["type"] != "millrace.ticked"]
    board = BankBoard()
    told(board, EVENTS, *rows[:250], *rows[200:])  # some again, as when a capture begins anew
    assert board.live.events == len(business)
    for moment in random.Random(1).sample(range(len(business) + 1), 60):
        books = board.after(moment)
        assert (books.balances, books.on_its_way) == plain_books(business[:moment])
        assert [each.position for each in board.before(moment, 10)] == [
            row["after"]["position"] for row in business[:moment][:-11:-1]
        ]
    assert "sealed" not in {each.said for each in board.before(len(business), 10**6)}
    again, behind, other = BankBoard(), BankBoard(), BankBoard()
    told(again, EVENTS, *rows)
    told(behind, EVENTS, *rows[:300])
    one = next(place for place, row in enumerate(rows) if place > 20 and row["after"]["type"] == "Deposited")
    told(other, EVENTS, *rows[:one], *rows[one + 1 :])
    assert (board.same(again), board.same(behind), behind.same(again), board.same(other)) == (True, True, None, False)
    monkeypatch.setattr(board_bank, "MOST_EVENTS", 100)
    small = BankBoard()
    told(small, EVENTS, *rows)
    assert small.oldest == len(business) - 100
    for moment in (small.oldest, small.oldest + 50, small.oldest + 7, len(business)):
        assert small.after(moment).balances == plain_books(business[:moment])[0]
    assert small.live.balances == board.live.balances
