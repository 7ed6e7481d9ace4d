"""Rows that a sink's target refused go to its dead letters, `<sink>.dead`: the row as JSON, with the reason, its flow
and its epoch. They are written before the epoch counts as written, so after a crash some may come again."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.log import Log, deadletters
from millrace.log.topics import FOREVER, LIMIT
from millrace.sinks.contract import RefusedRow

# A row may have been refused because of its size.
LARGEST_BYTES = 100_000_000
FLOW, EPOCH = deadletters.HEADERS + "flow", deadletters.HEADERS + "epoch"


class Refusals:
    """The dead letters of one sink. `kept` is how many went there."""

    def __init__(self, log: Log, sink: str) -> None:
        self._log, self._sink = log, sink
        self._topic = sink + deadletters.SUFFIX
        self.kept = 0

    def keep(self, flow: str, epoch: int, rows: Sequence[RefusedRow]) -> None:
        """Returns when they are acknowledged."""
        self._log.topics.ensure(self._topic, partitions=1, retention=FOREVER, config={LIMIT: str(LARGEST_BYTES)})
        with self._log.writer(self._topic) as writer:
            for row in rows:
                reason = row.reason.encode()[: deadletters.REASON_BYTES].decode(errors="ignore")
                headers = {
                    deadletters.TOPIC: self._log.settings.named(self._sink),
                    FLOW: flow,
                    EPOCH: str(epoch),
                    deadletters.REASON: reason,
                }
                writer.write(row.row, key=row.key, headers=headers)
        self.kept += len(rows)
