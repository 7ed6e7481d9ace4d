"""An epoch of a view: its rows go to the changelog exactly once, and then a mark says that they are all there."""

from __future__ import annotations

import json
import time
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.capture.definition import DAY_MS
from millrace.disk import write_whole
from millrace.engine import generations
from millrace.engine.definition import CHECKPOINT, FILLING
from millrace.engine.generations import Generation
from millrace.engine.joining import drop, ensure, join
from millrace.engine.output import TIMES, write
from millrace.engine.settling import INCARNATION, Incarnation, Settler
from millrace.engine.topic_sink import TopicSink
from millrace.engine.view_epochs import FIRST, Reached, ViewEpochs
from millrace.engine.viewed import shown, space_of
from millrace.errors import ViewBehind
from millrace.flow import Table, Topic, View
from millrace.kernel.calling import epoch_behind
from millrace.kernel.signed import DIFF
from millrace.log import Log
from millrace.views import Plan
from millrace.views.changelog import AFTER, HEAD, PARTITIONS, TAIL, tentative_topic
from millrace.views.tentative import TENTATIVE, headed

# As long as a capture keeps every change: a view that was away for longer than that may have to begin anew anyway.
_KEPT_TENTATIVE = {"retention.ms": str(7 * DAY_MS)}
_MARKED_S, _MARK_LOOK_S = 20.0, 0.2
# Among so many offsets at the end of a topic of marks is one; transactions take some.
_MARKS = 40


class ViewOutlet:
    """Called with each epoch's rows, one of each key that changed."""

    def __init__(self, view: View, plan: Plan, topic_sink: TopicSink, folder: Path) -> None:
        self._view, self._plan, self._topic_sink = view, plan, topic_sink
        self._epochs = ViewEpochs(view, topic_sink.log, topic_sink.checkpoint, folder)

    def __call__(self, rows: DataFrame, number: int) -> None:
        reached = self._epochs.reached(number)
        records = self._topic_sink.fitting(self._records(rows, reached), letters=False)  # or it would be untrue
        write(records, self._topic_sink.epoch(number))
        self._epochs.mark(number, reached)

    def _records(self, rows: DataFrame, reached: Reached) -> DataFrame:
        source = json.dumps({"lsn": reached.lsn, "ts_ms": reached.at_ms})
        topic = self._topic_sink.log.settings.named(self._view.name)
        return _told(rows, self._view, self._plan, source, AFTER, F.lit(str(reached.after))).withColumn(
            "topic", F.lit(topic)
        )


def tentative(rows: DataFrame, view: View, plan: Plan, folder: Path) -> DataFrame:
    """Rows in real time as records that say of which incarnation and epoch they are."""
    incarnation = Incarnation.read(folder) or Incarnation()
    shift = Generation.read(folder.with_name(view.name)).shift
    told = epoch_behind(F.lit(headed(incarnation.number, shift)))
    return _told(rows, view, plan, "{}", TENTATIVE, told)


def _told(rows: DataFrame, view: View, plan: Plan, source: str, header: str, content: Column) -> DataFrame:
    columns = dict(plan.columns)
    key = F.to_json(F.struct(*(shown(name, columns[name]) for name in view.key)), TIMES)
    row = F.to_json(F.struct(*(shown(name, type_) for name, type_ in columns.items())), TIMES)
    value = F.concat(F.lit(HEAD), row, F.lit(f"{TAIL}{source}}}"))
    own = F.struct(F.lit(header).alias("key"), content.cast("binary").alias("value"))
    return rows.select(key.alias("key"), F.when(F.col(DIFF) > 0, value).alias("value"), F.array(own).alias("headers"))


def begin(view: View, folder: Path, log: Log, app: str, *, afresh: bool) -> None:
    """Before a view's flow starts: its topics. One that begins has an empty changelog, since no tombstone would take
    out the rows that it has no longer; and it notes how far its first reading goes. One that was deployed, and killed
    then, takes the place of the old one first."""
    if afresh:
        drop(generations.beside(view.name, Generation.read(folder.with_name(view.name)).number), log)
        generations.begin_anew(folder.with_name(view.name))
    else:
        join(view, folder, log, app)
    if afresh and log.topics.exists(view.name) and _written(view, log):
        drop(view.name, log)
    for each in (view, *(node for node in view.reads if isinstance(node, View))):
        ensure(each.name, log)
    if afresh or not (folder / FILLING).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILLING, json.dumps(_targets(view, log)))
    if afresh:
        (folder / INCARNATION).unlink(missing_ok=True)
    if view.epoch_ms is not None:
        log.topics.ensure(tentative_topic(view.name), partitions=PARTITIONS, config=_KEPT_TENTATIVE)
    if log.topics.exists(tentative_topic(view.name)):
        settler_of(view, folder, log, app).begin()


def settler_of(view: View, folder: Path, log: Log, app: str) -> Settler:
    epochs = ViewEpochs(view, log, folder / CHECKPOINT, folder)
    return Settler(epochs, f"{app}.{view.name}")


def _written(view: View, log: Log) -> bool:
    return any(first < last for first, last in log.topics.offsets(view.name, committed=False).values())


def _targets(view: View, log: Log) -> dict[str, int]:
    """For each database that a view reads, the last mark that is there now."""
    found: dict[str, int] = {}
    for node in view.reads:
        space = None if isinstance(node, Topic) else space_of(node)
        if space is not None:
            name, marks = space
            # A view that is not whole yet is waited for by its readers' epochs.
            last = _last_mark(view, marks, log) if isinstance(node, Table) else max(_marks(marks, log), default=0)
            found[name] = max(found.get(name, 0), last, FIRST + 1)
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
