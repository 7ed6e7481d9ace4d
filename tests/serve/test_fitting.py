"""Events fit their topic's schema, or are told what is wrong with them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millrace as mr
from millrace.errors import BodyUnreadable, EventUnfit
from millrace.serve.fitting import MOST_EVENTS, Fitting, events_of

SCHEMA = """
    id long not null, small tinyint, name string, short varchar(3), price decimal(6,2), x double, ok boolean, day date,
    at timestamp, tags array<string>, sizes map<string, int>, place struct<lat: double, name: string>, raw binary,
    odd interval day to second
"""


def fitting(**options: Any) -> Fitting:
    return Fitting(mr.App("a").topic("things", SCHEMA, **options))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ('{"id": 1}', ""),
        ('{"id": 1, "name": null}', ""),
        ('{"id": 9223372036854775807}', ""),
        ('{"id": 9223372036854775808}', "'id' is not a long"),
        ('{"id": true}', "'id' is not a long"),
        ('{"id": 1.0}', "'id' is not a long"),
        ('{"id": null}', "'id' is missing"),
        ('{"name": "x"}', "'id' is missing"),
        ('{"id": 1, "small": 128}', "'small' is not a tinyint"),
        ('{"id": 1, "nmae": "x"}', "did you mean 'name'"),
        ('{"id": 1, "name": 5}', "'name' is not a text"),
        (r'{"id": 1, "name": "\ud800"}', "'name' is not Unicode"),
        ('{"id": 1, "short": "abcd"}', "more than 3 letters"),
        ('{"id": 1, "price": 1234.56}', ""),
        ('{"id": 1, "price": "1234.56"}', ""),
        ('{"id": 1, "price": 1e3}', ""),
        ('{"id": 1, "price": 0.000}', "'price' is not a decimal(6,2)"),
        ('{"id": 1, "price": 1e999999999}', "'price' is not a decimal(6,2)"),
        ('{"id": 1, "price": 12345}', "'price' is not a decimal(6,2)"),
        ('{"id": 1, "price": 1.234}', "'price' is not a decimal(6,2)"),
        ('{"id": 1, "price": "NaN"}', "'price' is not a decimal(6,2)"),
        ('{"id": 1, "x": 1e400}', "'x' is not a number"),
        ('{"id": 1, "x": 1e300}', ""),
        ('{"id": 1, "ok": 1}', "'ok' is not true or false"),
        ('{"id": 1, "day": "2026-02-30"}', "'day' is not a date"),
        ('{"id": 1, "day": "2026-02-28"}', ""),
        ('{"id": 1, "at": "2026-01-01T00:00:00Z"}', ""),
        ('{"id": 1, "at": "2026-01-01 00:00:00.123456+01:00"}', ""),
        ('{"id": 1, "at": "20260101T000000"}', "'at' is not a time"),
        ('{"id": 1, "at": "2026-13-01T00:00:00Z"}', "'at' is not a time"),
        ('{"id": 1, "at": 1700000000}', "'at' is not a time"),
        ('{"id": 1, "tags": ["a", null]}', ""),
        ('{"id": 1, "tags": ["a", 1]}', "'tags' holds a value that is not a text"),
        ('{"id": 1, "sizes": {"a": 1}}', ""),
        ('{"id": 1, "sizes": {"a": "b"}}', "'sizes' holds a value that is not a int"),
        ('{"id": 1, "place": {"lat": 1, "name": "x"}}', ""),
        ('{"id": 1, "place": {"lon": 1}}', "'place' has no field 'lon'"),
        ('{"id": 1, "place": {"lat": "x"}}', "'place' has a field 'lat' that is not a number"),
        ('{"id": 1, "raw": "aGk="}', ""),
        ('{"id": 1, "raw": "a b"}', "'raw' is not a text in base64"),
        ('{"id": 1, "odd": 1}', "cannot be sent here"),
    ],
)
def test_what_fits(event: str, reason: str) -> None:
    (found,) = events_of(event.encode())
    assert found.text == event
    if not reason:
        fitting().check([found])
        return
    with pytest.raises(EventUnfit) as unfit:
        fitting().check([found])
    assert reason in str(unfit.value)


def test_the_time_is_needed_and_possible() -> None:
    timed = fitting(time="at", lateness="1 minute")
    ahead = (datetime.now(UTC) + timedelta(days=2)).isoformat(timespec="seconds")
    for time, reason in ((None, "missing"), ("1969-12-31T23:59:59Z", "1970"), (ahead, "a clock is wrong")):
        event = events_of(json.dumps({"id": 1, "at": time}).encode())
        with pytest.raises(EventUnfit, match=reason):
            timed.check(event)
    timed.check(events_of(json.dumps({"id": 1, "at": datetime.now(UTC).isoformat()}).encode()))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"1", b"null", b"[]", b"[1]", b'[{"a":1}', b'[{"a":1} {"a":2}]', b'{"a":1}{"a":2}', b'{"a":1,"a":2}',
        b'{"a":NaN}', b"\xff", b'{"a":"\xed\xa0\x80"}', b"[" * 100_000, b'{"a":' * 100_000, b'[{"a":1},]',
    ],
)  # fmt: skip
def test_bodies_that_are_no_events(body: bytes) -> None:
    with pytest.raises(BodyUnreadable):
        events_of(body)


def test_too_many_events() -> None:
    assert len(events_of(json.dumps([{"a": 1}] * MOST_EVENTS).encode())) == MOST_EVENTS
    with pytest.raises(BodyUnreadable, match="1001"):
        events_of(json.dumps([{"a": 1}] * (MOST_EVENTS + 1)).encode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), VALUES), min_size=1, max_size=5), st.sampled_from([None, 1]))
def test_events_are_cut_out_as_they_came(rows: list[dict[str, Any]], indent: int | None) -> None:
    body = json.dumps(rows, indent=indent)
    assert [json.loads(event.text) for event in events_of(body.encode())] == json.loads(body)
