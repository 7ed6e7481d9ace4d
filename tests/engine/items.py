"""A table that somebody else's Debezium writes, and what was put there; and a run to its end."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.engine import Run
from millrace.flow import App
from tests.engine.conftest import Project


class Items:
    def __init__(self, project: Project) -> None:
        self.project, self.rows = project, dict[int, str]()
        project.log.topics.ensure("items", partitions=2)

    def put(self, *changes: tuple[int, str | None]) -> None:
        with self.project.log.writer("items") as writer:
            for key, name in changes:
                after = None if name is None else {"id": key, "name": name}
                op = "d" if name is None else "u" if key in self.rows else "c"
                value = {"before": None, "after": after, "op": op, "source": {"ts_ms": 1, "lsn": 5}}
                writer.write(value, key=json.dumps({"id": key}), partition=key % 2)
                if name is None:
                    del self.rows[key]
                else:
                    self.rows[key] = name


def once(spark: SparkSession, settings: Settings, app: App, **options: Any) -> None:
    with Run(app, settings, once=True, spark=spark, traffic=False, **options) as run:
        while not run.done:
            run.poll()
        run.stop()
