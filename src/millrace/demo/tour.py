"""The tour through the applications: what there is to see in each, and its figures while it runs."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.engine import Run
from millrace.errors import MillraceError
from millrace.log import Log, Position, Record
from millrace.log.following import AGAIN_S
from millrace.views.store import Store

# Records that nobody has printed yet; of more, the newest.
MOST_WAITING = 10_000


class Seen:
    """What is seen of an application while it runs: the rows that its flows have read, and what comes to its topics
    from now on; `records` are those of `shown` that are still to be printed. Use it as a context."""

    def __init__(self, run: Run, topics: Sequence[str], shown: Sequence[str] = ()) -> None:
        self.run = run
        self.records: deque[Record] = deque(maxlen=MOST_WAITING)
        self._shown = frozenset(shown)
        self.came: Counter[str] = Counter()
        self.last: dict[str, Mapping[str, Any]] = {}
        self.first: dict[str, Mapping[str, Any]] = {}
        self._ended = threading.Event()
        self._log = Log(run.settings)
        self._threads = [
            threading.Thread(target=self._follow, args=(topic,), daemon=True)
            for topic in dict.fromkeys([*topics, *shown])
        ]

    def __enter__(self) -> Seen:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def rows_in(self, *flows: str) -> int:
        """Of these flows, or of all; in real time also of the epoch at hand, which may take a minute."""
        standings = self.run.standings
        return sum(standing.rows_taken for name, standing in standings.items() if not flows or name in flows)

    def _follow(self, topic: str) -> None:
        """Until the end. After a trouble, of which the run tells, it goes on behind the millisecond of the last record:
        these are figures to look at."""
        since: Position = "latest"
        began = datetime.now(UTC)
        while not self._ended.is_set():
            try:
                for record in self._log.read(topic, since, follow=True, stop=self._ended):
                    began = began if record.time is None else record.time + timedelta(milliseconds=1)
                    self._take(topic, record)
            except MillraceError:
                since = began
                self._ended.wait(AGAIN_S)

    def _take(self, topic: str, record: Record) -> None:
        if topic in self._shown:
            self.records.append(record)
        try:
            row = record.json()
        except ValueError:
            return
        if not isinstance(row, dict):
            return
        self.came[topic] += 1
        self.last[topic] = row
        if row.get("rank") == 1 and row.get("__diff", 1) > 0:
            self.first[topic] = row


def _fraud(seen: Seen) -> str:
    found = [seen.last[topic] for topic in ("alerts", "card_testing") if topic in seen.last]
    last = f"; the last: {found[0]['rule']} of {found[0]['card']}, {found[0]['evidence']}" if found else ""
    return (
        f"{seen.rows_in('card_testing'):,} payments, {seen.came['alerts'] + seen.came['card_testing']:,} alerts{last}"
    )


def _pageviews(seen: Seen) -> str:
    told = f"{seen.rows_in('per_minute'):,} views"
    if (exact := seen.first.get("busiest")) is not None:
        told += f"; busiest of the minute: {exact['url']} with {exact['views']:,}"
    if (about := seen.first.get("busiest_about")) is not None:
        told += f" (by the sketch {about['at_least']:,} to {about['at_most']:,})"
    return told


def _leaderboard(seen: Seen) -> str:
    first = seen.first.get("leaders")
    best = f"; first: {first['player']} with {first['points']:,} points" if first else ""
    return f"{seen.rows_in('leaders'):,} scores, {seen.came['leaders']:,} changes of the best hundred{best}"


def _shop(seen: Seen) -> str:
    store = Store(seen.run.settings, seen.run.graph.app)
    try:
        shown = {each.view for each in store.positions()}
        rows = store.rows("revenue")[1] if "revenue" in shown else []
    except MillraceError:  # the store is not made yet
        rows = []
    finally:
        store.close()
    cities = ", ".join(f"{city} ${revenue:,.0f}" for city, _, revenue in sorted(rows))
    told = f"; revenue: {cities}" if cities else ""
    return f"{seen.rows_in():,} changes of the database, {sum(orders for _, orders, _ in rows):,} orders{told}"


def _trending(seen: Seen) -> str:
    first = seen.first.get("trending")
    told = f"; first: {first['tag']} in {first['posts']:,} posts" if first else ""
    return f"{seen.rows_in():,} posts{told}"


def _attribution(seen: Seen) -> str:
    return f"{seen.rows_in('attributed'):,} impressions and clicks, {seen.came['attributed']:,} attributed"


def _notifications(seen: Seen) -> str:
    return f"{seen.rows_in():,} notices of three services, {seen.came['notifications']:,} notifications"


def _bank(seen: Seen) -> str:
    return (
        f"{seen.rows_in():,} rows of accounts and transfers, {seen.came['hasty']:,} hasty withdrawals, "
        f"{seen.came['overdue']:,} transfers overdue"
    )


def _features(seen: Seen) -> str:
    last = seen.last.get("features")
    told = f"; the last: customer {last['customer']}, {last['purchases_1h']} purchases in an hour" if last else ""
    return f"{seen.rows_in('recent'):,} purchases, {seen.came['features']:,} with their features{told}"


@dataclass(frozen=True)
class Stop:
    """An application. `topics` are those that it shows, `look` a command to see more with, `figures` its state in a
    line, `memory_mb` what it takes, its servers and its console included."""

    topics: tuple[str, ...]
    says: str
    look: str
    figures: Callable[[Seen], str]
    memory_mb: int


# In the order in which they are started, as far as there is memory.
STOPS = {
    "fraud": Stop(
        ("alerts", "card_testing", "suspects"),
        "Payments, judged by six rules in real time: an alert comes milliseconds after the payment that raises it.",
        "millrace topic read alerts --follow",
        _fraud,
        450,
    ),
    "pageviews": Stop(
        ("busiest", "busiest_about"),
        "Views of each page and minute, and the ten busiest; phones that were offline send what they saw hours later.",
        "millrace topic read per_minute --follow",
        _pageviews,
        350,
    ),
    "leaderboard": Stop(
        ("leaders",),
        "The hundred best of all players as a stream of changes; everybody's rank in a sorted set of Redis.",
        "redis-cli -u $(millrace url valkey) ZREVRANGE players 0 9 WITHSCORES",
        _leaderboard,
        350,
    ),
    "shop": Stop(
        ("large_orders",),
        "PostgreSQL alone is written to; index, cache, lake and views follow it, and can be compared with it any time.",
        "millrace view watch revenue",
        _shop,
        2_200,
    ),
    "notifications": Stop(
        ("notifications",),
        "Three services tell the same things; a person is told each once, by webhook with an Idempotency-Key.",
        "millrace topic read notifications --follow",
        _notifications,
        250,
    ),
    "trending": Stop(
        ("trending",),
        "Every minute the ten tags that most posts of the last five minutes have.",
        "millrace topic read trending --follow",
        _trending,
        250,
    ),
    "attribution": Stop(
        ("attributed", "click_through"),
        "Which impression a click belongs to, what found no partner, and click-through by campaign as a view.",
        "millrace view watch campaigns",
        _attribution,
        400,
    ),
    "bank": Stop(
        ("hasty", "overdue"),
        "Accounts and transfers as events: what was, what is and what is derived all follow from them.",
        "millrace topic read hasty --follow",
        _bank,
        700,
    ),
    "features": Stop(
        ("features",),
        "What is known of a customer when a purchase comes: now for a model that answers, from the lake to train it.",
        "millrace view watch customer_features",
        _features,
        600,
    ),
}
# What `millrace demo` runs together.
USUAL = ("fraud", "pageviews", "leaderboard", "shop")
