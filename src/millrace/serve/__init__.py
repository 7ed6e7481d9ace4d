"""What a run tells over HTTP: metrics and health. It reads how flows stand (`engine/standing.py`) and never Spark."""

from __future__ import annotations

from millrace.serve.health import health
from millrace.serve.http import MetricsServer
from millrace.serve.metrics import METRICS, metrics

__all__ = ["METRICS", "MetricsServer", "health", "metrics"]
