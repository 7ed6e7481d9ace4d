"""`SinkSuite`: the tests that every sink passes, Millrace's own and users'.

    class TestMine(SinkSuite):
        def sink(self, *, keyed): return Mine(...)        # with an empty target, each time
        def held(self, sink): return [...]                # what the target holds, as dicts

A subclass is a pytest class; what a server's tests need more is said by the other hooks. They run on the fixture
`spark` of the plugin, and write the way a flow does: epoch after epoch.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace import config
from millrace.config import Settings
from millrace.errors import EpochMissing, EpochOlder, EpochOther, MillraceError, ServerError
from millrace.failpoint import FailPoint
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Refuse, RefusedRow, Sink, Writer
from millrace.sinks.ledger import FileLedger

FLOW = "suite.flow"
COLUMNS = "id long, name string, score double, seen boolean"
ROW = tuple[Any, ...]

# Where else an epoch is stopped, beside the moment before its ledger.
_PLACES = (FailPoint.SINK_IN_BULK, FailPoint.SINK_BETWEEN_LEDGERS, FailPoint.SINK_AFTER)

# A server that is away is noticed within this, or a flow would stand still with it.
NOTICED_S = 60.0
# How often an epoch is tried while it is away: longer than a circuit or a writer remembers.
TRIES_AWAY = 4


class SinkSuite(ABC):
    """What is to be said about a sink, then the tests.

    Rows have the columns of `COLUMNS`, and `id` for their key.
    """

    # How many rows are many; fewer where each is a request of its own.
    many: ClassVar[int] = 100_000
    # Whether `held` gives rows in the order in which the target got them.
    in_order: ClassVar[bool] = False
    # The columns that the target keeps, `id` first.
    kept: ClassVar[tuple[str, ...]] = ("id", "name", "score", "seen")
    spark: SparkSession
    folder: Path

    @abstractmethod
    def sink(self, *, keyed: bool) -> Sink:
        """The sink with an empty target of its own, each time another. `keyed` says whether it is to hold the last row
        of each `id` (then it has `key=("id",)`) or every row; one that can do only one of these need not listen."""

    @abstractmethod
    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        """The rows that the target holds now, with `__diff` where it keeps that."""

    def settings(self) -> Settings:
        return config.load(self.folder)

    def refused_row(self, sink: Sink) -> Mapping[str, Any] | None:  # noqa: ARG002 -- a hook
        """A row that the target refuses; None if it takes everything. What has to be done for that (a constraint, a
        mapping) can be done here: it is asked once, before anything is written but after the sink was opened."""
        return None

    def too_large_row(self, sink: Sink) -> Mapping[str, Any] | None:  # noqa: ARG002 -- a hook
        """A row larger than the target takes; None if there is no such limit that could be met."""
        return None

    def away(self) -> AbstractContextManager[None] | None:
        """While in this, the server does not answer; None if there is no server."""
        return None

    def without_ledger(self, sink: Sink) -> AbstractContextManager[None]:  # noqa: ARG002 -- a hook
        """While in this, an epoch stops when its rows are written and the ledger does not say so yet, as if the process
        were killed there. Here for sinks with a `FileLedger`; one that writes rows and ledger in one step may have no
        such moment."""
        return _stopping_at_ledgers()

    # ---- the tests

    @pytest.fixture(autouse=True)
    def _place(self, spark: SparkSession, tmp_path: Path) -> None:
        self.spark, self.folder = spark, tmp_path

    def test_epochs_are_written_once_and_in_their_order(self) -> None:
        for keyed in self._manners():
            sink = self.sink(keyed=keyed)
            writer = self._opened(sink, keyed)
            first = [(1, "one", 1.5, True), (2, "two", None, None), (3, "drei €", -1e300, False)]
            refused = self._write(writer, 0, first)
            self._holds(sink, keyed, first)
            assert not refused

            # Again, by the same writer and by one of the next start.
            self._write(writer, 0, first)
            writer.close()
            writer = self._opened(sink, keyed)
            self._write(writer, 0, first)
            self._holds(sink, keyed, first)

            # One row, none, and the first key again.
            self._write(writer, 1, [(4, "four", 4.0, True)])
            self._write(writer, 2, [])
            self._write(writer, 3, [(1, "again", None, None)])
            self._write(writer, 3, [(1, "again", None, None)])
            written = [*first, (4, "four", 4.0, True), (1, "again", None, None)]
            self._holds(sink, keyed, written)

            for number, ranges, refusal in ((2, "2", EpochOlder), (3, "other", EpochOther), (5, "5", EpochMissing)):
                with pytest.raises(refusal, match="millrace rebuild"):
                    self._write(writer, number, [(9, "nine", 9.0, True)], ranges=ranges)
            self._holds(sink, keyed, written)
            writer.close()

    def test_many_rows_at_once(self) -> None:
        keyed = self._manners()[0]
        sink = self.sink(keyed=keyed)
        writer = self._opened(sink, keyed)
        numbers = self.spark.range(self.many, numPartitions=4)
        rows = numbers.select("id", F.concat(F.lit("n"), "id").alias("name"), F.lit(0.5).alias("score"), F.lit(True))
        self._write(writer, 0, rows)
        self._write(writer, 0, rows)
        writer.close()
        found = [(row["id"], row.get("name")) for row in self.held(sink)]
        assert len(found) == self.many
        named = "name" in self.kept
        assert set(found) == {(number, f"n{number}" if named else None) for number in range(self.many)}

    def test_updates_and_deletes_of_a_table(self) -> None:
        for keyed in self._manners(signed=True):
            sink = self.sink(keyed=keyed)
            writer = self._opened(sink, keyed, signed=True)
            came = [(n, f"n{n}", 1.0, True) for n in range(5)]
            self._write(writer, 0, came)
            went, new = [came[1], came[2]], [(2, "two", 2.0, False), (7, "seven", 7.0, None)]
            if keyed:
                self._write(writer, 1, [*new], gone=[came[1]], version=20)
                self._holds(sink, keyed, [came[0], came[3], came[4], *new])
                # Gone and come again, and gone that never was.
                self._write(writer, 2, [came[1]], gone=[(99, "never", None, None)], version=30)
                self._holds(sink, keyed, [came[0], came[1], came[3], came[4], *new])
            else:
                self._write(writer, 1, new, gone=went, version=20)
                self._holds(sink, keyed, [*came, *new], gone=went)
            writer.close()

    def test_a_failure_in_the_middle_leaves_an_epoch_that_can_be_written(self) -> None:
        for keyed in self._manners()[-1:]:  # where it takes every row, a repeat shows
            sink = self.sink(keyed=keyed)
            writer = self._opened(sink, keyed)
            before, rows = [(1, "one", 1.0, True)], [(n, f"n{n}", 1.0, True) for n in range(2, 200)]
            self._write(writer, 0, before)
            column = self.kept[1]
            bad = F.when(F.col("id") == 150, F.raise_error(F.lit("in the middle"))).otherwise(F.col(column))
            with pytest.raises(Exception, match="in the middle"):
                self._write(writer, 1, self._frame(rows).repartition(4).withColumn(column, bad))
            if sink.guarantee == "exactly once":
                self._holds(sink, keyed, before)
            self._write(writer, 1, rows)
            if sink.guarantee in ("exactly once", "exactly once per key"):
                self._holds(sink, keyed, [*before, *rows])
            writer.close()

    def test_stopped_between_the_rows_and_the_ledger(self) -> None:
        for keyed in self._manners():
            sink = self.sink(keyed=keyed)
            writer = self._opened(sink, keyed)
            before, rows = [(1, "one", 1.0, True)], [(n, f"n{n}", 1.0, True) for n in range(2, 50)]
            self._write(writer, 0, before)
            stopped = True
            with self.without_ledger(sink), contextlib.suppress(Exception):
                self._write(writer, 1, rows)
                stopped = False
            if not stopped:
                writer.close()
                pytest.skip("nothing stopped it: it has no such moment, or `without_ledger` does not know how")
            if sink.guarantee == "exactly once":
                self._holds(sink, keyed, before)
            self._goes_on(sink, keyed, writer, before, rows)

    @pytest.mark.parametrize("place", _PLACES, ids=lambda place: place.name.lower())
    def test_stopped_at(self, place: FailPoint) -> None:
        """In the middle of a bulk, where that is done by the driver (in tasks: a failure in the middle, above), between
        the target's ledger and its copy, and when an epoch is whole and the flow does not know."""
        keyed = self._manners()[-1]
        sink = self.sink(keyed=keyed)
        writer = self._opened(sink, keyed)
        before, rows = [(1, "one", 1.0, True)], [(n, f"n{n}", 1.0, True) for n in range(2, 50)]
        self._write(writer, 0, before)
        try:
            with _stopping_at(place):
                self._write(writer, 1, rows)
                FailPoint.SINK_AFTER.reached(sink.name)  # the flow's own, behind every writer
        except _Stopped:
            writer.close()
        else:
            writer.close()
            pytest.skip(f"its driver does not come to {place.name}")
        self._goes_on(sink, keyed, writer, before, rows)

    def _goes_on(self, sink: Sink, keyed: bool, writer: _Opened, before: Sequence[ROW], rows: Sequence[ROW]) -> None:
        for _ in range(2):
            self._write(writer, 1, rows)
        self._holds(sink, keyed, [*before, *rows])
        self._write(writer, 2, [(1, "again", 2.0, True)])
        self._holds(sink, keyed, [*before, *rows, (1, "again", 2.0, True)])
        writer.close()

    def test_an_epoch_that_is_not_checked_can_come_again(self) -> None:
        """As a flow writes with `delivery="at least once"`: after a crash the same epoch, after an older copy of the
        checkpoint was put back an older one. The target may then hold rows more than once, and lacks none."""
        for keyed in self._manners():
            sink = self.sink(keyed=keyed)
            writer = self._opened(sink, keyed)
            rows = [[(n, f"n{n}", 1.0, True), (n + 10, f"n{n + 10}", None, None)] for n in range(3)]
            for number in (0, 1, 1):
                self._write(writer, number, rows[number], checked=False)
            writer.close()
            writer = self._opened(sink, keyed)
            for number in (1, 2, 1):
                self._write(writer, number, rows[number], checked=False)
            self._holds(sink, keyed, [row for some in rows for row in some], again=not keyed)
            writer.close()

    def test_keys_keep_their_order_beside_rows_that_are_refused(self) -> None:
        for keyed in self._manners():
            sink = self.sink(keyed=keyed)
            writer = self._opened(sink, keyed)
            bad = self._odd(writer, self.refused_row(sink), "refused_row")
            written: list[ROW] = []
            for number in range(3):
                rows: list[ROW] = [(n, f"n{n} {number}", float(number), True) for n in range(20)]
                assert len(self._write(writer, number, [*rows[:10], bad, *rows[10:]], version=10 * number)) == 1
                written += rows
            self._holds(sink, keyed, written)
            if self.in_order and not keyed:
                found = [(row["id"], row["name"]) for row in self.held(sink)]
                for key in range(20):
                    assert [each for each in found if each[0] == key] == [
                        each[:2] for each in written if each[0] == key
                    ]
            writer.close()

    @pytest.mark.parametrize("which", ["refused_row", "too_large_row"])
    def test_what_the_target_refuses(self, which: str) -> None:
        keyed = self._manners()[-1]
        sink = self.sink(keyed=keyed)
        writer = self._opened(sink, keyed)
        bad = self._odd(writer, getattr(self, which)(sink), which)
        rows: list[ROW] = [(n, f"n{n}", 1.0, True) for n in range(50)]
        rows.insert(25, bad)

        # Nothing counts as written before the dead letters are safe.
        with pytest.raises(_NotSafe):
            self._write(writer, 0, rows, refuse=_not_safe)
        if sink.guarantee == "exactly once":
            assert not list(self.held(sink))
        (refused,) = self._write(writer, 0, rows)
        assert refused.reason
        assert str(bad[0]) in refused.row
        assert not self._write(writer, 0, rows)
        assert len(list(self.held(sink))) == 50
        writer.close()

    def _odd(self, writer: _Opened, row: Mapping[str, Any] | None, hook: str) -> ROW:
        """A row that the target refuses. Where it takes every row, that has to be seen: it is not what was tested."""
        if row is None:
            writer.close()
            pytest.skip(f"there is no row that its target would refuse: `{hook}` gives none")
        return tuple(row.get(column) for column in self._columns.names)

    def test_the_server_is_away_and_comes_back(self) -> None:
        keyed = self._manners()[0]
        sink = self.sink(keyed=keyed)
        away = self.away()
        if away is None:
            pytest.skip("it has no server")
        writer = self._opened(sink, keyed)
        rows: list[list[ROW]] = [[(n, f"n{n}", 1.0, True)] for n in range(3)]
        self._write(writer, 0, rows[0])
        with away:
            began = time.monotonic()
            # By the writer that knew it, and by those that are opened while it is away.
            for _ in range(TRIES_AWAY):
                with pytest.raises(ServerError):
                    self._write(writer, 1, rows[1])
            assert time.monotonic() - began < TRIES_AWAY * NOTICED_S
        self._written_at_last(writer, 1, rows[1])
        self._write(writer, 2, rows[2])
        self._holds(sink, keyed, [row for some in rows for row in some])
        writer.close()

    # ---- how they write and look

    @property
    def _columns(self) -> StructType:
        schema = StructType.fromDDL(COLUMNS)
        assert isinstance(schema, StructType)
        return schema

    def _manners(self, *, signed: bool = False) -> list[bool]:
        """Whether keyed or not; of a table, one that takes either is always keyed."""
        wants = self.sink(keyed=False).wants
        either = [True] if signed else [True, False]
        return {"keys": [True], "rows": [False], "either": either}[wants]

    def _opened(self, sink: Sink, keyed: bool, *, signed: bool = False) -> _Opened:
        feed = Feed(self._columns, ("id",) if keyed else (), signed)
        sink.check(feed)
        return _Opened(lambda: sink.open(self.settings(), FLOW, feed, self.folder / "own" / sink.name))

    def _frame(self, rows: Sequence[ROW]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), self._columns)

    def _write(
        self,
        writer: _Opened,
        number: int,
        rows: Sequence[ROW] | DataFrame,
        *,
        gone: Sequence[ROW] = (),
        version: int | None = None,
        ranges: str | None = None,
        refuse: Any = None,
        checked: bool = True,
    ) -> list[RefusedRow]:
        """Writes an epoch, and gives what was refused."""
        came = rows if isinstance(rows, DataFrame) else self._frame(rows)
        signed = came.toDF(*self._columns.names).withColumn(DIFF, F.lit(1))
        if gone:
            signed = signed.union(self._frame(gone).withColumn(DIFF, F.lit(-1)))
        place = number if version is None else version
        refused: list[RefusedRow] = []
        epoch = Epoch(FLOW, number, f'[{{"topic":{{"0":[{ranges or number}]}}}}]', checked)
        writer.write(epoch, signed.withColumn(VERSION, F.lit(place).cast("long")), refuse or refused.extend)
        return refused

    def _written_at_last(self, writer: _Opened, number: int, rows: Sequence[ROW]) -> None:
        """A server that has just been started may need a moment more."""
        deadline = time.monotonic() + NOTICED_S
        while True:
            try:
                self._write(writer, number, rows)
            except ServerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def _holds(
        self, sink: Sink, keyed: bool, rows: Sequence[ROW], *, gone: Sequence[ROW] = (), again: bool = False
    ) -> None:
        """That the target holds these rows; where it is not exactly once, or told `again`, some may be there more
        often."""
        __tracebackhide__ = True
        places = [self._columns.names.index(name) for name in self.kept]
        last = {row[0]: row for row in rows}
        signed = [(row, 1) for row in (last.values() if keyed else rows)] + [(row, -1) for row in gone]
        wanted = [(*(row[place] for place in places), sign) for row, sign in signed]
        found = [(*(each.get(name) for name in self.kept), each.get(DIFF) or 1) for each in self.held(sink)]
        if sink.guarantee.startswith("exactly once") and not again:
            assert sorted(map(str, found)) == sorted(map(str, wanted))
        else:
            assert set(map(str, found)) == set(map(str, wanted))


class _Opened:
    """A writer that is closed and opened anew after an error, as a flow does it."""

    def __init__(self, opening: Callable[[], Writer]) -> None:
        self._opening = opening
        self._writer: Writer | None = opening()

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        self._writer = self._writer or self._opening()
        try:
            self._writer.write(epoch, rows, refuse)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _Stopped(BaseException):
    """As a kill: nobody who handles errors handles it."""


@contextlib.contextmanager
def _stopping_at(place: FailPoint) -> Iterator[None]:
    def reached(point: FailPoint, who: str) -> None:  # noqa: ARG001 -- as the one it stands for
        if point is place:
            raise _Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FailPoint, "reached", reached)
        yield


@contextlib.contextmanager
def _stopping_at_ledgers() -> Iterator[None]:
    def write(ledger: FileLedger, epoch: Epoch) -> None:  # noqa: ARG001 -- as the one it stands for
        raise _Stopped

    with _stopping_at(FailPoint.SINK_BEFORE_LEDGER), pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileLedger, "write", write)
        with contextlib.suppress(_Stopped):
            yield


class _NotSafe(MillraceError):
    text = "the dead letters are not safe"


def _not_safe(_: Sequence[RefusedRow]) -> None:
    raise _NotSafe
