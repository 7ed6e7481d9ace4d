"""What the soak calls flat, and what not; and that its picture is one."""

from __future__ import annotations

import math
import random
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from tests.soak.judge import Series, svg

NOISE = random.Random(7)


def series(value: Callable[[float], float], floor: float = 1.0) -> Series:
    return Series("memory", "MB", floor, [(minute / 6, value(minute / 6)) for minute in range(720)])


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        (lambda _: 500.0, True),
        (lambda _: 500 + NOISE.gauss(0, 40), True),  # it varies, and goes nowhere
        (lambda minute: 500 - 300 * math.exp(-minute / 8), True),  # it warms up
        (lambda minute: 500 + 50 * (minute % 10) / 10, True),  # a saw: what is purged from time to time
        (lambda minute: 500 + (5_000 if 60 < minute < 61 else 0), True),  # a wild minute
        (lambda minute: 500 - minute, True),
        (lambda minute: 500 + 0.8 * minute, False),  # a slow leak: 67 MB in 84 minutes
        (lambda minute: 500 + 0.8 * minute + NOISE.gauss(0, 40), False),
        (lambda minute: 500 + 50 * (minute % 10) / 10 + 0.8 * minute, False),
        (lambda minute: minute / 100, True),  # less than the floor
        (lambda minute: minute / 10, False),
    ],
)
def test_a_slope_decides(value: Callable[[float], float], flat: bool) -> None:
    found = series(value)
    assert found.flat == flat, found.line()
    assert ("flat" in found.line()) == flat


def test_nothing_measured_is_not_flat() -> None:
    assert not Series("memory", "MB", 1.0, []).flat


def test_the_picture_shows_every_series() -> None:
    names = ["memory of Spark", "latency"]
    made = [Series(name, "MB", 1.0, [(0.0, 3.0), (1.0, 4.0), (2.0, 0.0)]) for name in names]
    drawn = ET.fromstring(svg([*made, Series("none", "MB", 1.0, [])], "two minutes"))
    texts = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [text.partition(":")[0] for text in texts] == ["two minutes", *names]
    lines = list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 2 * len(names)
    assert lines[0].get("points") == "10.0,47.0 330.0,36.0 650.0,80.0"
