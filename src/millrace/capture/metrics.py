"""A capture's figures in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millrace import exposition as prometheus
from millrace.capture.status import CaptureStatus
from millrace.exposition import Metric, Sample

_UP = Metric("millrace_capture_up", "gauge", "1 when the capture runs, 0 otherwise")
_BEHIND = Metric("millrace_capture_behind_bytes", "gauge", "replication log that the capture has not confirmed yet")
_KEPT = Metric("millrace_capture_kept_bytes", "gauge", "replication log that the database keeps for the capture")
_RECORDS = Metric("millrace_capture_records", "gauge", "offsets taken in the table's topic")
_EVENTS = Metric("millrace_capture_events_per_second", "gauge", "changes that came during the last second")
_LAG = Metric("millrace_capture_lag_seconds", "gauge", "from commit to topic, of the table's last change")


def exposition(statuses: Iterable[CaptureStatus]) -> str:
    return prometheus.exposition(sample for status in statuses for sample in _samples(status))


def _samples(status: CaptureStatus) -> Iterator[Sample]:
    label = {"capture": status.capture}
    yield _UP, label, int(status.state == "running")
    yield _BEHIND, label, status.behind_bytes
    yield _KEPT, label, status.kept_bytes
    for table in status.tables:
        labels = {**label, "table": table.table}
        yield _RECORDS, labels, table.records
        yield _EVENTS, labels, table.events_per_s
        yield _LAG, labels, table.lag_s
