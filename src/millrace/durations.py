"""Durations as people write them: "10 seconds", "7 days", "1 h 30 min", "500ms"."""

from __future__ import annotations

import re
from datetime import timedelta

from millrace.errors import DurationInvalid

_UNITS = {
    "ms": ("millisecond", "milliseconds", "ms"),
    "s": ("second", "seconds", "sec", "secs", "s"),
    "min": ("minute", "minutes", "min", "mins", "m"),
    "h": ("hour", "hours", "hr", "hrs", "h"),
    "d": ("day", "days", "d"),
    "w": ("week", "weeks", "w"),
}
_LENGTH_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BY_WORD = {word: _LENGTH_MS[unit] for unit, words in _UNITS.items() for word in words}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")
_SPOKEN = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1))
LIMIT_MS = 100 * 365 * 86_400_000  # a century: longer is a slip of the finger, and overflows what servers accept


def milliseconds(duration: str | timedelta) -> int:
    """How long that is. Months and years are refused: they have no fixed length."""
    if isinstance(duration, timedelta):
        found = duration // timedelta(milliseconds=1)
        if found < 0:
            raise DurationInvalid(text=str(duration))
        return found
    text = duration.strip().lower()
    total, end = 0.0, 0
    for part in _PART.finditer(text):
        if text[end : part.start()].strip(" ,") or part[2] not in _BY_WORD:
            raise DurationInvalid(text=duration)
        total += float(part[1]) * _BY_WORD[part[2]]
        end = part.end()
    if end == 0 or text[end:].strip() or total > LIMIT_MS:
        raise DurationInvalid(text=duration)
    return round(total)


def parse(duration: str | timedelta) -> timedelta:
    return timedelta(milliseconds=milliseconds(duration))


def spoken(length_ms: int) -> str:
    """The largest unit that says it exactly: 604800000 is "7 days", 90000 is "90 seconds"."""
    for word, unit_ms in _SPOKEN:
        if length_ms % unit_ms == 0 and length_ms >= unit_ms:
            count = length_ms // unit_ms
            return f"{count} {word}" if count == 1 else f"{count} {word}s"
    return "0 seconds"
