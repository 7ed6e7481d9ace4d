"""The text of an interval, as PostgreSQL reads it: '1 day 12:00', '-1.5 hours', '2 months 3 days ago'.

Other spellings of PostgreSQL's, as P1DT2H and 1-2, are refused: no part of a text is ever left out.
"""

from __future__ import annotations

import re
from decimal import Decimal

_SECOND, _DAY = 10**6, 86_400 * 10**6
# What each word stands for, and which part of an interval it is: PostgreSQL takes each part once.
_MONTHS = {"month": 1, "year": 12}
_MICROS = {
    "microsecond": 1, "millisecond": 1_000, "second": _SECOND, "minute": 60 * _SECOND, "hour": 3_600 * _SECOND,
    "day": _DAY, "week": 7 * _DAY,
}  # fmt: skip
_WORDS = {
    "microsecond": "us usec usecs usecond useconds microsecond microseconds",
    "millisecond": "ms msec msecs msecond mseconds millisecond milliseconds",
    "second": "s sec secs second seconds",
    "minute": "m min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days",
    "week": "w week weeks",
    "month": "mon mons month months",
    "year": "y yr yrs year years",
}
_PARTS = {word: part for part, words in _WORDS.items() for word in words.split()}
_OF_CLOCK = ("microsecond", "millisecond", "second", "minute", "hour")
_COUNTED = re.compile(r"([+-]?)\s*(\d+(?:\.\d{1,6})?)\s*([a-z]+)(?=\s|$)\s*")
_CLOCK = re.compile(r"([+-]?)\s*(\d{1,9}):([0-5]\d)(?::([0-5]\d(?:\.\d{1,6})?))?(?=\s|$)\s*")
_WHOLE = re.compile(r"[+-]?\d+")
_ALONE = re.compile(r"[+-]?\d+(?:\.\d{1,6})?")


def interval(written: str, unit: str = "") -> tuple[int, int, int]:
    """Months, days and microseconds, which PostgreSQL keeps apart. `unit` is the word behind the text."""
    left = written.strip(" ").lower()
    if unit and not _WHOLE.fullmatch(left):  # what is smaller than the unit is cut off
        raise ValueError(written)
    if _ALONE.fullmatch(left):
        left = f"{left} {unit.lower() or 'second'}"
    left, turned = (left.removesuffix(" ago"), -1) if left.endswith(" ago") else (left, 1)
    months = days = micros = 0
    seen: set[str] = set()
    while left or not seen:
        parts, (more_months, more_days, more_micros), left = _first(left)
        if seen & parts:
            raise ValueError(written)
        seen |= parts
        months, days, micros = months + more_months, days + more_days, micros + more_micros
    if max(abs(months), abs(days)) >= 2**31 or abs(micros) >= 2**63:
        raise ValueError(written)
    return turned * months, turned * days, turned * micros


def _first(left: str) -> tuple[set[str], tuple[int, int, int], str]:
    """What a text begins with: which parts they are, what they come to, and the rest of the text."""
    if found := _CLOCK.match(left):
        sign, hours, minutes, seconds = found.groups()
        amount = (int(hours) * 3_600 + int(minutes) * 60 + Decimal(seconds or 0)) * _SECOND
        return set(_OF_CLOCK), (0, 0, _signed(sign, amount)), left[found.end() :]
    found = _COUNTED.match(left)
    part = _PARTS.get(found[3]) if found else None
    if found is None or part is None:
        raise ValueError(left)
    count = Decimal(found[2])
    parts = set(_OF_CLOCK[:3]) if part == "second" and "." in found[2] else {part}
    if part in _MONTHS:
        return {part}, (_signed(found[1], count * _MONTHS[part]), 0, 0), left[found.end() :]
    amount = count * _MICROS[part]
    days, rest = divmod(amount, _DAY) if part in ("day", "week") else (Decimal(0), amount)
    return parts, (0, _signed(found[1], days), _signed(found[1], rest)), left[found.end() :]


def _signed(sign: str, amount: Decimal) -> int:
    if amount != int(amount):
        raise ValueError(str(amount))
    return -int(amount) if sign == "-" else int(amount)
