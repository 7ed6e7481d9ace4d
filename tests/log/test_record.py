"""Places in a topic as people say them, and values as bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import PositionInvalid, ValueUnwritable
from millrace.log import Record, position
from millrace.log.record import header_pairs, json_bytes, moment, timestamp_ms, value_bytes

NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", "earliest"),
        (" latest ", "latest"),
        ("0", 0),
        ("123456789012", 123456789012),
        ("2026-11-15T09:30:00Z", NOW),
        ("2026-11-15T09:30:00", NOW),
        ("2026-11-15 10:30+01:00", NOW),
        ("2026-11-15", NOW.replace(hour=0, minute=0)),
        ("10 minutes ago", NOW - timedelta(minutes=10)),
    ],
)
def test_a_place_is_read(text: str, meant: object) -> None:
    assert position(text, NOW) == meant


@pytest.mark.parametrize("text", ["", "-1", "first", "12.5", "yesterday", "²"])
def test_a_place_is_refused(text: str) -> None:
    with pytest.raises(PositionInvalid):
        position(text, NOW)


@given(st.integers(0, 4_000_000_000_000))
def test_times_are_exact_to_the_millisecond(timestamp: int) -> None:
    assert timestamp_ms(moment(timestamp)) == timestamp
    assert timestamp_ms(moment(timestamp).astimezone(timezone(timedelta(hours=5)))) == timestamp
    assert timestamp_ms(moment(timestamp).replace(tzinfo=None)) == timestamp


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_a_dict_is_written_as_json_on_one_line(value: dict[str, Any]) -> None:
    content = value_bytes("t", value)
    assert content is not None
    assert b"\n" not in content
    assert json.loads(content) == value


def test_bytes_and_texts_stay_what_they_are() -> None:
    assert value_bytes("t", b"\xff\x00") == b"\xff\x00"
    assert value_bytes("t", "ü") == "ü".encode()
    assert value_bytes("t", None) is None


def test_what_json_lacks_becomes_text_or_is_refused() -> None:
    assert json_bytes({"at": NOW, "amount": Decimal("1.10")}) == b'{"at":"2026-11-15T09:30:00+00:00","amount":"1.10"}'
    for value in ({"x": float("nan")}, {"x": object()}, {"x": b"bytes"}, {"x": "\ud800"}, "\ud800"):
        with pytest.raises(ValueUnwritable, match="MR-VALUE-UNWRITABLE"):
            value_bytes("t", value)


def test_headers_keep_order_and_repeats() -> None:
    assert header_pairs([("a", "ü"), ("a", None), ("b", b"\xff")]) == (("a", "ü".encode()), ("a", None), ("b", b"\xff"))
    assert header_pairs({"a": "1"}) == (("a", b"1"),)
    assert header_pairs(None) == ()


def test_a_record_cannot_be_changed() -> None:
    record = Record("t", 0, 1, NOW, b"k", b'{"a":1}', ())
    with pytest.raises(AttributeError):
        record.value = b"other"  # type: ignore[misc]
    assert record.json() == {"a": 1}
    assert record.text == '{"a":1}'
