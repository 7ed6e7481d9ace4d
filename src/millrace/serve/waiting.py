"""Answers that contain a commit of one's own: until views have what was committed up to an LSN."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection

from starlette.datastructures import QueryParams

from millrace.errors import RequestInvalid
from millrace.serve.reading import Reading

WAIT_S, LONGEST_WAIT_S = 10.0, 30.0
PARAMETERS = ("wait_for", "wait_s")
LSN = "[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}"


async def wait(reading: Reading, views: Collection[str], wanted: str, limit_s: float) -> None:
    """For all of them at once. One that has no LSN is refused: nobody could promise that it has what was committed."""
    if not re.fullmatch(LSN, wanted):
        reason, remedy = "it is no LSN", "send what `SELECT pg_current_wal_lsn()` says after your commit: 0/16E8F58"
        raise RequestInvalid(parameter="wait_for", given=wanted[:100], reason=reason, remedy=remedy)
    found = await reading.positions()
    for view in views:
        if view in found and found[view][0].lsn is None:
            reason, remedy = f"the view {view} is not over one database, and has no LSN", "leave it out"
            raise RequestInvalid(parameter="wait_for", given=wanted, reason=reason, remedy=remedy)
    waits = (reading.wait(view, wanted, limit_s) for view in views)
    for error in await asyncio.gather(*waits, return_exceptions=True):
        if error is not None:
            raise error


async def wait_as_asked(reading: Reading, view: str, parameters: QueryParams) -> None:
    limit_s = _seconds(parameters.get("wait_s"))
    if (wanted := parameters.get("wait_for")) is not None:
        await wait(reading, (view,), wanted, limit_s)


def _seconds(text: str | None) -> float:
    if text is None:
        return WAIT_S
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text):
        raise _no_time(text)
    return seconds(float(text))


def seconds(given: object) -> float:
    """How long somebody wants to wait, if he may."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= LONGEST_WAIT_S:
        raise _no_time(given)
    return float(given)


def _no_time(given: object) -> RequestInvalid:
    reason, remedy = "it is no such time", f"send seconds, {LONGEST_WAIT_S:.0f} at most"
    return RequestInvalid(parameter="wait_s", given=str(given)[:100], reason=reason, remedy=remedy)
