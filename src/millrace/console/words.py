"""How the console says figures, short enough for a node of the map."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "–"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_THOUSANDS = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))
_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def count(number: float | None) -> str:
    """12, 9,876, 12.3k, 4.5M."""
    if number is None:
        return NOTHING
    for unit, letter in _THOUSANDS:
        if abs(number) >= unit:
            size = 1_000 if letter == "k" else unit
            return f"{number / size:,.1f}{letter}"
    return f"{number:,.0f}"


def rate(per_s: float | None) -> str:
    if per_s is None:
        return NOTHING
    return f"{per_s:.1f}/s" if 0 < per_s < 10 else f"{count(per_s)}/s"


def seconds(length_s: float | None) -> str:
    """0.4 s, 12 s, 3.5 min, 2.0 h, 4.0 d."""
    if length_s is None:
        return NOTHING
    for unit, word in _UNITS:
        if length_s >= 2 * unit:
            return f"{length_s / unit:,.1f} {word}"
    return f"{length_s:.1f} s" if length_s < 10 else f"{length_s:.0f} s"


def size(length_bytes: float | None) -> str:
    if length_bytes is None:
        return NOTHING
    for unit, word in _BYTES:
        if length_bytes >= unit:
            return f"{length_bytes / unit:,.1f} {word}"
    return f"{length_bytes:,.0f} B"


def clock(time: datetime | None) -> str:
    """Times are UTC everywhere, as in topics and on the command line."""
    return NOTHING if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share(part: float) -> str:
    return f"{part:.2%}" if 0 < part < 0.1 else f"{part:.0%}"
