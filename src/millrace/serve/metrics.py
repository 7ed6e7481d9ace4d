"""How flows stand, as metrics. Their names are a promise: `docs/guide/metrics.md` lists them, and a test compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millrace.engine.progress import Progress
from millrace.engine.standing import SinkStanding, Standing
from millrace.exposition import Metric, Sample, exposition


def _flow(name: str, about: str) -> Metric:
    return Metric(f"millrace_flow_{name}", "counter" if name.endswith("_total") else "gauge", about)


# What a flow has summed up since the run began.
_SUMS: tuple[tuple[Metric, Callable[[Standing], float | None]], ...] = (
    (_flow("up", "1 while the flow runs, 0 otherwise"), lambda found: int(found.state == "running")),
    (_flow("failed", "1 after a failure that does not pass by itself"), lambda found: int(found.state == "failed")),
    (_flow("restarts_total", "times the flow was started again after a failure"), lambda found: found.restarts),
    (_flow("epochs_total", "epochs that were committed"), lambda found: found.epochs),
    (_flow("rows_in_total", "records read"), lambda found: found.rows_in),
    (_flow("rows_out_total", "rows written, where the sink counts them"), lambda found: found.rows_out),
    (_flow("dead_rows_total", "records that did not fit and went to the dead letters"), lambda found: found.dead),
    (_flow("late_rows_total", "rows that came when a window of theirs had closed"), lambda found: found.late),
    (_flow("late_rows_allowed_total", "late rows that counted nevertheless"), lambda found: found.allowed),
    (_flow("late_rows_refused_total", "late rows that did not count in a window"), lambda found: found.refused),
    (
        _flow("left_out_rows_total", "rows that a model skipped, or of a table without its key"),
        lambda found: found.left_out,
    ),
    (_flow("heard_timestamp_seconds", "when the flow last gave a sign"), lambda found: found.heard.timestamp()),
)

# What its last epoch told.
_LAST: tuple[tuple[Metric, Callable[[Progress], float | None]], ...] = (
    (_flow("last_epoch", "number of the last epoch"), lambda last: last.epoch),
    (_flow("last_epoch_timestamp_seconds", "when the last epoch ended"), lambda last: last.at.timestamp()),
    (_flow("epoch_seconds", "how long the last epoch took"), lambda last: last.epoch_ms / 1000),
    (_flow("rows_in_per_second", "records read in a second of the last epoch"), lambda last: last.rows_per_s),
    (_flow("rows_out_per_second", "rows written in a second of the last epoch"), lambda last: last.rows_out_per_s),
    (
        _flow("lag_records", "offsets that were there when the last epoch began, and left unread"),
        lambda last: last.lag_records,
    ),
    (_flow("lag_seconds", "0, or if records are unread, age of the newest one that was read"), lambda last: last.lag_s),
    (
        _flow("freshness_seconds", "from the oldest change of the last epoch in the database to its end"),
        lambda last: last.freshness_s,
    ),
    (
        _flow("watermark_timestamp_seconds", "the watermark"),
        lambda last: last.watermark.timestamp() if last.watermark else None,
    ),
    (_flow("watermark_gap_seconds", "from the watermark to the last epoch's end"), lambda last: last.watermark_gap_s),
    (_flow("state_rows", "rows kept as state"), lambda last: last.state_rows),
    (_flow("state_bytes", "memory of the state"), lambda last: last.state_bytes),
    (
        _flow("partial_matches", "rows of which it is not decided yet which match of mr.match begins with them"),
        lambda last: last.partial_matches,
    ),
    (_flow("state_disk_bytes", "files of the state on the executors' disks"), lambda last: last.state_disk_bytes),
)

_PHASES = _flow("phase_seconds_total", "what epochs spent their time on, by phase")


def _sink(name: str, about: str) -> Metric:
    return Metric(f"millrace_sink_{name}", "counter" if name.endswith("_total") else "gauge", about)


_SINKS: tuple[tuple[Metric, Callable[[SinkStanding], float | None]], ...] = (
    (_sink("last_epoch", "number of the last epoch that the sink holds"), lambda sink: sink.epoch),
    (_sink("owed_epochs", "epochs that the sink does not hold yet"), lambda sink: sink.owed_epochs),
    (_sink("owed_bytes", "their rows, on disk"), lambda sink: sink.owed_bytes),
    (_sink("dead_rows_total", "rows that the target refused, in the dead letters"), lambda sink: sink.dead),
    (_sink("lost_epochs_total", "epochs given up, where at most once was asked for"), lambda sink: sink.lost),
)


def _figure(name: str) -> Callable[[SinkStanding], float | None]:
    return lambda sink: sink.figures.get(name)


# What the target tells of itself (`Writer.figures`).
_FIGURES: tuple[tuple[Metric, Callable[[SinkStanding], float | None]], ...] = (
    (_sink("files", "of a lake table: files of its last version"), _figure("files")),
    (_sink("bytes", "their size"), _figure("bytes")),
    (_sink("history_bytes", "size of the files that only older versions have"), _figure("history_bytes")),
    (_sink("compaction_debt_files", "small files that are to be written together"), _figure("debt_files")),
)

METRICS: tuple[Metric, ...] = (
    *(metric for metric, _ in _SUMS),
    *(metric for metric, _ in _LAST),
    _PHASES,
    *(metric for metric, _ in _SINKS),
    *(metric for metric, _ in _FIGURES),
)


def metrics(app: str, standings: Iterable[Standing]) -> str:
    return exposition(sample for standing in standings for sample in _samples(app, standing))


def _samples(app: str, standing: Standing) -> Iterator[Sample]:
    labels = {"app": app, "flow": standing.flow}
    for metric, value in _SUMS:
        yield metric, labels, value(standing)
    if standing.last is not None:
        for metric, told in _LAST:
            yield metric, labels, told(standing.last)
    for phase, spent_ms in standing.phases_ms.items():
        yield _PHASES, {**labels, "phase": phase}, spent_ms / 1000
    for name, sink in standing.sinks.items():
        for metric, of_sink in (*_SINKS, *_FIGURES):
            yield metric, {**labels, "sink": name}, of_sink(sink)
