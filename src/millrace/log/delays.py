"""How late the events of a topic arrive, and what each lag would have cost. Looks at records; reads and writes nothing.

- The delay of an event is its record's timestamp less its own time. Kafka keeps whole milliseconds, and so do we.
- Each partition has a clock of its own here: the greatest time it has shown, in the order of its offsets. An event that
  is further behind that clock than a lag would have come too late for that lag.
- An event further ahead of its arrival than `ahead_ms` has a wrong clock: it is counted, moves no clock and is in no
  share, as flows set it aside.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from millrace.errors import TimeAbsent, nearest
from millrace.log.record import Record, moment, timestamp_ms

_S, _MIN, _H = 1_000, 60_000, 3_600_000
LAGS_MS = (
    0, _S, 5 * _S, 10 * _S, 30 * _S, 45 * _S, _MIN, 2 * _MIN, 5 * _MIN, 10 * _MIN, _H, 6 * _H, 24 * _H
)  # fmt: skip
SUGGESTED_PERMILLE = 1  # the suggested lag loses at most one event in a thousand
_LAGS_US = [lag_ms * 1_000 for lag_ms in LAGS_MS]
_PERMILLES = {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1_000}
_SAMPLES = 100  # objects without a time that are remembered, to say which field might be meant
_SHOWN = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)")
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # the years 1 to 9999, which are those of flows
_LIKELY_S = (946_684_800, 4_102_444_800)  # a number of seconds in this century may well be a time


@dataclass(frozen=True)
class Cost:
    """With this lag, `late` events would have come too late; that is `share` of those that count."""

    lag_ms: int
    late: int
    share: float


@dataclass(frozen=True)
class Delays:
    """What the records showed. `untimed` have no readable time; of the others, `ahead` are ahead of their arrival.

    `set_aside` of those are too far ahead; `events` are all the rest, and only these are in `delays_ms` and `costs`.
    The costs end with the first lag that loses nothing. `suggested_ms` is None if even the longest lag loses too much.
    """

    records: int
    untimed: int
    ahead: int
    set_aside: int
    events: int
    first_arrival: datetime
    last_arrival: datetime
    delays_ms: Mapping[str, int]
    costs: tuple[Cost, ...]
    suggested_ms: int | None


def delays_of(topic: str, column: str, records: Iterable[Record], *, ahead_ms: int) -> Delays:
    """The delays of records by the time in `column`. The records of a partition have to come in its order."""
    tally = _Tally(column, ahead_ms * 1_000)
    for record in records:
        tally.add(record)
    if tally.untimed == tally.records:
        raise _absent(topic, column, tally)
    assert tally.first_ms is not None, "a record with a time has an arrival"
    assert tally.last_ms is not None
    costs = _costs(tally.behind)
    events = len(tally.delays_ms)
    enough = (cost.lag_ms for cost in costs if cost.late * 1_000 <= events * SUGGESTED_PERMILLE)
    return Delays(
        records=tally.records,
        untimed=tally.untimed,
        ahead=tally.ahead,
        set_aside=tally.set_aside,
        events=events,
        first_arrival=moment(tally.first_ms),
        last_arrival=moment(tally.last_ms),
        delays_ms=_quantiles(tally.delays_ms),
        costs=costs,
        suggested_ms=next(enough, None),
    )


def event_time_us(record: Record, column: str) -> int | None:
    """The time of one event in µs since 1970, as `delays_of` reads it."""
    return _time_us(_fields(record.value).get(column))


def newest(held: Mapping[int, tuple[int, int]], limit: int) -> dict[int, tuple[int, int]]:
    """Where to begin in each partition and how many offsets to read, so that about the newest `limit` records are read.

    `held` gives first and end offsets. Each partition gets an equal part; what a short one leaves goes to the others.
    """
    places = {}
    left = limit
    by_size = sorted(held.items(), key=lambda item: item[1][1] - item[1][0])
    for waiting, (number, (first, last)) in zip(range(len(held), 0, -1), by_size, strict=True):
        taken = min(last - first, left // waiting)
        left -= taken
        if taken:
            places[number] = (last - taken, taken)
    return dict(sorted(places.items()))


class _Tally:
    """What is known after each record. `behind[n]` counts the events for which the first n lags are too short.

    `samples` and `unread` are for the error if no record has a time: objects, and what the column held instead of one.
    """

    def __init__(self, column: str, ahead_us: int) -> None:
        self.records = self.untimed = self.ahead = self.set_aside = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.delays_ms = array("q")
        self.behind = [0] * (len(LAGS_MS) + 1)
        self.samples: list[dict[str, Any]] = []
        self.unread: list[Any] = []
        self._column, self._ahead_us = column, ahead_us
        self._greatest_us: dict[int, int] = {}

    def add(self, record: Record) -> None:
        self.records += 1
        fields = _fields(record.value)
        time_us = _time_us(fields.get(self._column))
        arrival_ms = None if record.time is None else timestamp_ms(record.time)
        if arrival_ms is not None:
            self.first_ms = arrival_ms if self.first_ms is None else min(self.first_ms, arrival_ms)
            self.last_ms = arrival_ms if self.last_ms is None else max(self.last_ms, arrival_ms)
        if time_us is None or arrival_ms is None:
            self._note(fields)
            return
        delay_ms = arrival_ms - time_us // 1_000
        self.ahead += delay_ms < 0
        if time_us - arrival_ms * 1_000 > self._ahead_us:
            self.set_aside += 1
            return
        self.delays_ms.append(delay_ms)
        greatest_us = max(time_us, self._greatest_us.get(record.partition, time_us))
        self._greatest_us[record.partition] = greatest_us
        self.behind[bisect_left(_LAGS_US, greatest_us - time_us)] += 1

    def _note(self, fields: dict[str, Any]) -> None:
        self.untimed += 1
        if fields and len(self.samples) < _SAMPLES:
            self.samples.append(fields)
        if self._column in fields and not self.unread:
            self.unread.append(fields[self._column])


def _costs(behind: list[int]) -> tuple[Cost, ...]:
    events = sum(behind)
    costs: list[Cost] = []
    if not events:
        return ()
    for lag_ms, kept in zip(LAGS_MS, accumulate(behind), strict=False):
        late = events - kept
        costs.append(Cost(lag_ms, late, late / events))
        if not late:
            break
    return tuple(costs)


def _quantiles(delays_ms: array[int]) -> dict[str, int]:
    """The least delay that so many of the events do not exceed."""
    ordered = sorted(delays_ms)
    count = len(ordered)
    return {name: ordered[-(-count * permille // 1_000) - 1] for name, permille in _PERMILLES.items() if count}


def _fields(value: bytes | None) -> dict[str, Any]:
    """The fields of a JSON object; none of anything else."""
    try:
        found = json.loads((value or b"").decode())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _time_us(value: Any) -> int | None:
    """An ISO time, without a zone in UTC, or whole seconds since 1970, as flows read them; None if it is neither."""
    if isinstance(value, str) and _ISO.match(value):
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return None
        return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if isinstance(value, int) and not isinstance(value, bool) and _FIRST_S <= value <= _LAST_S:
        return value * 1_000_000
    return None


def _likely(value: Any) -> bool:
    first_s, last_s = _LIKELY_S
    return _time_us(value) is not None and (isinstance(value, str) or first_s <= value < last_s)


def _absent(topic: str, column: str, tally: _Tally) -> TimeAbsent:
    likely = {name: None for fields in tally.samples for name, value in fields.items() if _likely(value)}
    if not tally.records:
        seen = "it has no records"
    elif not tally.samples:
        seen = f"{tally.records:,} read, none of which is a JSON object with fields"
    elif not tally.unread:
        seen = f"{tally.records:,} read, none of which has that field"
    else:
        example = json.dumps(tally.unread[0], ensure_ascii=False)
        seen = f"{tally.records:,} read; one has {example[:_SHOWN]}{'…' if len(example) > _SHOWN else ''} there"
    hint = nearest(column, likely) or "".join(f"; {name!r} looks like a time" for name in list(likely)[:1])
    return TimeAbsent(topic=topic, column=column, seen=seen, hint=hint)
