"""Flows as a console would have seen them, for tests without a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from millrace.console.histories import Histories, Look
from millrace.engine.flows import FACTS

BEGAN = 1_800_000_000.0


def look(histories: Histories, flow: str, state: str, second: float = 0, **told: Any) -> None:
    """One more look at a flow. `told` is what its run wrote; `last` of it is its last epoch."""
    at = BEGAN + second
    last = told.get("last") or {}
    known = {name: told.get(name) for name in ("dead", "late", "restarts", "error", "trouble", "sinks")}
    facts = {
        **dict.fromkeys(FACTS), **known, "flow": flow, "state": state, "epoch": last.get("epoch"),
        "lag_records": last.get("lag_records"), "lag_s": last.get("lag_s"),
        "watermark_gap_s": last.get("watermark_gap_s"), "at": datetime.fromtimestamp(at - 1, UTC),
    }  # fmt: skip
    run = {"host": "here", "pid": 1, "started": 1.0}
    histories.flows[flow].add(Look(at, facts, {"run": run, **told}))
