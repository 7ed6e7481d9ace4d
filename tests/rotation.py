"""Many alike and slow cases: each run takes some of them, another day others; `make test-all` takes them all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

Case = TypeVar("Case")


def is_turn(number: int, of: int) -> bool:
    """Whether today is the turn of a test that is marked `turn(number, of)`."""
    return bool(os.environ.get("TEST_ALL")) or datetime.now(UTC).toordinal() % of == number


def todays(cases: Sequence[Case], count: int) -> list[Case]:
    if os.environ.get("TEST_ALL"):
        return list(cases)
    first = datetime.now(UTC).toordinal() * count
    return [cases[(first + number) % len(cases)] for number in range(min(count, len(cases)))]
