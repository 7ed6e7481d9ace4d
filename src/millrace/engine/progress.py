"""`Progress`: what one epoch of a flow did, as metrics, commands and tests read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millrace.engine.sources import DEAD
from millrace.flow.windows import ALLOWED, LATE_METRIC, REFUSED


@dataclass(frozen=True)
class Progress:
    """One epoch. Of `rows_in`, `dead` did not fit, and `late` came when a window of theirs had closed: `allowed` of
    these counted nevertheless, `refused` did not, in at least one window. The rest of the late ones was dropped by
    Spark's own windows and joins; its windows count them when they are put together, so they may be more in truth."""

    flow: str
    epoch: int
    rows_in: int
    rows_out: int | None
    dead: int
    late: int
    allowed: int
    refused: int
    rows_per_s: float
    epoch_ms: int
    watermark: datetime | None


@dataclass(frozen=True)
class Span:
    """The offsets that an epoch read of one topic, per partition; `start` is None for a flow's first epoch."""

    outside: str
    start: Mapping[str, int] | None
    end: Mapping[str, int]
    dead: int


def progress_of(flow: str, report: Mapping[str, Any]) -> Progress:
    """From Spark's report of an epoch, as its JSON says it."""
    written = report["sink"].get("numOutputRows", -1)
    allowed, refused = _late(report, ALLOWED), _late(report, REFUSED)
    dropped = sum(operator.get("numRowsDroppedByWatermark", 0) for operator in report["stateOperators"])
    return Progress(
        flow=flow,
        epoch=report["batchId"],
        rows_in=report["numInputRows"],
        rows_out=written if written >= 0 else None,
        dead=sum(_dead(report, name) for name in report.get("observedMetrics", {})),
        late=allowed + refused + dropped,
        allowed=allowed,
        refused=refused,
        rows_per_s=_number(report.get("processedRowsPerSecond")),
        epoch_ms=report["durationMs"].get("triggerExecution", 0),
        watermark=_time(report.get("eventTime", {}).get("watermark")),
    )


def spans_of(report: Mapping[str, Any], metrics: Mapping[str, str]) -> list[Span]:
    """What was read of each topic; `metrics` gives the name of a topic's observation by its outside name."""
    spans = []
    for source in report["sources"]:
        starts = source.get("startOffset") or {}
        for outside, end in (source.get("endOffset") or {}).items():
            spans.append(Span(outside, starts.get(outside), end, _dead(report, metrics[outside])))
    return spans


def _dead(report: Mapping[str, Any], metric: str) -> int:
    return int(report.get("observedMetrics", {}).get(metric, {}).get(DEAD) or 0)


def _late(report: Mapping[str, Any], word: str) -> int:
    metrics = report.get("observedMetrics", {})
    return sum(int(counts.get(word) or 0) for name, counts in metrics.items() if name.startswith(LATE_METRIC))


def _number(value: object) -> float:
    """Spark leaves it out, or writes "NaN" or "Infinity", when there was nothing to divide."""
    return float(value) if isinstance(value, int | float) and abs(value) != float("inf") and value == value else 0.0


def _time(text: str | None) -> datetime | None:
    """Spark says 1970 when it has seen no event yet."""
    if not text:
        return None
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return found if found.timestamp() > 0 else None
