"""Durations are read as people write them, and nothing else is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import durations
from millrace.errors import DurationInvalid

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [
        ("10 seconds", 10_000),
        ("1 second", 1_000),
        ("7 days", 7 * DAY_MS),
        ("30s", 30_000),
        ("500ms", 500),
        ("1 h 30 min", 5_400_000),
        ("1 hour, 30 minutes", 5_400_000),
        ("1.5 hours", 5_400_000),
        ("2 weeks", 14 * DAY_MS),
        ("  5 MIN ", 300_000),
        ("0 seconds", 0),
    ],
)
def test_it_reads(text: str, length_ms: int) -> None:
    assert durations.milliseconds(text) == length_ms
    assert durations.parse(text) == timedelta(milliseconds=length_ms)


@pytest.mark.parametrize(
    "text",
    ["", "10", "days", "-1 day", "1 month", "1 year", "10 seconds ago", "1 day x", "1e3 s", "٣ days", "999999 weeks"],
)
def test_it_refuses(text: str) -> None:
    with pytest.raises(DurationInvalid):
        durations.milliseconds(text)


def test_a_negative_timedelta_is_refused() -> None:
    with pytest.raises(DurationInvalid):
        durations.milliseconds(timedelta(seconds=-1))


@given(st.integers(0, 10_000 * DAY_MS))
def test_what_is_spoken_reads_back(length_ms: int) -> None:
    assert durations.milliseconds(durations.spoken(length_ms)) == length_ms


def test_it_speaks_in_the_largest_exact_unit() -> None:
    assert durations.spoken(7 * DAY_MS) == "7 days"
    assert durations.spoken(90_000) == "90 seconds"
    assert durations.spoken(3_600_000) == "1 hour"
    assert durations.spoken(1_500) == "1500 milliseconds"
