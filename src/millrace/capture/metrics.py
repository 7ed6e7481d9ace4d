"""A capture's figures in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.capture.status import CaptureStatus

_HELP = {
    "millrace_capture_up": "1 when the capture runs, 0 otherwise",
    "millrace_capture_behind_bytes": "replication log that the capture has not confirmed yet",
    "millrace_capture_kept_bytes": "replication log that the database keeps for the capture",
    "millrace_capture_records": "offsets taken in the table's topic",
    "millrace_capture_events_per_second": "changes that came during the last second",
    "millrace_capture_lag_seconds": "from commit to topic, of the table's last change",
}


def exposition(statuses: Iterable[CaptureStatus]) -> str:
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for status in statuses:
        label = {"capture": status.capture}
        _add(samples, "millrace_capture_up", label, float(status.state == "running"))
        _add(samples, "millrace_capture_behind_bytes", label, status.behind_bytes)
        _add(samples, "millrace_capture_kept_bytes", label, status.kept_bytes)
        for table in status.tables:
            labels = {**label, "table": table.table}
            _add(samples, "millrace_capture_records", labels, table.records)
            _add(samples, "millrace_capture_events_per_second", labels, table.events_per_s)
            _add(samples, "millrace_capture_lag_seconds", labels, table.lag_s)
    lines = []
    for name, found in samples.items():
        if found:
            lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} gauge", *found]
    return "\n".join(lines) + "\n" if lines else ""


def _add(samples: dict[str, list[str]], name: str, labels: dict[str, str], value: float | None) -> None:
    if value is not None:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        samples[name].append(f"{name}{{{shown}}} {value:g}")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
