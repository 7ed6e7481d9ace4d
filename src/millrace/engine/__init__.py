"""From an app's graph to running Spark queries: session, sources, checkpoints, locks, progress, a clean stop.

Only what runs belongs here; what is defined belongs to `flow`. Importing this room imports Spark.
"""

from __future__ import annotations

from millrace.engine.progress import Progress
from millrace.engine.run import Run
from millrace.engine.session import session
from millrace.engine.tables import now

__all__ = ["Progress", "Run", "now", "session"]
