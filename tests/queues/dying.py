"""A drain that is killed with -9 between its two steps, run as a process of its own:

    python -m tests.queues.dying MANNER FOLDER QUEUE TOPIC

`right` is the drain as it is: records are written, and it dies before the first acknowledgement. `hasty` is one that
acknowledges first, and dies before it writes: it shows that the test would notice.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from millrace import config
from millrace.log import Writer
from millrace.queues.drain import Drain, Message


def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Dying(Drain):
    def _settle(self, channel: Any, writer: Writer, batch: list[Message]) -> None:
        channel.basic_ack = _die
        super()._settle(channel, writer, batch)


class _Hasty(Drain):
    def _settle(self, channel: Any, writer: Writer, batch: list[Message]) -> None:
        channel.basic_ack(batch[-1].tag, multiple=True)
        channel.connection.process_data_events(0)
        channel.queue_declare(self.queue, passive=True)  # an answer: what was sent before it has arrived
        _die()
        super()._settle(channel, writer, batch)


if __name__ == "__main__":
    manner, folder, queue, topic = sys.argv[1:]
    kind = {"right": _Dying, "hasty": _Hasty}[manner]
    kind(config.load(Path(folder)), queue, topic, prefetch=50).run(until_empty=True)
