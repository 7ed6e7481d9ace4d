"""`Progress`: what one epoch of a flow did, as metrics, commands and tests read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from millrace.engine.epochs import NOW, POSITION
from millrace.engine.sources import ARRIVED, CHANGED, DEAD
from millrace.flow.lateness import ALLOWED, LATE_METRIC, REFUSED
from millrace.flow.leaving import LEFT_OUT, LEFT_OUT_METRIC
from millrace.flow.matches import PARTIAL_METRIC

# As in `ClockTracker.java`.
PARTIAL_FOLDER = "_partial"

# What an epoch spends its time on, in our words: Spark's own names for it.
PHASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "look": ("latestOffset",),  # asking the broker how far the topics go
        "plan": ("getBatch", "queryPlanning"),
        "record": ("walCommit",),  # writing into the checkpoint what is going to be read
        "work": ("addBatch",),  # reading, the stream's function, state, writing
        "commit": ("commitOffsets", "commitBatch"),
    }
)


@dataclass(frozen=True)
class Progress:
    """One epoch.

    Rows: of `rows_in`, `dead` did not fit, or gave what was too large for its topic, and `late` came when a window of
    theirs had closed: `allowed` of these counted nevertheless, `refused` did not, in at least one window. The rest of
    the late ones was dropped by Spark's own windows and joins; its windows count them when they are put together, so
    they may be more in truth. `left_out` are rows that are not late: that a model skips, or of a table without its key.
    `rows_out` is None where nobody counts: several outputs in one epoch. The rates are over the epoch's own time,
    pauses between epochs left out: how fast the flow can, not how much there is.

    Time: `at` is when the epoch ended. `phases_ms` divides `epoch_ms` by the words of `PHASES`, what is left is
    "other". `watermark_gap_s` is how far the watermark was behind `at`: the lateness that is waited for, and the age of
    the events.

    State: rows that are kept, bytes of memory (for RocksDB its tables and caches) and of RocksDB's files on the
    executors' disks. `partial_matches` is of how many rows, over all keys, `mr.match` does not know yet which match
    begins with them; None of a flow without it, and of a checkpoint that was begun before they were counted.

    Lag: `lag_records` counts the offsets that were in the topics when the epoch began and that it left unread; `lag_s`
    is 0 when there were none, and otherwise how long before `at` the newest record arrived that has been read: what
    arrived since may be unread. None where a source does not tell. `freshness_s` is of a captured table with sinks:
    from when the oldest change of the epoch was made in the database to `at`, when each sink holds it, or owes it.
    """

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
    at: datetime
    rows_out_per_s: float | None
    phases_ms: Mapping[str, int]
    watermark_gap_s: float | None
    state_rows: int
    state_bytes: int
    state_disk_bytes: int
    lag_records: int | None
    lag_s: float | None
    partial_matches: int | None = None
    freshness_s: float | None = None
    left_out: int = 0


@dataclass(frozen=True)
class Span:
    """The offsets that an epoch read of one topic, per partition; `start` is None for a flow's first epoch."""

    outside: str
    start: Mapping[str, int] | None
    end: Mapping[str, int]
    dead: int


def progress_of(flow: str, report: Mapping[str, Any], clocks: Path | None = None) -> Progress:
    """From Spark's report of an epoch, as its JSON says it; `clocks` is where sums over epochs are kept."""
    written = report["sink"].get("numOutputRows", -1)
    allowed, refused = (_counted(report, LATE_METRIC, word) for word in (ALLOWED, REFUSED))
    dropped = _state(report, "numRowsDroppedByWatermark")
    epoch_ms = report["durationMs"].get("triggerExecution", 0)
    began = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00"))
    at = began.astimezone(UTC) + timedelta(milliseconds=epoch_ms)
    watermark = _time(report.get("eventTime", {}).get("watermark"))
    lag_records = _lag_records(report)
    rows, ticks = report["numInputRows"], _ticks(report)
    return Progress(
        flow=flow,
        epoch=report["batchId"],
        rows_in=rows - ticks,
        rows_out=written if written >= 0 else None,
        dead=sum(_dead(report, name) for name in report.get("observedMetrics", {})),
        late=allowed + refused + dropped,
        allowed=allowed,
        refused=refused,
        rows_per_s=0.0 if ticks and rows == ticks else _number(report.get("processedRowsPerSecond")),
        epoch_ms=epoch_ms,
        watermark=watermark,
        at=at,
        rows_out_per_s=written * 1000 / epoch_ms if written >= 0 and epoch_ms else None,
        phases_ms=_phases_ms(report["durationMs"], epoch_ms),
        watermark_gap_s=(at - watermark).total_seconds() if watermark else None,
        state_rows=_state(report, "numRowsTotal"),
        state_bytes=_state(report, "memoryUsedBytes"),
        state_disk_bytes=sum(
            int(operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)) for operator in report["stateOperators"]
        ),
        lag_records=lag_records,
        lag_s=_lag_s(report, at) if lag_records else (None if lag_records is None else 0.0),
        partial_matches=_partial_matches(report, clocks),
        freshness_s=_freshness_s(report, at),
        left_out=_counted(report, LEFT_OUT_METRIC, LEFT_OUT),
    )


def spans_of(report: Mapping[str, Any], metrics: Mapping[str, str]) -> list[Span]:
    """What was read of each topic; `metrics` gives the name of a topic's observation by its outside name."""
    spans = []
    for source in report["sources"]:
        starts = source.get("startOffset") or {}
        for outside, end in (source.get("endOffset") or {}).items():
            if outside.startswith(POSITION):
                continue
            spans.append(Span(outside, starts.get(outside), end, _dead(report, metrics[outside])))
    return spans


def _ticks(report: Mapping[str, Any]) -> int:
    """The rows that only say what time it is (`Ticks.java`)."""
    clocks = (source for source in report["sources"] if source.get("endOffset"))
    return sum(
        source["numInputRows"]
        for source in clocks
        if isinstance(source["endOffset"], Mapping) and NOW in source["endOffset"]
    )


def _phases_ms(spent_ms: Mapping[str, int], epoch_ms: int) -> Mapping[str, int]:
    phases = {word: sum(spent_ms.get(name, 0) for name in names) for word, names in PHASES.items()}
    return MappingProxyType({**phases, "other": max(epoch_ms - sum(phases.values()), 0)})


def _state(report: Mapping[str, Any], name: str) -> int:
    return sum(int(operator.get(name, 0)) for operator in report["stateOperators"])


def _lag_records(report: Mapping[str, Any]) -> int | None:
    """Offsets between where the epoch ended and where the topics did, as Spark was told when it began."""
    behind = None
    for source in report["sources"]:
        ends = source.get("endOffset")
        for outside, latest in (source.get("latestOffset") or {}).items() if isinstance(ends, Mapping) else ():
            read = ends.get(outside, {})
            behind = (behind or 0) + sum(max(last - read.get(number, 0), 0) for number, last in latest.items())
    return behind


def _lag_s(report: Mapping[str, Any], at: datetime) -> float | None:
    """Of several sources, that of the one whose newest record is the oldest."""
    observed = report.get("observedMetrics", {}).values()
    arrived_ms = [int(counts[ARRIVED]) for counts in observed if counts.get(ARRIVED) is not None]
    return max(at.timestamp() - min(arrived_ms) / 1000, 0.0) if arrived_ms else None


def _freshness_s(report: Mapping[str, Any], at: datetime) -> float | None:
    observed = report.get("observedMetrics", {}).values()
    changed_ms = [int(counts[CHANGED]) for counts in observed if counts.get(CHANGED) is not None]
    return max(at.timestamp() - min(changed_ms) / 1000, 0.0) if changed_ms else None


def _dead(report: Mapping[str, Any], metric: str) -> int:
    return int(report.get("observedMetrics", {}).get(metric, {}).get(DEAD) or 0)


def _counted(report: Mapping[str, Any], metric: str, word: str) -> int:
    """Over all observations whose names begin so."""
    metrics = report.get("observedMetrics", {})
    return sum(int(counts.get(word) or 0) for name, counts in metrics.items() if name.startswith(metric))


def _partial_matches(report: Mapping[str, Any], clocks: Path | None) -> int | None:
    if clocks is None or not any(name.startswith(PARTIAL_METRIC) for name in report.get("observedMetrics", {})):
        return None
    try:
        return int((clocks / PARTIAL_FOLDER / str(report["batchId"])).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _number(value: object) -> float:
    """Spark leaves it out, or writes "NaN" or "Infinity", when there was nothing to divide."""
    return float(value) if isinstance(value, int | float) and abs(value) != float("inf") and value == value else 0.0


def _time(text: str | None) -> datetime | None:
    """Spark says 1970 when it has seen no event yet."""
    if not text:
        return None
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return found if found.timestamp() > 0 else None
