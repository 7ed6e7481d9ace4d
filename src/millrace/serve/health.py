"""Whether the flows are well, with the reason for each that is not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from millrace.engine.standing import Standing

# Longer than any epoch that is meant: a flow with nothing to do gives a sign every ten seconds.
QUIET_S = 300.0


def health(standings: Iterable[Standing], now: datetime) -> dict[str, str]:
    """For each flow, what is wrong with it; "" when nothing is: it makes progress, has nothing to do, or has ended."""
    return {standing.flow: _wrong(standing, now) for standing in standings}


def _wrong(standing: Standing, now: datetime) -> str:
    quiet_s = (now - standing.heard).total_seconds()
    if standing.state == "failed":
        return standing.error or "it failed"
    if standing.state == "restarting":
        return f"it is started again after a failure: {standing.error}"
    if standing.state == "running" and quiet_s > QUIET_S:
        return f"no epoch has ended for {quiet_s:.0f} s, although there is something to do"
    return standing.trouble or ""
