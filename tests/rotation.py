"""Many alike and slow cases: each run takes some of them, another day others; `make test-all` takes them all. And what
is drawn is drawn otherwise on another day. TEST_DAY=739000 is that day: what failed then fails again."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

Case = TypeVar("Case")


def today() -> int:
    return int(os.environ.get("TEST_DAY") or datetime.now(UTC).toordinal())


def is_turn(number: int, of: int) -> bool:
    """Whether today is the turn of a test that is marked `turn(number, of)`."""
    return bool(os.environ.get("TEST_ALL")) or today() % of == number


def todays(cases: Sequence[Case], count: int) -> list[Case]:
    if os.environ.get("TEST_ALL"):
        return list(cases)
    first = today() * count
    return [cases[(first + number) % len(cases)] for number in range(min(count, len(cases)))]


def seeds(count: int) -> list[int]:
    """Other ones every day; `make test-all` takes this many, of which the first is the day's."""
    print(f"seeds of TEST_DAY={today()}")
    return [today() + number * 1_000_000 for number in range(count if os.environ.get("TEST_ALL") else 1)]


def seeded(name: str) -> random.Random:
    """What a test draws from today. pytest shows what is printed here when the test fails."""
    print(f"drawn for {name!r}: TEST_DAY={today()} draws the same")
    return random.Random(f"{name} {today()}")
