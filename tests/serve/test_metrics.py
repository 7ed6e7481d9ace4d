"""Metrics and health, from standings alone: the text format, the names that the guide promises, and the verdicts."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config import Listen
from millrace.engine.progress import progress_of
from millrace.engine.standing import SinkStanding, Standing
from millrace.errors import MetricsUnservable
from millrace.exposition import Metric, exposition
from millrace.serve.health import QUIET_S, health
from millrace.serve.http import MetricsServer
from millrace.serve.metrics import METRICS, metrics
from tests.serve.exposition import parsed

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "metrics.md"
REPORT: dict[str, Any] = {
    "batchId": 7,
    "timestamp": "2026-01-01T00:00:10.000Z",
    "numInputRows": 10,
    "processedRowsPerSecond": 5.0,
    "durationMs": {"addBatch": 1500, "latestOffset": 100, "queryPlanning": 150, "getBatch": 50, "walCommit": 40,
                   "commitOffsets": 60, "triggerExecution": 2000},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 3, "memoryUsedBytes": 2_000_000_007, "numRowsDroppedByWatermark": 1,
         "customMetrics": {"rocksdbSstFileSize": 11}},
        {"numRowsTotal": 2, "memoryUsedBytes": 10},
    ],
    "sources": [
        {"startOffset": {"t": {"0": 0, "1": 5}}, "endOffset": {"t": {"0": 10, "1": 5}},
         "latestOffset": {"t": {"0": 14, "1": 8}}},
    ],
    "sink": {"numOutputRows": 4},
    "observedMetrics": {
        "millrace.t": {"rows": 10, "dead": 2, "arrived": 1_767_225_603_000, "changed": 1_767_225_601_500},
    },
}  # fmt: skip


FIGURES = {"files": 3, "bytes": 4_000, "history_bytes": 90, "debt_files": 2}


def told() -> Standing:
    progress = replace(progress_of("counts", REPORT), partial_matches=4)
    standing = Standing.new("counts").becomes("running").after(progress)
    return standing.delivering({"files.out": SinkStanding("exactly once", epoch=3, figures=FIGURES)})


def test_an_epochs_report_becomes_progress() -> None:
    progress = progress_of("counts", REPORT)
    assert progress.at == datetime(2026, 1, 1, 0, 0, 12, tzinfo=UTC)
    assert progress.phases_ms == {"look": 100, "plan": 200, "record": 40, "work": 1500, "commit": 60, "other": 100}
    assert (progress.rows_per_s, progress.rows_out_per_s) == (5.0, 2.0)
    assert progress.watermark_gap_s == 12.0
    assert (progress.state_rows, progress.state_bytes, progress.state_disk_bytes) == (5, 2_000_000_017, 11)
    assert (progress.lag_records, progress.lag_s) == (7, 9.0)  # 4 + 3 unread; the newest one read came at :03
    assert progress.freshness_s == 10.5  # changed at :01.5, and shown at :12
    assert progress.rows_in == 10
    # What only says which time it is, is no row.
    clock = {"startOffset": {"@@now": {"ms": 1}}, "endOffset": {"@@now": {"ms": 1_001}}, "numInputRows": 1}
    timed = progress_of("counts", {**REPORT, "numInputRows": 1, "sources": [*REPORT["sources"], clock]})
    assert (timed.rows_in, timed.rows_per_s, timed.lag_records) == (0, 0.0, 7)
    read = {**REPORT, "sources": [{"endOffset": {"t": {"0": 4}}, "latestOffset": {"t": {"0": 4}}}]}
    assert (progress_of("counts", read).lag_records, progress_of("counts", read).lag_s) == (0, 0.0)
    again = {**REPORT, "sources": [{"endOffset": {"t": {"0": 4}}, "latestOffset": None}]}
    assert (progress_of("counts", again).lag_records, progress_of("counts", again).lag_s) == (None, None)


def test_the_guide_names_the_metrics_that_there_are() -> None:
    listed = dict(
        re.findall(r"^\| `(millrace_(?:flow|sink)_\w+)` \| (counter|gauge) \|", GUIDE.read_text(encoding="utf-8"), re.M)
    )
    assert listed == {metric.name: metric.kind for metric in METRICS}
    families = parsed(metrics("shop", [told()]))
    assert {name: family.kind for name, family in families.items()} == listed
    labels = (("app", "shop"), ("flow", "counts"))
    assert families["millrace_flow_partial_matches"].samples == {labels: 4}
    sink = (*labels, ("sink", "files.out"))
    assert families["millrace_sink_compaction_debt_files"].samples == {sink: 2}
    assert families["millrace_flow_state_bytes"].samples == {labels: 2_000_000_017}
    assert families["millrace_flow_phase_seconds_total"].samples[(*labels, ("phase", "work"))] == 1.5


@given(st.text(), st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_any_text_and_any_number_come_through(text: str, value: float) -> None:
    metric = Metric("some", "gauge", "a \\ and\na line")
    (family,) = parsed(exposition([(metric, {"flow": text}, value)])).values()
    assert family.samples == {(("flow", text),): float(value)}


def test_health_says_what_is_wrong_with_which_flow() -> None:
    now = datetime.now(UTC)
    runs = told().becomes("running")
    silent = replace(runs, flow="silent", heard=now - timedelta(seconds=QUIET_S + 1))
    found = health(
        [
            runs,
            silent,
            replace(told(), flow="ended").becomes("ended"),
            replace(told(), flow="back").becomes("restarting", "the broker is away"),
            replace(told(), flow="broken").becomes("failed", "MR-BODY-FAILED …"),
        ],
        now,
    )
    assert found["counts"] == found["ended"] == ""
    assert "no epoch has ended for 301 s" in found["silent"]
    assert "the broker is away" in found["back"]
    assert found["broken"] == "MR-BODY-FAILED …"


def asked(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_it_is_served_on_this_machine_only() -> None:
    standings: dict[str, Standing] = {}
    listen = Listen.of("0")
    assert listen is not None
    with MetricsServer(listen, "shop", lambda: standings) as server:
        assert server.address.startswith("http://127.0.0.1:")
        status, _, text = asked(f"{server.address}/health")
        assert (status, json.loads(text)["reason"]) == (503, "the flows have not started yet")
        standings["counts"] = told().becomes("running")
        status, _, text = asked(f"{server.address}/health")
        assert (status, json.loads(text)["flows"]) == (200, {"counts": {"state": "running", "reason": ""}})
        standings["counts"] = standings["counts"].becomes("failed", "it is broken")
        status, _, text = asked(f"{server.address}/health")
        assert (status, json.loads(text)["flows"]["counts"]["reason"]) == (503, "it is broken")
        status, kind, text = asked(f"{server.address}/metrics?x=1")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert parsed(text)["millrace_flow_failed"].samples == {(("app", "shop"), ("flow", "counts")): 1}
        assert asked(f"{server.address}/")[0] == 404


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = Listen("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(MetricsUnservable, match="choose another port"):
            MetricsServer(listen, "shop", dict)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9108", Listen("127.0.0.1", 9108)),
        ("0.0.0.0:9108", Listen("0.0.0.0", 9108)),
        ("[::1]:80", Listen("::1", 80)),
        ("", None),
        ("host", None),
        ("1:", None),
        ("65536", None),
        ("-1", None),
    ],
)
def test_where_to_listen(text: str, found: Listen | None) -> None:
    assert Listen.of(text) == found
