"""The rules of the fraud demo once more, over a list of payments in the order of their times, in plain Python: what
its flows have to find, no more and no less."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from millrace.demo.fraud import MODEL

Row = Mapping[str, Any]
MINUTE = timedelta(minutes=1)


class Alert(NamedTuple):
    rule: str
    card: str
    customer: int
    payment: str
    evidence: str


def of_rows(rows: Iterable[Row]) -> dict[str, Alert]:
    """What a topic of alerts holds, by id."""
    return {row["id"]: Alert(*(row[name] for name in Alert._fields)) for row in rows}


def alerts(payments: Sequence[Row], customers: Sequence[Row]) -> dict[str, Alert]:
    """All but card testing."""
    found, past, profiles = [], defaultdict[str, list[Row]](list), defaultdict[int, list[Row]](list)
    for each in sorted(customers, key=lambda each: each["at"]):
        profiles[each["customer"]].append(each)
    for payment in payments:
        own = past[payment["card"]]
        own.append(payment)
        known = [each for each in profiles[payment["customer"]] if each["at"] <= payment["at"]]
        for rule, evidence in _broken(payment, own, known[-1] if known else None):
            found.append(Alert(rule, payment["card"], payment["customer"], payment["id"], evidence))
    return {f"{each.rule}:{each.payment}": each for each in found}


def card_testing(payments: Sequence[Row]) -> dict[str, Alert]:
    """Three small ones within 10 minutes before a large one, whatever is between; what raised an alert is used up."""
    found, small = {}, defaultdict[str, list[Row]](list)
    for payment in payments:
        own = small[payment["card"]]
        if payment["amount"] < 2:
            own.append(payment)
        if payment["amount"] > 500 and sum(payment["at"] - each["at"] < 10 * MINUTE for each in own) >= 3:
            evidence = f"3 small payments, then ${payment['amount']:.2f}"
            alert = Alert("card testing", payment["card"], payment["customer"], payment["id"], evidence)
            found[f"card testing:{payment['id']}"] = alert
            own.clear()
    return found


def _broken(payment: Row, own: Sequence[Row], profile: Row | None) -> Iterable[tuple[str, str]]:
    """`own` are the payments of the card so far, this one among them."""

    def last(length: timedelta) -> list[Row]:
        return [each for each in own if each["at"] > payment["at"] - length]

    failed = sum(each["status"] == "failed" for each in last(5 * MINUTE))
    if failed >= 3:
        yield "failed payments", f"{failed} failed payments in 5 minutes"
    if (count := len(last(MINUTE))) > 5:
        yield "many payments", f"{count} payments in 1 minute"
    if (cents := sum(round(each["amount"] * 100) for each in last(10 * MINUTE))) > 500_000:
        yield "much money", f"${cents / 100:.2f} in 10 minutes"
    before = [each for each in own if each["at"] < payment["at"]]  # however long before
    if before:
        hours = (payment["at"] - before[-1]["at"]) / (60 * MINUTE)
        if (kmh := _km(before[-1], payment) / hours) > 500:
            yield "impossible journey", f"{round(kmh)} km/h"
    if profile is not None and (score := _score(payment, failed, profile)) > 0.9:
        yield "model", f"score {round(score, 3)}"


def _score(payment: Row, failed: int, profile: Row) -> float:
    weights = MODEL["weights"]
    times_usual = payment["amount"] / profile["usual"]
    abroad = payment["country"] != profile["country"]
    margin = times_usual * weights["times_usual"] + abroad * weights["abroad"] + failed * weights["failed"]
    return 1 / (1 + math.exp(-(margin + MODEL["intercept"])))


def _km(one: Row, other: Row) -> float:
    """On a ball."""
    lat, lon, to_lat, to_lon = (math.radians(each[name]) for each in (one, other) for name in ("lat", "lon"))
    half = math.sin((to_lat - lat) / 2) ** 2 + math.cos(lat) * math.cos(to_lat) * math.sin((to_lon - lon) / 2) ** 2
    return 2 * 6371.0088 * math.asin(math.sqrt(half))
