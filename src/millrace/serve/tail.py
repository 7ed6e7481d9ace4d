"""One topic's records for all who watch it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from concurrent.futures import CancelledError
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.errors import MillraceError
from millrace.log import Log
from millrace.log.following import Following
from millrace.log.record import Record, record_of
from millrace.serve import resume
from millrace.serve.fanout import Batch, Channel, ahead

# A client that was away while this server was down for so long can go on.
REMEMBERED = timedelta(seconds=10)
_HANDED_S = 60.0

_logger = logging.getLogger("millrace.serve")


class Records(Batch):
    def __init__(self, topic: str, before: Mapping[int, int], ends: Mapping[int, int], records: list[Record]) -> None:
        self.told = [(each.partition, each.offset, _told(each)) for each in records]
        super().__init__(before, ends, len(records), sum(len(text) for _, _, text in self.told))
        self._topic = topic

    def text(self, wanted: Any, ends: Mapping[int, int]) -> tuple[str, bool]:
        texts = [text for number, offset, text in self.told if offset >= ends.get(number, 0)]
        after = resume.after(self._topic, ahead(self.ends, ends), wanted)
        return f'{{"type":"records","records":[{",".join(texts)}],"after":"{after}"}}', bool(texts)


class Tail(Following):
    """Its thread reads; the channel belongs to the event loop."""

    def __init__(self, topic: str, log: Log, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(f"tail {topic}")
        self.topic, self.channel = topic, Channel()
        self.trouble: MillraceError | None = None
        self._log, self._loop = log, loop

    def failed(self, error: Exception) -> None:
        if isinstance(error, MillraceError):
            _logger.warning("%s: %s", self.topic, error)
            self.trouble = error
        elif isinstance(error, CancelledError | TimeoutError):  # the server stops, or was very busy
            _logger.warning("%s: nobody took what was read", self.topic)
        else:
            _logger.error("%s: reading failed, and is tried again", self.topic, exc_info=error)

    def follow(self) -> None:
        topic = self._log.topics.identity(self.topic)
        reader = self._log.reader(self.topic, datetime.now(UTC) - REMEMBERED, follow=True, stop=self.ended)
        ends = dict(reader.begins)
        with closing(reader.batches()) as batches:
            self._publish(Records(topic, dict(ends), dict(ends), []), begins=topic)
            for messages in batches:
                before = dict(ends)
                for message in messages:
                    ends[message.partition()] = message.offset() + 1
                records = [record_of(self.topic, message) for message in messages]
                self._publish(Records(topic, before, dict(ends), records))

    def _publish(self, batch: Records, begins: str | None = None) -> None:
        asyncio.run_coroutine_threadsafe(self._published(batch, begins), self._loop).result(_HANDED_S)

    async def _published(self, batch: Records, begins: str | None) -> None:
        if begins is not None:
            self.channel.begin(begins)
        self.trouble = None
        self.channel.publish(batch)


def _told(record: Record) -> str:
    """A value that is JSON as it is, another one as text."""
    key = None if record.key is None else record.key.decode(errors="replace")
    facts = {"partition": record.partition, "offset": record.offset, "key": key}
    facts["time"] = None if record.time is None else record.time.isoformat()
    value = "null" if record.value is None else record.value.decode(errors="replace")
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = json.dumps(value)
    return f'{json.dumps(facts)[:-1]},"value":{value}}}'


def _refuse(constant: str) -> None:
    """NaN is no JSON."""
    raise ValueError(constant)
