"""What somebody gives the store, looked at before the database sees it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from json import JSONEncoder
from typing import Any

from millrace.errors import StoreMisused

# With the aggregate's name beside it, it has to fit into one entry of an index.
LONGEST_BYTES = 1_000

# PostgreSQL's bigint ends there.
_MOST = 2**63 - 1

# ASCII alone, so that every text of Python is also one of JSON: a lone surrogate, and the zero character.
written = JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode


def text(what: str, value: Any) -> str:
    """An id: of an aggregate, a command, a subject."""
    if not isinstance(value, str) or not value:
        raise _misused(what, value, "it is a text, and not an empty one", "str(…) makes a text of most ids")
    if "\0" in value:
        raise _misused(what, value, "PostgreSQL keeps no zero character in a text", "leave it out")
    try:
        length = len(value.encode())
    except UnicodeEncodeError as error:
        raise _misused(what, value, error.reason, "decode it from bytes by the encoding that it has") from None
    if length > LONGEST_BYTES:
        reason = f"it is {length:,} bytes long, and {LONGEST_BYTES:,} are the most"
        raise _misused(what, value, reason, "take a short id, or a hash of the long one")
    return value


def number(what: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise _misused(what, value, f"it is a whole number from {least} on", "count from there")
    return value


def moment(what: str, value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _misused(what, value, "it is a datetime", "datetime(2026, 1, 1, 15, tzinfo=UTC)")
    if value.utcoffset() is None:
        raise _misused(what, value, "it has no zone", f"{what}.replace(tzinfo=UTC), or the zone that was meant")
    return value


def function(what: str, value: Any, example: str) -> None:
    if not callable(value):
        raise _misused(what, value, "it is a function", example)


def aggregates(*given: Any) -> None:
    """Classes of aggregates, or aggregates."""
    for each in given:
        if not hasattr(each, "__aggregate__"):
            raise _misused("an aggregate", each, "it is none", "class Account(Aggregate): …")


def about(meta: Mapping[str, Any] | None) -> str | None:
    """What goes with each event, as JSON."""
    if meta is None:
        return None
    try:
        return written(dict(meta))
    except (TypeError, ValueError, RecursionError) as error:
        raise _misused("meta", meta, error, "texts, numbers, lists and dicts of them; str(…) of others") from None


def _misused(what: str, value: Any, reason: object, remedy: str) -> StoreMisused:
    shown = repr(value)
    return StoreMisused(what=what, given=shown if len(shown) <= 60 else f"{shown[:50]}…", reason=reason, remedy=remedy)
