"""The topic in which a binlog connector remembers how tables looked: without it, it could not read older changes.

It holds the definitions of captured tables only, so that the statements that define others, which the connector may not
understand, are nothing to it. A table that is added later is therefore told to it here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from millrace.capture.definition import Capture
from millrace.log import Log


def topic(capture: Capture) -> str:
    return f"_millrace.schemas.{capture.name}"


def ensure(log: Log, capture: Capture) -> None:
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    log.topics.ensure(topic(capture), partitions=1, config=kept)


def tell(log: Log, capture: Capture, definitions: Mapping[str, str]) -> None:
    """Adds tables (their CREATE TABLE statements, by whole name) to a history, once there is one.

    They stand in it at its first position, so that whatever position the connector recovers from, it knows them:
    changes of theirs from before now it never reads.
    """
    first = next((record.json() for record in log.read(topic(capture), limit=1)), None)
    if first is None:
        return
    for name, definition in definitions.items():
        record = {
            "source": first["source"],
            "position": first["position"],
            "ts_ms": int(time.time() * 1000),
            "databaseName": name.partition(".")[0],
            "ddl": definition,
            "tableChanges": [],
        }
        log.write(topic(capture), json.dumps(record), partition=0)
