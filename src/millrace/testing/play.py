"""`Play`: whole flows of an app under controlled time, on the real engine.

A play has a clock of its own, which only `feed` and `advance` move, and a log in a folder instead of a broker. Flows
run as they do for users, and every step waits until they have nothing left to do: nothing sleeps, and the same steps
give the same rows. A crash discards the queries and all that they held in memory; what is left is the checkpoint.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from millrace import config, durations, local
from millrace.capture import memory
from millrace.capture.database import CapturedTable, Column
from millrace.config import Lake, Settings
from millrace.engine import Progress, Run, definition
from millrace.engine.plan import flows_of
from millrace.engine.replay import Replay
from millrace.errors import PlayMisused, Where, nearest
from millrace.flow import App, LakeInput, Stream, Table, Topic
from millrace.flow import schema as schemas
from millrace.flow.nodes import caller
from millrace.kernel.times import set_now
from millrace.log import Log
from millrace.log.deadletters import REASON, SUFFIX
from millrace.log.record import timestamp_ms
from millrace.log.topics import FOREVER
from millrace.testing import lakes, tables
from millrace.testing.checkpoints import forget_commit
from millrace.testing.fed import Given, changes, moment, records
from millrace.testing.folder import CRASHED, FolderLog
from millrace.testing.recorded import recorded
from millrace.testing.tables import Rows

Crash: TypeAlias = Literal["before write", "after write", "after commit"]
CRASHES = ("before write", "after write", "after commit")

# With a seed: after which part of the epochs the flows crash.
_CRASHES_OFTEN = 0.25

_START = datetime.combine(tables.DAY, datetime.min.time(), UTC)
_numbers = itertools.count(1)


class Play:
    """Plays an app. Use it as a context, or by the fixture `play`, which ends it after the test.

    Topics have as many partitions as `partitions` says. With a `seed`, what is fed is cut into epochs at random, and
    now and then the flows crash in between: what a test expects must not depend on either. `settings` with the address
    of a Kafka play the same on that broker, under names of their own. A play keeps no views: `views=False` leaves those
    of the app out.
    """

    def __init__(
        self,
        app: App,
        spark: SparkSession,
        *,
        partitions: int = 1,
        seed: int | None = None,
        settings: Settings | None = None,
        views: bool = True,
    ) -> None:
        self.app, self.spark, self.now = app, spark, _START
        flows = flows_of(app.graph())
        self._only = () if views else tuple(part for flow in flows if flow.view is None for part in flow.parts)
        self.progress: list[Progress] = []
        self._partitions = partitions
        self._draw = None if seed is None else random.Random(seed)  # noqa: S311 -- to be repeated, not to be secret
        self._clock = f"play-{next(_numbers)}"
        self._folder = Path(tempfile.mkdtemp(prefix="millrace-play-"))
        own = settings or replace(config.load(), prefix="")
        spark_alone = replace(own.spark, checkpoints=None)
        self._settings = replace(own, folder=self._folder, databases={}, spark=spark_alone, lake=Lake())
        if settings is None:
            self.log: Log = FolderLog(self._settings, self._folder / "log", self._clock)
        else:
            # The project's own broker is known by its folder, which is not the play's.
            kafka = replace(settings.kafka, bootstrap=local.address(settings, "kafka"))
            self._settings = replace(self._settings, kafka=kafka, prefix=settings.named(self._folder.name))
            self.log = _TimedLog(self._settings, self._clock)
        self._run: Run | None = None
        self._expected: Counter[str] = Counter()
        self._tables: dict[str, CapturedTable] = {}
        for node in app.graph().nodes:
            if isinstance(node, Table) and node.capture is None:
                self._know(node, node.name, schemas.columns(node.name, node.schema or "", node.where), node.key)

    def __enter__(self) -> Play:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.end()

    @property
    def settings(self) -> Settings:
        """Those of the play: its own folder, and its own lake in it, for `mr.now`."""
        return self._settings

    def end(self) -> None:
        self.crash()
        if not isinstance(self.log, FolderLog):
            for topic in self.log.topics.list():
                self.log.topics.delete(topic.name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def table(self, table: Table, schema: str, *, key: str | Sequence[str]) -> None:
        """Says what a captured table's columns are; in a play there is no database to ask."""
        where = caller()
        if table.capture is None:
            raise PlayMisused(reason=f"{table.name!r} says its columns where it is declared", where=where)
        columns = schemas.columns(table.name, schema, where)
        name = table.table if "." in table.table else f"public.{table.table}"
        keys = (key,) if isinstance(key, str) else tuple(key)
        if missing := [each for each in keys if each not in columns]:
            raise PlayMisused(reason=f"{table.name} has {', '.join(columns)}, and no {missing[0]!r}", where=where)
        self._know(table, name, columns, keys)
        known = [each for node, each in self._tables.items() if node.startswith(f"{table.capture.name}.")]
        memory.write(self.log, memory.Remembered(table.capture, "postgres", {each.name: each for each in known}))

    def lake(self, lake: LakeInput, schema: str, rows: Rows) -> None:
        """Gives a table of the lake these columns and rows, in place of those that it has: the next version. Flows read
        it when they are started: the first step does that, and `restart` again."""
        lakes.put(lake, schema, rows, self.spark, self._settings, caller())

    def feed(
        self, to: Topic | Table, rows: Rows | bytes, *, key: str | None = None, crash: Crash | None = None
    ) -> None:
        """Writes rows and lets the flows process them. To a topic: one record a row, whose columns may be joined by
        `arrival` (when; otherwise when it happened, but not before now) and `partition`; or the bytes of one record, as
        they are. To a table: rows that come, or take the place of one with their key. Time passes first: it is the
        latest arrival when the flows see the rows.

        `crash` ends the flows there: "before write", "after write" of the first epoch (its commit is missing), or
        "after commit" of all. The next step starts them again.
        """
        where = caller()
        if crash is not None and crash not in CRASHES:
            raise PlayMisused(reason=f"there is no crash {crash!r}; there are {', '.join(CRASHES)}", where=where)
        if crash == "before write" and not isinstance(self.log, FolderLog):
            raise PlayMisused(reason='a crash "before write" needs the log in a folder, not a broker', where=where)
        given = self._records(to, rows, key, where)
        if crash is not None:
            if self._run is not None:  # what time alone brings about is done, so that the rows meet the crash
                self._arrive(given)
                self._settle()
            self._arm(crash)  # before they start: an epoch that was left behind is the first to meet it
            try:
                self._arrive(given)
                self._started()
                self._write(to, given)
                self._crash(crash)
            finally:
                self._arm(None)
            return
        for some in [given] if self._draw is None else _cut(given, self._draw):
            # Before flows are started: one that looked sooner would have waited since then for topics without rows.
            self._arrive(some)
            self._started()
            self._settle()
            self._write(to, some)
            if self._draw is not None and self._draw.random() < _CRASHES_OFTEN:
                self.restart()
            self._settle()

    def delete(self, table: Table, rows: Rows) -> None:
        """Deletes rows of a table, named by their keys."""
        where = caller()
        if not isinstance(table, Table):
            raise PlayMisused(reason="rows of tables are deleted; what a topic holds stays", where=where)
        given = self._changes(table, rows, where, delete=True)
        self._started()
        self._write(table, given)
        self._settle()

    def advance(self, by: str | timedelta) -> None:
        """Lets the clock go on: partitions fall silent. Event time goes on with events only."""
        if not isinstance(by, str | timedelta):
            raise PlayMisused(reason=f'{by!r} does not say of what: advance("5 seconds")', where=caller())
        length = durations.parse(by)
        self._started()
        self._move(self.now + length)
        self._settle()

    def crash(self) -> None:
        """Discards the flows and all that they hold in memory, between two epochs."""
        if self._run is not None:
            self._run.abandon()
            self._run = None

    def restart(self) -> None:
        """Starts the flows again from their checkpoints."""
        self.crash()
        self._started()
        self._settle()

    def replay(self, into: str, *, start: str | datetime | None = None, until: str | datetime | None = None) -> None:
        """Runs the flows once more over what arrived from `start` on and before `until`, to topics `<stream>.<into>`,
        as `millrace run --from … --until … --into …` does."""
        where = caller()
        begin, end = (None if time is None else moment(time, where) for time in (start, until))
        with self._new_run(once=True, replay=Replay(into, begin, end)) as run:
            while not run.done:
                self.progress += run.poll()
            self.progress += run.stop()

    def rows(self, of: Stream | Topic | str) -> list[dict[str, Any]]:
        """All records of a topic as rows; by a sink's name, what it was given, with `__diff`."""
        name = self._known(of, caller())
        return [record.json() for record in self.log.read(name)] if self.log.topics.exists(name) else []

    def expect(self, of: Stream | Topic | str, rows: Rows = (), *, ordered: bool = False) -> None:
        """That a topic has got these rows since it was last asked, and no others. Columns that are not named are not
        looked at; the order is, if `ordered`."""
        __tracebackhide__ = True
        where = caller()
        name = self._known(of, where)
        every = self.rows(of)
        found = every[self._expected[name] :]
        self._expected[name] = len(every)
        wanted = tables.read(rows, where)
        missing, left = [], list(found)
        for row in wanted:
            fits = [each for each in left[: 1 if ordered else None] if _fits(row, each)]
            if fits:
                left.remove(fits[0])
            else:
                missing.append(row)
        if missing or left:
            parts = (("got", found), ("not got", missing), ("not expected", left))
            raise AssertionError(f"{name}\n" + "\n".join(f"{word}:\n{tables.shown(each)}" for word, each in parts))

    def late(self, of: Stream | str | None = None) -> int:
        """How many rows came when a window of theirs had closed, to be counted nevertheless or not."""
        if of is None:
            return sum(each.late for each in self.progress)
        name = of.name if isinstance(of, Stream) else of
        flows = {stream.name: flow.name for flow in flows_of(self.app.graph()) for stream in flow.streams}
        if name not in flows:
            hint = nearest(str(name), flows) or f"; there are {', '.join(flows)}"
            raise PlayMisused(reason=f"there is no stream {_shown(name)}{hint}", where=caller())
        return sum(each.late for each in self.progress if each.flow == flows[name])

    def dead(self, topic: Topic | str) -> list[tuple[str, str]]:
        """The records of a topic that did not fit: what each was, and why."""
        name = self._known(topic, caller()) + SUFFIX
        letters = list(self.log.read(name)) if self.log.topics.exists(name) else []
        return [
            ((each.value or b"").decode(errors="replace"), (dict(each.headers)[REASON] or b"").decode())
            for each in letters
        ]

    def _known(self, of: Stream | Topic | str, where: Where) -> str:
        """The topic's name. One that there is not, because it is spelled otherwise, would have no rows for ever; before
        the flows are started, some are not made yet."""
        if not isinstance(of, Stream | Topic | str):
            raise PlayMisused(reason=f"{_shown(of)} is no stream or topic", where=where)
        name = _topic(of)
        if self._run is not None and not self.log.topics.exists(name):
            hint = nearest(name, [topic.name for topic in self._run.graph.topics])
            raise PlayMisused(reason=f"there is no topic {name!r}{hint}", where=where)
        return name

    def _started(self) -> None:
        if self._run is None:
            set_now(self.spark, self._clock, timestamp_ms(self.now))
            self._run = self._new_run()
            try:
                self._run.start()
            except BaseException:
                self.crash()
                raise

    def _new_run(self, **options: Any) -> Run:
        options |= {"spark": self.spark, "log": self.log, "trigger": "0 seconds"}
        options |= {"traffic": False, "captures": False, "trial": True, "only": self._only}
        run = Run(self.app, self._settings, **options)
        run.graph = recorded(run.graph, self.log)
        if run.replay is not None:  # it wants to make its topics itself
            run.replay.begin(definition.folder_of(self._settings, run.graph.app, "any").parent, self.log)
        for topic in run.graph.topics:
            self._make(topic.name)
        return run

    def _know(self, table: Table, name: str, columns: Mapping[str, str], key: tuple[str, ...]) -> None:
        made = tuple(Column(column, kind, kind, True) for column, kind in columns.items())
        self._tables[table.name] = CapturedTable(name, table.name, key, made)
        self._make(table.name)

    def _make(self, topic: str) -> None:
        """Kept for ever: what arrived by the play's clock, a broker would soon delete as old."""
        self.log.topics.ensure(topic, partitions=self._partitions, retention=FOREVER)

    def _move(self, to: datetime) -> None:
        if to > self.now:
            self.now = to
            set_now(self.spark, self._clock, timestamp_ms(to))

    def _settle(self) -> None:
        """In the order of the data's way, so that what one flow writes is there for the next. After a failure nothing
        runs, and the next step starts the flows anew."""
        run = self._run
        if run is None:
            return
        try:
            for flow in run.planned:
                # What failed is told by the poll, in one sentence.
                with contextlib.suppress(StreamingQueryException):
                    run.flows[flow.name].query.processAllAvailable()
                self.progress += run.poll()
        except BaseException:
            self.crash()
            raise

    def _arm(self, at: Crash | None) -> None:
        if isinstance(self.log, FolderLog):
            self.log.arm(None if at == "after commit" else at)

    def _crash(self, at: Crash) -> None:
        """Each flow meets the fault, or has nothing to do."""
        run = self._run
        assert run is not None
        for flow in run.planned:
            try:
                run.flows[flow.name].query.processAllAvailable()
            except StreamingQueryException as error:
                if CRASHED not in str(error):
                    raise run.flows[flow.name].failure() or error from None
        self.crash()
        if at == "after write" and not isinstance(self.log, FolderLog):
            for flow in run.planned:
                forget_commit(definition.folder_of(self._settings, self.app.name, flow.name) / definition.CHECKPOINT)

    def _records(self, to: Topic | Table, rows: Rows | bytes, key: str | None, where: Where) -> list[Given]:
        if not isinstance(to, Topic | Table):
            raise PlayMisused(reason=f"rows are fed to topics and tables, and {_shown(to)} is neither", where=where)
        if isinstance(rows, bytes):
            if isinstance(to, Table):
                raise PlayMisused(reason="a table is fed with rows", where=where)
            return [Given(rows, None, None, self.now)]
        if isinstance(to, Table):
            return self._changes(to, rows, where, delete=False)
        return records(to, rows, key=key, partitions=self._partitions, now=self.now, where=where)

    def _changes(self, table: Table, rows: Rows, where: Where, *, delete: bool) -> list[Given]:
        return changes(table, self._tables.get(table.name), rows, now=self.now, where=where, delete=delete)

    def _arrive(self, records: Sequence[Given]) -> None:
        self._move(max((record.time for record in records), default=self.now))

    def _write(self, to: Topic | Table, records: Sequence[Given]) -> None:
        with self.log.writer(to.name) as writer:
            for record in records:
                writer.write(record.value, key=record.key, partition=record.partition, time=record.time)


class _TimedLog(Log):
    """A broker's log, read with the clock of a play."""

    def __init__(self, settings: Settings, time: str) -> None:
        super().__init__(settings)
        self._time = time

    @property
    def data_source(self) -> Any:
        return replace(super().data_source, time=self._time)


def _topic(of: Stream | Topic | str) -> str:
    if isinstance(of, str):
        return of
    return of.output.name if isinstance(of, Stream) else of.name


def _shown(given: Any) -> str:
    """What somebody gave, without all that it is made of."""
    named = getattr(given, "name", None)
    return repr(given) if named is None else f"the {type(given).__name__.lower()} {named!r}"


def _fits(expected: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(name in found and tables.same(value, found[name]) for name, value in expected.items())


def _cut(rows: Sequence[Given], draw: random.Random) -> list[Sequence[Given]]:
    places = sorted({0, len(rows), *(draw.randrange(len(rows) + 1) for _ in range(draw.randrange(4)))})
    return [rows[start:end] for start, end in itertools.pairwise(places)] or [[]]
