"""A PySpark job of somebody's own, with the operators that it is told: python -m tests.kernel.plain_job FOLDER NAMES…

Its session is the one that the guide shows, and its watermark Spark's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.kernel.specimens import SPECIMENS
from tests.test_guide import blocks

DROPPED = "dropped"


def main(folder: Path, names: list[str]) -> None:
    given: dict[str, Any] = {}
    exec(blocks("pyspark.md")[0], given)
    dropped = {}
    for name in names:
        query = SPECIMENS[name].start(given["spark"], folder / name, of_millrace=False)
        query.awaitTermination()
        states = [state for report in query.recentProgress for state in report["stateOperators"]]
        dropped[name] = sum(state["numRowsDroppedByWatermark"] for state in states)
    (folder / DROPPED).write_text(json.dumps(dropped))
    given["spark"].stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
