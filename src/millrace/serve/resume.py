"""`after`, by which a client that was away goes on: offsets of a topic, and what it wanted of it.

It holds no secret and gives no right. Whoever makes one up hears of the same rows, from another place on.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from millrace.errors import RequestInvalid

_LONGEST = 4_096
_MOST_PARTITIONS = 1_000


def after(topic: str, ends: Mapping[int, int], wanted: Any) -> str:
    raw = json.dumps([topic, {str(number): end for number, end in ends.items()}, _mark(wanted)], separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def place(text: str, wanted: Any) -> tuple[str, dict[int, int]]:
    """The topic's identity and the offsets."""
    try:
        if len(text) > _LONGEST:
            raise ValueError
        topic, ends, mark = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        found = {int(number): end for number, end in ends.items()}
        fits = all(type(end) is int and end >= 0 for end in found.values()) and len(found) <= _MOST_PARTITIONS
        if not (isinstance(topic, str) and fits):
            raise ValueError
    except (ValueError, TypeError, AttributeError, RecursionError):
        reason, remedy = "it is none that this server gave", "leave it out, and begin anew"
        raise RequestInvalid(parameter="after", given=text[:100], reason=reason, remedy=remedy) from None
    if mark != _mark(wanted):
        reason, remedy = "it was given for another filter", "send the filter it was given for, or leave it out"
        raise RequestInvalid(parameter="after", given=text[:100], reason=reason, remedy=remedy)
    return topic, found


def _mark(wanted: Any) -> str:
    return hashlib.sha256(repr(wanted).encode()).hexdigest()[:12]
