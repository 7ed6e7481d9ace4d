"""Values come back from JSON exactly as they went in, or are refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.events.values import codec


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Inner:
    name: str
    at: datetime


@dataclass(frozen=True)
class Everything:
    text: str
    whole: int
    amount: Decimal
    at: datetime
    day: date
    number: UUID
    yes: bool
    half: float
    colour: Colour
    level: Level
    inner: Inner
    many: list[Inner]
    fixed: tuple[Decimal, ...]
    some: frozenset[int]
    named: dict[str, Decimal]
    paired: dict[UUID, list[str]]
    perhaps: Inner | None
    deep: list[dict[str, int | None]] | None = None


zones = st.integers(-720, 720).map(lambda minutes: timezone(timedelta(minutes=minutes)))
texts = st.text(st.characters(exclude_categories=()))  # the zero character and lone surrogates among them
times = st.datetimes(timezones=zones)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
inner = st.builds(Inner, texts, times)
everything = st.builds(
    Everything, texts, st.integers(), decimals, times, st.dates(), st.uuids(), st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(Colour), st.sampled_from(Level), inner,
    st.lists(inner, max_size=2), st.lists(decimals, max_size=2).map(tuple), st.frozensets(st.integers(), max_size=3),
    st.dictionaries(texts, decimals, max_size=2), st.dictionaries(st.uuids(), st.lists(texts, max_size=2), max_size=2),
    st.none() | inner, st.none() | st.lists(st.dictionaries(texts, st.none() | st.integers(), max_size=2), max_size=2),
)  # fmt: skip


def exact(value: Any) -> Any:
    """With what equality passes over: the digits of a decimal, the offset of a time, -0.0."""
    return repr(value)


@given(everything)
def test_what_was_written_is_what_is_read(value: Everything) -> None:
    both = codec(Everything)
    found = both.decode(json.loads(json.dumps(both.encode(value))))
    assert found == value
    assert exact(found.amount) == exact(value.amount)
    assert exact(found.fixed) == exact(value.fixed)
    assert found.at.utcoffset() == value.at.utcoffset()
    assert exact(found.half) == exact(value.half)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, 1), (int, True), (int, 1.0), (int, "1"), (bool, 1), (float, float("nan")), (float, 1), (Decimal, 1),
        (Decimal, Decimal("NaN")), (datetime, datetime(2026, 1, 1)), (datetime, date(2026, 1, 1)),
        (Colour, "red"), (list[int], (1,)), (list[int], ["1"]), (dict[str, int], {1: 1}), (UUID, "x"), (Inner, {}),
        (str, None), (int | None, "x"),
    ],
)  # fmt: skip
def test_another_value_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec(kind).encode(value)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (str, 1), (int, "1"), (bool, 0), (Decimal, 1.5), (Decimal, "x"), (datetime, "2026-01-01T00:00:00"),
        (datetime, 1), (Colour, "green"), (UUID, "x"), (list[int], {}), (dict[str, int], []), (Inner, {"name": "a"}),
        (Inner, {"name": "a", "at": "2026-01-01T00:00:00+00:00", "more": 1}), (Inner, None),
    ],
)  # fmt: skip
def test_other_json_is_refused(kind: Any, found: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec(kind).decode(found)


@pytest.mark.parametrize("kind", [bytes, object, complex, int | str, tuple[int, str], Any])
def test_a_type_without_an_exact_form_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="JSON"):
        codec(kind)


def test_a_field_that_is_absent_takes_its_default() -> None:
    @dataclass(frozen=True)
    class Grown:
        old: int
        new: int = 7

    assert codec(Grown).decode({"old": 1}) == Grown(1, 7)
    assert codec(datetime).decode("2026-01-01T00:00:00+00:00") == datetime(2026, 1, 1, tzinfo=UTC)
