"""A view while it changes: the rows that it has, and then what each epoch changes, from mark to mark of its changelog.

What holds: whoever applies all of it has, after each batch, the view as it was at the batch's position.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from millrace.log import Log
from millrace.views.changelog import Mark, lsn_text, marks_topic, row_text
from millrace.views.store import Store

# Among so many offsets at the end of a topic of marks is the last one of them that counts.
LAST_MARKS = 20


@dataclass(frozen=True)
class Changes:
    """What made a view true of `lsn`: rows that came or are others now, and keys of those that are gone, as JSON. Of a
    view over several databases, or over events, there is no `lsn`."""

    lsn: str | None
    rows: tuple[str, ...]
    gone: tuple[str, ...]


def watched(log: Log, store: Store, view: str, *, stop: threading.Event | None = None) -> Iterator[Changes]:
    """First all rows of the view, then the changes of each epoch, without end unless `stop` is set; of epochs that
    came at once, those of the last of them."""
    # Tentative rows are not in the changelog, which would never take one back.
    rows, position = store.texts(view, certain=True)
    store.close()
    yield Changes(position.lsn, tuple(rows), ())
    marks, ends, epoch = marks_topic(view), dict(position.ends), position.epoch
    first = max(log.topics.last(marks)[0] - LAST_MARKS, 0)
    reader = log.reader(marks, first, follow=True, stop=stop)
    with closing(log.ranges(view)) as ranges, closing(reader.batches()) as batches:
        for messages in batches:
            found = [Mark.from_json(json.loads(message.value())) for message in messages if message.value()]
            new = [mark for mark in found if mark.whole and mark.epoch > epoch]
            if not new:
                continue
            last = {message.key(): message.value() for message in ranges.between(ends, new[-1].ends)}
            ends, epoch = dict(new[-1].ends), new[-1].epoch
            yield Changes(
                None if new[-1].database is None else lsn_text(new[-1].lsn),
                tuple(row_text(value) for value in last.values() if value is not None),
                tuple(key.decode() for key, value in last.items() if value is None),
            )
