"""`millrace run --log json`: one JSON object a line on standard error. `docs/guide/metrics.md` lists the fields."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millrace.cli.live import Display
from millrace.errors import MillraceError

if TYPE_CHECKING:
    from millrace.engine import Run
    from millrace.engine.standing import Standing

EPOCH_S = 5.0
_EXTRAS = ("flow", "code", "failures", "wait_s")


def line(event: str, message: str, level: str = "info", at: float | None = None, **facts: Any) -> None:
    now = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    said = {"time": now.isoformat(timespec="milliseconds"), "level": level, "event": event, "message": message, **facts}
    print(json.dumps(said), file=sys.stderr, flush=True)


def failure(error: MillraceError) -> int:
    """The error that ends the command."""
    line("failure", str(error), "error", code=error.code)
    return error.exit_code


class JsonHandler(logging.Handler):
    """What the run says by its logger."""

    def emit(self, record: logging.LogRecord) -> None:
        facts = {name: getattr(record, name) for name in _EXTRAS if hasattr(record, name)}
        event = getattr(record, "event", "warning")
        line(event, record.getMessage(), record.levelname.lower(), record.created, **facts)


class JsonDisplay(Display):
    """Records as ever; the flows' epochs summed up, one line a flow now and then."""

    every_s = EPOCH_S

    def __init__(self, run: Run, show: Iterable[str]) -> None:
        super().__init__(run, show)
        self._before = dict(self._flows)

    def say(self, text: str) -> None:
        line("notice", text)

    def _on_terminal(self) -> bool:
        return False

    def _say_flows(self) -> None:
        for flow, standing in self._flows.items():
            before = self._before[flow]
            if standing.last is not None and standing.epochs > before.epochs:
                line("epoch", f"{flow} did {standing.epochs - before.epochs} epochs", **_sums(before, standing))
        self._before = dict(self._flows)


def _sums(before: Standing, after: Standing) -> dict[str, Any]:
    last = after.last
    assert last is not None
    return {
        "flow": after.flow,
        "epoch": last.epoch,
        "epochs": after.epochs - before.epochs,
        "rows_in": after.rows_in - before.rows_in,
        "rows_out": None if after.rows_out is None else after.rows_out - (before.rows_out or 0),
        "dead": after.dead - before.dead,
        "late": after.late - before.late,
        "epoch_ms": last.epoch_ms,
        "lag_records": last.lag_records,
        "lag_s": last.lag_s,
        "watermark": last.watermark.astimezone(UTC).isoformat() if last.watermark else None,
    }
