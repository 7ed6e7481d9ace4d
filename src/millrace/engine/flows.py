"""The flows of a project as `millrace status` and the console show them: from their locks and what their runs write
beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millrace.config import Settings
from millrace.engine import generations, lock, standing
from millrace.engine.definition import FILLING

COLUMNS = (
    "app", "flow", "state", "epoch", "at", "rows_per_s", "lag_records", "lag_s", "watermark_gap_s", "dead", "late",
    "restarts", "partial_matches", "owed",
)  # fmt: skip


FACTS = (*COLUMNS, "rows_out_per_s", "error", "trouble", "guarantee", "sinks", "pid", "host", "since")


def flows(settings: Settings) -> list[dict[str, Any]]:
    """Every flow that was ever run under this prefix. `state` is its run's word while it runs; afterwards "failed" if
    it had failed for good, "died" if its run did not say farewell, and "stopped"; "unknown" where it cannot be
    read."""
    if not settings.checkpoints.is_dir():
        return []
    found = []
    for folder in sorted(path for path in settings.checkpoints.glob("*/*") if path.is_dir()):
        app = settings.unnamed(folder.parent.name)
        if app is not None and not folder.name.startswith("_"):
            found.append(flow_facts(app, folder, standing.read(folder)))
    return found


def filling(settings: Settings) -> list[dict[str, Any]]:
    """The views that were ever begun under this prefix, with how many records their flow has read since it was started
    and how many are left. `since` is when it began: what was in the store before is of a view that was there before."""
    found = []
    for folder in sorted(path for path in settings.checkpoints.glob("*/*") if path.is_dir()):
        app, told = settings.unnamed(folder.parent.name), standing.read(folder)
        file = generations.current(folder) / FILLING
        if app is not None and not folder.name.startswith("_") and file.exists():
            last = told.get("last")
            left = last.get("lag_records") if isinstance(last, dict) else None
            since = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            read = told.get("rows_in") or 0
            found.append({"app": app, "view": folder.name, "read": read, "left": left, "since": since})
    return found


def flow_facts(app: str, folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    """One flow, of what its run has written (`standing.read`)."""
    try:
        return _flow(app, folder, told)
    except (AttributeError, KeyError, TypeError, ValueError):  # as another version wrote it
        return {**dict.fromkeys(FACTS), "app": app, "flow": folder.name, "state": "unknown"}


def _flow(app: str, folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    last = told.get("last") or {}
    # A flow that waits to be started again has let its lock go; its run is still there.
    run = lock.Holder(**told["run"]) if told.get("state") == "restarting" and "run" in told else None
    holder = lock.holder(generations.current(folder), folder.name) or (None if run is None or run.gone() else run)
    return {
        "app": app,
        "flow": folder.name,
        "state": _state(told.get("state"), holder is not None),
        "epoch": last.get("epoch"),
        "at": _time(last.get("at")),
        "rows_per_s": last.get("rows_per_s"),
        "rows_out_per_s": last.get("rows_out_per_s"),
        "lag_records": last.get("lag_records"),
        "lag_s": last.get("lag_s"),
        "watermark_gap_s": _gap_s(last.get("watermark"), holder is not None, last.get("watermark_gap_s")),
        "dead": told.get("dead"),
        "late": told.get("late"),
        "restarts": told.get("restarts"),
        "partial_matches": last.get("partial_matches"),
        "owed": sum(sink["owed_epochs"] for sink in (told.get("sinks") or {}).values()) or None,
        "error": told.get("error"),
        "trouble": told.get("trouble"),
        "guarantee": told.get("guarantee"),
        "sinks": told.get("sinks"),
        "pid": holder.pid if holder else None,
        "host": holder.host if holder else None,
        "since": holder.since if holder else None,
    }


def _state(said: str | None, held: bool) -> str:
    if held:
        return said if said in ("restarting", "failed") else "running"
    if said in ("failed", "restarting"):
        return "failed" if said == "failed" else "stopped"
    return "died" if said == "running" else "stopped"


def _gap_s(watermark: str | None, runs: bool, then_s: float | None) -> float | None:
    """To now while it runs: a watermark that does not move falls behind."""
    reached = _time(watermark)
    return (datetime.now(UTC) - reached).total_seconds() if runs and reached else then_s


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
