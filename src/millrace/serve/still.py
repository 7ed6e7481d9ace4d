"""Views that stand still: they are answered as they were, and what changes in their tables does not reach them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from millrace.errors import DeadLettersOwed

# It runs on, and what it owes is something else than rows.
_BESIDE = (DeadLettersOwed.code,)
_DIED = "its run ended without a word; start it again"


def standing_still(flows: Iterable[Mapping[str, Any]], views: Collection[str]) -> dict[str, str]:
    """Of the flows as their runs wrote them down. A run that was stopped is no fault: somebody wanted that."""
    found = {flow["flow"]: _why(flow) for flow in flows if flow["flow"] in views}
    return {view: why for view, why in found.items() if why}


def _why(flow: Mapping[str, Any]) -> str:
    if flow["state"] == "died":
        return _DIED
    if flow["state"] == "failed":
        return flow["error"] or "its flow failed"
    if flow["state"] == "restarting":
        return f"its flow is started again after a failure: {flow['error']}"
    trouble = flow["trouble"] or ""
    return trouble if flow["state"] == "running" and not trouble.startswith(_BESIDE) else ""
