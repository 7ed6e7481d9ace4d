"""An epoch of a view: its rows go to the changelog exactly once, and then a mark says that they are all there."""

from __future__ import annotations

import json
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.capture.definition import DAY_MS, TOMBSTONES_STAY_MS
from millrace.engine.definition import FILLING
from millrace.engine.epochs import began_ms, now_ms, positions
from millrace.engine.output import TIMES, write
from millrace.engine.topic_sink import TopicSink
from millrace.engine.viewed import database_of, shown, space_of
from millrace.errors import KafkaUnreachable, ViewBehind
from millrace.flow import Table, Topic, View
from millrace.kernel.signed import DIFF
from millrace.log import Log
from millrace.sinks.disk import write_whole
from millrace.views import Plan
from millrace.views.changelog import AFTER, HEAD, PARTITIONS, TAIL, Mark, marks_topic

# The position of an epoch that has only some rows of a snapshot (`Frontier.java`).
_FIRST = 1
_SETTLE_S, _LOOK_S = 60.0, 0.005
# A reader that is at most a day behind can cut it anywhere; one that was away for longer than tombstones stay, is told.
_KEPT = {"min.compaction.lag.ms": str(DAY_MS), "delete.retention.ms": str(TOMBSTONES_STAY_MS)}
_MARKED_S, _MARK_LOOK_S = 20.0, 0.2
# Among so many offsets at the end of a topic of marks is one; transactions take some.
_MARKS = 40


class ViewOutlet:
    """Called with each epoch's rows, one of each key that changed."""

    def __init__(self, view: View, plan: Plan, topic_sink: TopicSink, folder: Path) -> None:
        self._view, self._plan, self._topic_sink = view, plan, topic_sink
        self._checkpoint, self._folder = topic_sink.checkpoint, folder
        self._database = database_of(view)

    @property
    def _log(self) -> Log:
        return self._topic_sink.log

    def __call__(self, rows: DataFrame, number: int) -> None:
        reached, before = (positions(self._checkpoint, each) for each in (number, number - 1))
        # A position of its own counts epochs, from where a whole view may be on.
        lsn, after = (number + _FIRST + 1, number + _FIRST)
        if self._database is not None:
            lsn, after = reached[self._database], before.get(self._database, 0)
        at_ms = now_ms(self._checkpoint, number) or began_ms(self._checkpoint, number)
        write(self._records(rows, lsn, after, at_ms), self._topic_sink.epoch(number))
        targets = json.loads((self._folder / FILLING).read_text(encoding="utf-8"))
        whole = all(reached.get(name, 0) >= target for name, target in targets.items())
        mark = Mark(number, self._database, lsn, at_ms, self._ends(), whole)
        self._log.write(marks_topic(self._view.name), mark.as_json(), key=self._view.name)

    def _records(self, rows: DataFrame, lsn: int, after: int, at_ms: int) -> DataFrame:
        columns = dict(self._plan.columns)
        key = F.to_json(F.struct(*(shown(name, columns[name]) for name in self._view.key)), TIMES)
        row = F.to_json(F.struct(*(shown(name, type_) for name, type_ in columns.items())), TIMES)
        source = json.dumps({"lsn": lsn, "ts_ms": at_ms})
        value = F.concat(F.lit(HEAD), row, F.lit(f"{TAIL}{source}}}"))
        header = F.struct(F.lit(AFTER).alias("key"), F.lit(str(after)).cast("binary").alias("value"))
        return rows.select(
            key.alias("key"),
            F.when(F.col(DIFF) > 0, value).alias("value"),
            F.lit(self._log.settings.named(self._view.name)).alias("topic"),
            F.array(header).alias("headers"),
        )

    def _ends(self) -> dict[int, int]:
        """Where the changelog ends when readers can see all of it: a commit is answered before every partition has it.
        Nobody else writes there."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            seen, written = (self._log.topics.last(self._view.name, committed=each) for each in (True, False))
            if seen == written:
                return seen
            if time.monotonic() > deadline:
                reason = f"the last epoch of {self._view.name} is written and cannot be seen"
                raise KafkaUnreachable(address=self._log.address, reason=reason)
            time.sleep(_LOOK_S)


def begin(view: View, folder: Path, log: Log, *, afresh: bool) -> None:
    """Before a view's flow starts: its topics. One that begins has an empty changelog, since no tombstone would take
    out the rows that it has no longer; and it notes how far its first reading goes."""
    if afresh and log.topics.exists(view.name) and _written(view, log):
        log.topics.delete(view.name)
        log.topics.delete(marks_topic(view.name))
    for each in (view, *(node for node in view.reads if isinstance(node, View))):
        _ensure(each, log)
    if afresh or not (folder / FILLING).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILLING, json.dumps(_targets(view, log)))


def _written(view: View, log: Log) -> bool:
    return any(first < last for first, last in log.topics.offsets(view.name, committed=False).values())


def _ensure(view: View, log: Log) -> None:
    log.topics.ensure(view.name, partitions=PARTITIONS, compact=True, config=_KEPT)
    log.topics.ensure(marks_topic(view.name), partitions=1, compact=True)


def _targets(view: View, log: Log) -> dict[str, int]:
    """For each database that a view reads, the last mark that is there now."""
    found: dict[str, int] = {}
    for node in view.reads:
        space = None if isinstance(node, Topic) else space_of(node)
        if space is not None:
            name, marks = space
            # A view that is not whole yet is waited for by its readers' epochs.
            last = _last_mark(view, marks, log) if isinstance(node, Table) else max(_marks(marks, log), default=0)
            found[name] = max(found.get(name, 0), last, _FIRST + 1)
    return found


def _marks(topic: str, log: Log) -> list[int]:
    """The last ones."""
    end = log.topics.offsets(topic)[0][1]
    read = [record.json() for record in log.read(topic, max(end - _MARKS, 0), partition=0)]
    return [int(mark["lsn"]) for mark in read if mark.get("whole", True)]


def _last_mark(view: View, marks: str, log: Log) -> int:
    """A capture marks something within seconds after its snapshot, heartbeats if nothing else."""
    deadline = time.monotonic() + _MARKED_S
    while True:
        if found := _marks(marks, log):
            return max(found)
        if time.monotonic() > deadline:
            raise ViewBehind(view=view.name, reached="nothing", wanted=f"a record of {marks}", seconds=_MARKED_S)
        time.sleep(_MARK_LOOK_S)
