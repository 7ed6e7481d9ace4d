"""Dates and times of the topic as the bytes in which PostgreSQL holds them, in hex: exact for every year that it knows.

The topic has ISO 8601 texts, or numbers (days or microseconds since 1970) where a plain Debezium wrote it.
"""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from typing import Any

_DAY_US = 86_400_000_000
_2000_DAYS = 10_957  # PostgreSQL counts from 2000, Debezium from 1970
_ISO = re.compile(
    r"(?P<year>[+-]?\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:T(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?)?(?P<zone>Z|[+-]\d\d:\d\d)?)?"
)
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(Z|[+-]\d\d(?::\d\d){0,2})?")
_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
# The numbers are what a plain Debezium writes for the infinities of a timestamp.
_INFINITE = {"infinity": 1, "-infinity": -1, 9223372036825200000: 1, -9223372036832400000: -1}


def moment(value: Any) -> str:
    if value in _INFINITE:
        return _end(">q", _INFINITE[value])
    if isinstance(value, int):
        return struct.pack(">q", value - _2000_DAYS * _DAY_US).hex()
    found = _matched(_ISO, value)
    of_day = _microseconds(found["hour"] or "0", found["minute"] or "0", found["second"], found["fraction"])
    zone_us = _zone_s(found["zone"]) * 1_000_000
    return struct.pack(">q", _days(found) * _DAY_US + of_day - zone_us).hex()


def date(value: Any) -> str:
    if value in _INFINITE:
        return _end(">i", _INFINITE[value])
    if isinstance(value, int):
        return struct.pack(">i", value - _2000_DAYS).hex()
    return struct.pack(">i", _days(_matched(_ISO, value))).hex()


def time(value: Any) -> str:
    if isinstance(value, int):
        return struct.pack(">q", value).hex()
    found = _matched(_CLOCK, value)
    if found[5] is not None:
        raise ValueError
    return struct.pack(">q", _microseconds(*found.groups()[:4])).hex()


def zoned_time(value: Any) -> str:
    found = _matched(_CLOCK, value)
    return struct.pack(">qi", _microseconds(*found.groups()[:4]), -_zone_s(found[5])).hex()


def interval(value: Any) -> str:
    if value in ("infinity", "-infinity"):
        sign = _INFINITE[value]
        return _end(">q", sign) + _end(">i", sign) * 2
    found = _matched(_INTERVAL, value)
    years, months, days, hours, minutes = (int(each or 0) for each in found.groups()[:5])
    of_day = (hours * 60 + minutes) * 60_000_000 + int(Decimal(found[6] or 0) * 1_000_000)
    return struct.pack(">qii", of_day, days, years * 12 + months).hex()


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if not found:
        raise ValueError
    return found


def _end(code: str, sign: int) -> str:
    """The largest or the smallest number: infinity."""
    bits = struct.calcsize(code) * 8 - 1
    return struct.pack(code, 2**bits - 1 if sign > 0 else -(2**bits)).hex()


def _microseconds(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    whole = (int(hour) * 60 + int(minute)) * 60 + int(second or 0)
    return whole * 1_000_000 + int((fraction or "0").ljust(6, "0"))


def _zone_s(zone: str | None) -> int:
    """East of Greenwich."""
    if zone is None or zone == "Z":
        return 0
    parts = [int(part) for part in zone[1:].split(":")]
    seconds = sum(part * unit for part, unit in zip(parts, (3_600, 60, 1), strict=False))
    return -seconds if zone[0] == "-" else seconds


def _days(found: re.Match[str]) -> int:
    """Days since 2000 in the Gregorian calendar without end, which is PostgreSQL's; Python's stops at two ends."""
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    era, of_era = divmod(year - (month <= 2), 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468 - _2000_DAYS
