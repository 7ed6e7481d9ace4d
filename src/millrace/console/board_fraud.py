"""Payments on a plane of latitude and longitude, and the alerts about them with rule and evidence."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from millrace.console.board import Board

PAYMENTS = "payments"
ALERTS = ("alerts", "card_testing")
JOURNEY = "impossible journey"
SINCE = timedelta(minutes=15)
MOST_PAYMENTS = 5_000
MOST_ALERTS = 500
MOST_JOURNEYS = 20


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


class FraudBoard(Board):
    topics: ClassVar[Mapping[str, timedelta | None]] = dict.fromkeys((PAYMENTS, *ALERTS), SINCE)

    def __init__(self) -> None:
        super().__init__()
        self.payments: OrderedDict[str, Payment] = OrderedDict()
        self.alerts: OrderedDict[str, Alert] = OrderedDict()

    def take(self, topic: str, row: Mapping[str, Any]) -> None:
        """A real-time flow tells its last epoch again after a crash: what has the same id is the same."""
        if topic == PAYMENTS:
            payment = _payment(row)
            if payment is not None:
                self.payments[payment.id] = payment
                while len(self.payments) > MOST_PAYMENTS:
                    self.payments.popitem(last=False)
            return
        alert = _alert(row)
        self.alerts[alert.id] = alert
        while len(self.alerts) > MOST_ALERTS:
            self.alerts.popitem(last=False)

    def told(self, rule: str | None = None) -> list[Alert]:
        """Alerts, the newest first."""
        found = [each for each in self.alerts.values() if rule in (None, each.rule)]
        return sorted(found, key=lambda each: each.at, reverse=True)

    def rules(self) -> Counter[str]:
        return Counter(each.rule for each in self.alerts.values())

    def places(self) -> list[Place]:
        """Those within a tenth of a degree are one."""
        paid: Counter[tuple[float, float]] = Counter()
        named: dict[tuple[float, float], Counter[str]] = {}
        for each in self.payments.values():
            where = (round(each.lat, 1), round(each.lon, 1))
            paid[where] += 1
            named.setdefault(where, Counter())[each.country] += 1
        alarmed = Counter(
            (round(payment.lat, 1), round(payment.lon, 1))
            for each in self.alerts.values()
            if (payment := self.payments.get(each.payment)) is not None
        )
        return [
            Place(*where, named[where].most_common(1)[0][0], count, alarmed[where])
            for where, count in paid.most_common()
        ]

    def journeys(self) -> list[tuple[Payment, Payment]]:
        """From where to where the cards were that cannot have been, as far as both payments are known."""
        found = []
        for alert in self.told(JOURNEY)[:MOST_JOURNEYS]:
            there = self.payments.get(alert.payment)
            before = [] if there is None else [each for each in self.of_card(alert.card) if each.at < there.at]
            if there is not None and before:
                found.append((before[0], there))
        return found

    def of_card(self, card: str) -> list[Payment]:
        """The newest first."""
        return sorted((each for each in self.payments.values() if each.card == card), key=lambda each: each.at)[::-1]


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
