"""A generation of a view that was made beside it takes its place: the view's changelog becomes what the new one holds.

What holds: this is done by whoever has the lock of the generation that counts, before its flow writes anything, and may
be done again at any point: what is missing is found by comparing. The generation's own topics go last, so as long as
they are there it is not finished. For readers of the changelog it is one more epoch, with a mark at its end.
"""

from __future__ import annotations

import json
import shutil
from itertools import islice
from pathlib import Path

from millrace.capture.definition import DAY_MS, TOMBSTONES_STAY_MS
from millrace.engine import generations
from millrace.engine.changelogs import Content, differences
from millrace.engine.definition import CHECKPOINT, FILLING, RECORD
from millrace.engine.generations import Generation
from millrace.engine.settling import INCARNATION
from millrace.engine.view_epochs import Reached, ViewEpochs, marks
from millrace.flow import View
from millrace.log import Log
from millrace.log.transactions import Draft
from millrace.views.changelog import AFTER, HEAD, PARTITIONS, TAIL, marks_topic, row_text, tentative_topic

# A reader that is at most a day behind can cut it anywhere; one that was away for longer than tombstones stay, is told.
_KEPT = {"min.compaction.lag.ms": str(DAY_MS), "delete.retention.ms": str(TOMBSTONES_STAY_MS)}
# Records that go to the changelog together.
_AT_ONCE = 10_000


def ensure(view: str, log: Log) -> None:
    """A view's changelog, and its marks."""
    log.topics.ensure(view, partitions=PARTITIONS, compact=True, config=_KEPT)
    log.topics.ensure(marks_topic(view), partitions=1, compact=True)


def drop(view: str, log: Log) -> None:
    """The changelog last: as long as it is there, there is more to delete."""
    for topic in (marks_topic(view), tentative_topic(view), view):
        if log.topics.exists(topic):
            log.topics.delete(topic)


def join(view: View, folder: Path, log: Log, app: str) -> None:
    """`folder` is that of the generation that counts. Nothing is done for one that has joined."""
    named = folder.with_name(view.name)
    generation = Generation.read(named)
    own = generations.beside(view.name, generation.number)
    if generation.number == generations.FIRST or not log.topics.exists(own):
        return
    if generation.renews and log.topics.exists(view.name) and log.topics.identity(view.name) == generation.renews:
        drop(view.name, log)
    ensure(view.name, log)
    epochs = ViewEpochs(view, log, folder / CHECKPOINT, folder)
    if epochs.last_marked() <= generation.joined:
        reached = epochs.reached(generation.joined)
        _write(epochs, reached, Content(log, own, log.topics.last(own)), f"{app}.{view.name}.joined")
        epochs.mark(generation.joined, reached)
    retire(named, generation.number)
    drop(own, log)


def retire(folder: Path, current: int) -> None:
    """Forgets the generations before the current one: the changelog goes on without them, and they cannot come back."""
    for number in range(generations.FIRST, current):
        old = Generation(number).folder(folder)
        shutil.rmtree(old / CHECKPOINT, ignore_errors=True)
        for name in (RECORD, FILLING, INCARNATION):
            (old / name).unlink(missing_ok=True)
        if number != generations.FIRST:
            shutil.rmtree(old, ignore_errors=True)


def _write(epochs: ViewEpochs, reached: Reached, new: Content, name: str) -> None:
    log, view = epochs.log, epochs.view.name
    after = max((mark.lsn for mark in marks(log, view)), default=0)
    headers = ((AFTER, str(after).encode()),)
    source = json.dumps({"lsn": reached.lsn, "ts_ms": reached.at_ms})
    found = differences(Content(log, view, epochs.ends()), new)
    writer = None
    while some := list(islice(found, _AT_ONCE)):
        writer = writer or log.transactions(name)
        writer.write(
            [
                Draft(
                    view,
                    None if each.value is None else f"{HEAD}{row_text(each.value)}{TAIL}{source}}}".encode(),
                    each.key,
                    headers,
                )
                for each in some
            ]
        )
