"""Delays and the costs of lags, against the definitions written out plainly."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.errors import TimeAbsent
from millrace.log import Record
from millrace.log.delays import LAGS_MS, Delays, delays_of, newest
from millrace.log.record import moment

HOUR_MS = 3_600_000
BASE_MS = 1_795_000_000_000
UNREADABLE = [
    None,
    b"",
    b"\xff",
    b"{",
    b"[1]",
    b'"2026-01-01"',
    b"{}",
    b'{"at": null}',
    b'{"at": true}',
    b'{"at": NaN}',
]
UNREADABLE += [b'{"at": "soon"}', b'{"at": "2026-02-30T00:00:00Z"}', b'{"at": "20260101"}', b'{"at": 1767225600000}']
UNREADABLE += [
    b'{"at": 1767225600.25}',
    b'{"at": 1e400}',
    b'{"at": ["2026-01-01"]}',
    b'{"at": {}}',
    b'{"other": "2026-01-01"}',
    b"[" * 100_000,
]


class Event(NamedTuple):
    partition: int
    arrival_ms: int
    time_us: int | None


def iso(time_us: int, zone: timezone | None) -> str:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return time.astimezone(zone).isoformat() if zone else time.replace(tzinfo=None).isoformat(" ")


def record(event: Event, value: bytes | None) -> Record:
    return Record("t", event.partition, 0, moment(event.arrival_ms), None, value, ())


def measured(records: list[Record]) -> Delays:
    return delays_of("t", "at", records, ahead_ms=HOUR_MS)


# Times around the lags and the bound for those ahead, a microsecond to either side.
steps_us = st.builds(
    lambda ms, sign, near_us: sign * ms * 1_000 + near_us,
    st.sampled_from([*LAGS_MS, 1, 7_500, 400 * HOUR_MS]),
    st.sampled_from([1, -1]),
    st.sampled_from([0, 0, 0, 1, -1, 999]),
)
arrivals_ms = st.integers(BASE_MS, BASE_MS + 2 * HOUR_MS) | st.just(BASE_MS)


@st.composite
def written(draw: st.DrawFn) -> tuple[Event, Record]:
    arrival_ms = draw(arrivals_ms)
    place = draw(st.integers(0, 2))
    form = draw(st.sampled_from(["zone", "utc", "bare", "whole", "unreadable"]))
    if form == "unreadable":
        event = Event(place, arrival_ms, None)
        return event, record(event, draw(st.sampled_from(UNREADABLE)))
    time_us = BASE_MS * 1_000 + draw(steps_us)
    if form == "whole":
        time_us -= time_us % 1_000_000
    at: Any = {
        "zone": iso(time_us, timezone(timedelta(hours=-5, minutes=-30))),
        "utc": iso(time_us, UTC).replace("+00:00", "Z"),
        "bare": iso(time_us, None),
        "whole": time_us // 1_000_000,
    }[form]
    event = Event(place, arrival_ms, time_us)
    return event, record(event, json.dumps({"x": 1, "at": at}).encode())


@given(st.lists(written(), min_size=1, max_size=40))
def test_it_is_what_the_definitions_say(rows: list[tuple[Event, Record]]) -> None:
    events, records = [event for event, _ in rows], [record for _, record in rows]
    timed = [(event, event.time_us) for event in events if event.time_us is not None]
    if not timed:
        with pytest.raises(TimeAbsent):
            measured(records)
        return
    found = measured(records)
    kept = [(event, time) for event, time in timed if time - event.arrival_ms * 1_000 <= HOUR_MS * 1_000]
    delays = sorted(event.arrival_ms - time // 1_000 for event, time in kept)
    assert (found.records, found.untimed) == (len(rows), len(rows) - len(timed))
    assert (found.events, found.set_aside) == (len(kept), len(timed) - len(kept))
    assert found.ahead == sum(time // 1_000 > event.arrival_ms for event, time in timed)
    assert found.first_arrival == moment(min(event.arrival_ms for event in events))
    assert found.last_arrival == moment(max(event.arrival_ms for event in events))

    late = dict.fromkeys(LAGS_MS, 0)
    for place, (event, time) in enumerate(kept):
        before = [other_time for other, other_time in kept[:place] if other.partition == event.partition]
        for lag_ms in LAGS_MS:
            late[lag_ms] += bool(before) and max(before) - time > lag_ms * 1_000
    assert {cost.lag_ms: cost.late for cost in found.costs} == (told(late) if kept else {})
    assert all(cost.share == cost.late / len(kept) for cost in found.costs)
    fitting = [lag_ms for lag_ms in LAGS_MS if kept and late[lag_ms] / len(kept) <= 0.001]
    assert found.suggested_ms == (fitting[0] if fitting else None)

    assert set(found.delays_ms) == ({"p50", "p90", "p99", "p99.9", "max"} if kept else set())
    for name, length_ms in found.delays_ms.items():
        share = 1.0 if name == "max" else float(name[1:]) / 100
        assert length_ms == next(each for each in delays if sum(x <= each for x in delays) >= share * len(delays))


def told(late: dict[int, int]) -> dict[int, int]:
    """Up to the first lag that loses nothing."""
    shown = {}
    for lag_ms, count in late.items():
        shown[lag_ms] = count
        if count == 0:
            break
    return shown


def test_one_in_a_thousand_is_what_the_suggestion_loses() -> None:
    def suggested(late: int) -> int | None:
        behind_s = [0] * (2_000 - late) + [7] * late
        rows = [Event(0, BASE_MS, BASE_MS * 1_000 - behind * 1_000_000) for behind in behind_s]
        return measured(
            [record(row, json.dumps({"at": iso(row.time_us or 0, UTC)}).encode()) for row in rows]
        ).suggested_ms

    assert [suggested(late) for late in (0, 1, 2, 3)] == [0, 0, 0, 10_000]


def test_an_event_far_ahead_makes_no_other_late() -> None:
    row = Event(0, BASE_MS, None)
    ahead = [{"at": BASE_MS // 1_000 + 3_601}, {"at": BASE_MS // 1_000 + 3_600}, {"at": BASE_MS // 1_000}]
    found = measured([record(row, json.dumps(fields).encode()) for fields in ahead])
    assert (found.ahead, found.set_aside, found.events) == (2, 1, 2)
    assert [(cost.lag_ms, cost.late) for cost in found.costs][-2:] == [(10 * 60_000, 1), (HOUR_MS, 0)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "(it has no records): name a field"),
        ([b"x", None], "(2 read, none of which is a JSON object with fields): name"),
        ([b'{"a": 1}', b"x"], "(2 read, none of which has that field): name"),
        ([b'{"at": 1767225600000}'], "(1 read; one has 1767225600000 there): name"),
        ([b'{"n": 5, "att": "2026-01-01"}'], "has that field); did you mean 'att'?: name"),
        ([b'{"n": 5, "happened": 1767225600}'], "has that field); 'happened' looks like a time: name"),
        ([b'{"at": "%s", "n": 1}' % (b"x" * 99)], f'one has "{"x" * 39}… there): name'),
    ],
)
def test_without_any_time_it_says_what_there_is_instead(values: list[bytes | None], said: str) -> None:
    with pytest.raises(TimeAbsent) as raised:
        measured([record(Event(0, BASE_MS, None), value) for value in values])
    assert str(raised.value).startswith("MR-TIME-ABSENT no record of topic 't' has a time in 'at' (")
    assert said in str(raised.value)


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.integers(1, 300),
)
def test_the_newest_are_shared_between_the_partitions(sizes: dict[int, tuple[int, int]], limit: int) -> None:
    held = {number: (first, first + size) for number, (first, size) in sizes.items()}
    places = newest(held, limit)
    taken = {number: places.get(number, (0, 0))[1] for number in held}
    assert sum(taken.values()) == min(limit, sum(size for _, size in sizes.values()))
    for number, (begin, count) in places.items():
        assert held[number][0] <= begin == held[number][1] - count
    most = max(taken.values(), default=0)
    for number, (_, size) in sizes.items():
        assert taken[number] == size or taken[number] >= most - 1
