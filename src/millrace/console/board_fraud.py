"""Payments on a plane of latitude and longitude, and the alerts about them with rule and evidence."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar

from millrace.console.board import Board

PAYMENTS = "payments"
ALERTS = ("alerts", "card_testing")
JOURNEY = "impossible journey"
SINCE = timedelta(minutes=15)
# What is counted is forgotten in pieces of this length.
SLICE_S = 5
# Payments that are known one by one, for cards and journeys: all of 15 minutes at the demo's 20 a second. More are
# counted, and the map has them.
MOST_PAYMENTS = 20_000
MOST_ALERTS = 2_000
# So many ids of alerts are known, so that one which is told again counts once; and so many wait for their payment.
MOST_KNOWN = 50_000
MOST_JOURNEYS = 20

Where = tuple[float, float]


@dataclass(frozen=True)
class Payment:
    id: str
    card: str
    amount: str
    status: str
    country: str
    lat: float
    lon: float
    at: str

    @property
    def where(self) -> Where:
        """Those within a tenth of a degree are in one place."""
        return round(self.lat, 1), round(self.lon, 1)


@dataclass(frozen=True)
class Alert:
    id: str
    rule: str
    evidence: str
    card: str
    customer: str
    payment: str
    at: str


@dataclass(frozen=True)
class Place:
    """Where payments were made lately, and about how many of them there were alerts."""

    lat: float
    lon: float
    country: str
    payments: int
    alerts: int


@dataclass
class _Slice:
    """What happened in a few seconds, counted."""

    paid: Counter[tuple[Where, str]] = field(default_factory=Counter)
    alarmed: Counter[Where] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    cards: set[str] = field(default_factory=set)


class FraudBoard(Board):
    """What happened in the last 15 minutes, by the times of payments and alerts: `age` forgets what is older. Counters
    have all of it; single payments and alerts are kept as far as there is room, the newest to come."""

    topics: ClassVar[Mapping[str, timedelta | None]] = dict.fromkeys((PAYMENTS, *ALERTS), SINCE)

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        super().__init__()
        self.payments: OrderedDict[str, Payment] = OrderedDict()
        self.alerts: OrderedDict[str, Alert] = OrderedDict()
        self._now = now
        self._aged = 0
        # By topic, so that each can be read again from the beginning.
        self._slices: dict[tuple[int, str], _Slice] = {}
        self._known: OrderedDict[str, str] = OrderedDict()
        self._waiting: OrderedDict[str, list[tuple[int, str]]] = OrderedDict()

    def begin(self, topic: str) -> None:
        for key in [key for key in self._slices if key[1] == topic]:
            del self._slices[key]
        if topic == PAYMENTS:
            self.payments.clear()
        for name in [name for name, told in self._known.items() if told == topic]:
            del self._known[name]
            self.alerts.pop(name, None)
        for waiting in self._waiting.values():
            waiting[:] = [each for each in waiting if each[1] != topic]

    def take(self, topic: str, row: Mapping[str, Any]) -> None:
        """A real-time flow tells its last epoch again after a crash: what has the same id is the same."""
        number = self._slice_of(row)
        if number is None:
            return
        if topic != PAYMENTS:
            self._alarm(topic, number, _alert(row))
        elif (payment := _payment(row)) is not None and payment.id not in self.payments:
            self.payments[payment.id] = payment
            _shorten(self.payments, MOST_PAYMENTS)
            self._slice(number, PAYMENTS).paid[payment.where, payment.country] += 1
            for key in self._waiting.pop(payment.id, ()):
                if key in self._slices:
                    self._slices[key].alarmed[payment.where] += 1

    def age(self) -> None:
        """Forgets what is older than 15 minutes by now. Called now and then, also when nothing comes."""
        oldest = _number(self._now() - SINCE)
        if oldest == self._aged:
            return
        self._aged = oldest
        count = len(self._slices)
        self._slices = {key: found for key, found in self._slices.items() if key[0] >= oldest}
        self.n += count != len(self._slices)
        for payment in [each for each in self.payments.values() if _number(_moment(each.at)) < oldest]:
            del self.payments[payment.id]
        for alert in [each for each in self.alerts.values() if _number(_moment(each.at)) < oldest]:
            del self.alerts[alert.id]

    def told(self, rule: str | None = None) -> list[Alert]:
        """Alerts, the newest first."""
        found = [each for each in self.alerts.values() if rule in (None, each.rule)]
        return sorted(found, key=lambda each: each.at, reverse=True)

    def paid(self) -> int:
        return sum(sum(each.paid.values()) for each in self._slices.values())

    def rules(self) -> Counter[str]:
        return _sum(each.rules for each in self._slices.values())

    def cards(self) -> int:
        """How many there are alerts about."""
        return len(set[str]().union(*(each.cards for each in self._slices.values())))

    def places(self) -> list[Place]:
        paid, named = Counter[Where](), dict[Where, Counter[str]]()
        for (where, country), count in _sum(each.paid for each in self._slices.values()).items():
            paid[where] += count
            named.setdefault(where, Counter())[country] += count
        alarmed = _sum(each.alarmed for each in self._slices.values())
        return [
            Place(*where, named[where].most_common(1)[0][0], count, alarmed[where])
            for where, count in paid.most_common()
        ]

    def journeys(self) -> list[tuple[Payment, Payment]]:
        """From where to where the cards were that cannot have been, as far as both payments are known."""
        alerts = self.told(JOURNEY)[:MOST_JOURNEYS]
        cards = dict[str, list[Payment]]((each.card, []) for each in alerts)
        for each in self.payments.values():
            if each.card in cards:
                cards[each.card].append(each)
        found = {}
        for card, own in cards.items():
            for before, there in pairwise(sorted(own, key=lambda each: each.at)):
                found[card, there.id] = (before, there)
        return [found[key] for each in alerts if (key := (each.card, each.payment)) in found]

    def of_card(self, card: str) -> list[Payment]:
        """The newest first."""
        return sorted((each for each in self.payments.values() if each.card == card), key=lambda each: each.at)[::-1]

    def _alarm(self, topic: str, number: int, alert: Alert) -> None:
        if alert.id in self._known:
            return
        self._known[alert.id] = topic
        self.alerts[alert.id] = alert
        found = self._slice(number, topic)
        found.rules[alert.rule] += 1
        found.cards.add(alert.card)
        payment = self.payments.get(alert.payment)
        if payment is None:  # topics are read side by side
            self._waiting.setdefault(alert.payment, []).append((number, topic))
        else:
            found.alarmed[payment.where] += 1
        _shorten(self._known, MOST_KNOWN)
        _shorten(self.alerts, MOST_ALERTS)
        _shorten(self._waiting, MOST_KNOWN)

    def _slice(self, number: int, topic: str) -> _Slice:
        return self._slices.setdefault((number, topic), _Slice())

    def _slice_of(self, row: Mapping[str, Any]) -> int | None:
        """Its number; None if it is too old. What is ahead of the clock here is of now, so that it grows old too."""
        now = self._now()
        number = min(_number(_moment(row["at"])), _number(now))
        return number if number >= _number(now - SINCE) else None


def _shorten(kept: OrderedDict[str, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)


def _sum(counters: Iterable[Counter[Any]]) -> Counter[Any]:
    found = Counter[Any]()
    for each in counters:
        found.update(each)
    return found


def _moment(at: Any) -> datetime:
    found = datetime.fromisoformat(str(at))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _number(moment: datetime) -> int:
    return int(moment.timestamp() // SLICE_S)


def _payment(row: Mapping[str, Any]) -> Payment | None:
    """None without a place."""
    lat, lon = row.get("lat"), row.get("lon")
    if not isinstance(lat, int | float) or not isinstance(lon, int | float):
        return None
    name, card, amount, status, country, at = (
        str(row.get(name, "")) for name in ("id", "card", "amount", "status", "country", "at")
    )
    return Payment(name, card, amount, status, country, float(lat), float(lon), at)


def _alert(row: Mapping[str, Any]) -> Alert:
    return Alert(*(str(row.get(name, "")) for name in ("id", "rule", "evidence", "card", "customer", "payment", "at")))
