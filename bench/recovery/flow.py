"""Our side of the benchmark, in a process that can be killed: `python -m bench.recovery.flow FOLDER READ WRITTEN S`.

An epoch begins every S seconds.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import millrace as mr
from bench.latency.shapes import SCHEMA, SHAPES
from millrace import config
from millrace.engine import Run

PARTITIONS = 2
SHAPE = SHAPES["lookback"]
OPTIONS = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "2g"}
TEND_S = 0.1


def main(folder: str, read: str, written: str, seconds: str) -> None:
    found = config.load(Path(folder))
    settings = replace(found, spark=replace(found.spark, options=OPTIONS))
    app = mr.App("recovery")
    topic = app.topic(read, SCHEMA, time="at", lateness="5 seconds", partitions=PARTITIONS)
    app.stream(topic, name=written, partitions=PARTITIONS)(SHAPE.flow)  # type: ignore[arg-type]
    with Run(app, settings, master=f"local[{PARTITIONS}]", trigger=f"{seconds} seconds") as run:
        while True:
            run.poll()
            time.sleep(TEND_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
