"""Payments of few customers for tests of the fraud demo, and how they come to Kafka."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.demo import fraud
from millrace.log import Log
from tests.command import until
from tests.crash.supervisor import PATIENCE
from tests.demo.recomputed import Alert, of_rows

START = datetime(2026, 1, 1, 10, tzinfo=UTC)
CARDS = 40
LIMIT_S = 180 * PATIENCE
PROBE_S = 2.0
Rows = Sequence[dict[str, Any]]


def payments(count: int, seed: int, gap_s: float = 1.5, start: datetime = START) -> list[dict[str, Any]]:
    """Made-up ones, of few cards, so that rules meet by chance too; a second or two from one to the next."""
    chance, at, found = random.Random(seed), start, []
    for n in range(count):
        at += timedelta(microseconds=round(chance.uniform(0.1, 2 * gap_s) * 1e6))
        found.append(fraud.payment(chance, n, at, CARDS))
    return found


def customers() -> list[dict[str, Any]]:
    """All but the last customer, who is unknown; and one who from the middle on spends more."""
    known = [fraud.customer(number, START) for number in range(CARDS // 2 - 1)]
    return [*known, {**fraud.customer(4, START + timedelta(minutes=5)), "usual": 500.0}]


def write(log: Log, topic: str, rows: Rows, key: str) -> None:
    log.topics.ensure(topic, partitions=2)
    with log.writer(topic) as writer:
        for row in rows:
            writer.write(row, key=str(row[key]))


def found(log: Log, topic: str) -> dict[str, Alert]:
    """What a topic of alerts holds, without those of probes."""
    rows = of_rows(record.json() for record in log.read(topic)) if log.topics.exists(topic) else {}
    return {name: each for name, each in rows.items() if not each.card.startswith("probe")}


def until_known(log: Log, who: Sequence[int], at: datetime, alive: Callable[[], object]) -> None:
    """Which topic is read first is chance: payments are to begin when these customers' profiles have been read. Probes
    are payments that raise an alert as soon as they are."""
    sent, this, due = 0, f"probe-{at:%H%M%S%f}-", 0.0
    made = fraud.payment(random.Random(1), 1, at, CARDS) | {"amount": 5_000.0, "country": "XX"}

    def are_known() -> bool:
        nonlocal sent, due
        alive()
        if time.monotonic() > due:  # a flow that starts would be behind them for long
            some = []
            for number in who:
                some.append(made | {"id": f"{this}{sent}", "card": f"{this}{sent}", "customer": number})
                sent += 1
            write(log, "payments", some, "card")
            due = time.monotonic() + PROBE_S
        rows = [record.json() for record in log.read("alerts")] if log.topics.exists("alerts") else []
        told = {row["payment"]: row["customer"] for row in rows if row["rule"] == "model"}
        return set(who) <= {customer for name, customer in told.items() if name.startswith(this)}

    until(are_known, "alerts that need profiles", LIMIT_S)
