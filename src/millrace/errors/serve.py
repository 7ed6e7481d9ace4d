"""What a run tells over HTTP."""

from __future__ import annotations

from millrace.errors.base import UserError


class MetricsUnservable(UserError):
    code = "MR-METRICS-UNSERVABLE"
    text = "metrics cannot be served on {address} ({reason})"
    fix = "choose another port: --metrics PORT, or [run] metrics"
