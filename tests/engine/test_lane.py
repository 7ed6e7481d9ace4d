"""One sink's lane: an epoch that cannot be written is owed, in order and within a limit, and written once."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace import config
from millrace.engine import lane as lanes
from millrace.engine.feeding import fed
from millrace.engine.held import Held
from millrace.engine.lane import Lane
from millrace.engine.owed import Owed
from millrace.engine.standing import Standing
from millrace.errors import EpochOlder, EpochOther, SinkUnreachable, Where
from millrace.flow import App
from millrace.serve.metrics import metrics
from millrace.sinks import DIFF, VERSION, Epoch, Feed, Guarantee, Refuse, Sink, Writer, due
from millrace.sinks.ledger import FileLedger
from millrace.testing.folder import FolderLog

pytestmark = pytest.mark.spark


@dataclass(frozen=True, eq=False)
class Gate(Sink):
    """Fails while it is shut, and waits while it hangs. `given` are the epochs that it wrote."""

    kind: ClassVar[str] = "gate"
    guarantee: ClassVar[Guarantee] = "at least once"
    wants: ClassVar[Any] = "rows"

    opened: threading.Event = field(default_factory=threading.Event, kw_only=True)
    goes_on: threading.Event = field(default_factory=threading.Event, kw_only=True)
    asked: threading.Event = field(default_factory=threading.Event, kw_only=True)
    given: list[tuple[int, list[int]]] = field(default_factory=list, kw_only=True)

    def open(self, settings: Any, flow: str, feed: Feed, folder: Path) -> Writer:  # noqa: ARG002 -- the contract
        return GateWriter(self, FileLedger(folder))


class GateWriter(Writer):
    def __init__(self, sink: Gate, ledger: FileLedger) -> None:
        self._sink, self._ledger = sink, ledger

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:  # noqa: ARG002 -- it takes every row
        if not due(self._sink.name, epoch, self._ledger.held()):
            return
        if not self._sink.goes_on.is_set():
            self._sink.asked.set()
        self._sink.goes_on.wait(60)
        if not self._sink.opened.is_set():
            raise SinkUnreachable(sink=self._sink.name, reason="it is shut")
        self._sink.given.append((epoch.number, sorted(row["id"] for row in rows.collect())))
        self._ledger.write(epoch)


class Flow:
    """Gives a lane one epoch after the other, as a flow does."""

    def __init__(self, spark: SparkSession, folder: Path, delivery: Guarantee | None = None) -> None:
        settings = config.load(folder, {})
        self.owed = folder / "flow" / "sinks" / "gate" / "owed"
        self.spark, self.sink = spark, Gate("gate", Where("shop.py", 1))
        self.sink.goes_on.set()
        (asked,) = App("shop").topic("views", "id long").to(self.sink, delivery=delivery).deliveries
        self.feed = Feed(spark.range(1).schema)
        log = FolderLog(settings, folder / "log", "wall")
        self.lane = Lane(asked, self.feed, "shop.views", folder / "flow" / "sinks" / "gate", log)
        self.lane.begin(spark)

    def epoch(self, number: int, ranges: str = "[]") -> None:
        held = Held(self.spark.range(number, number + 3))
        rows = fed(held.rows, self.feed, number)
        try:
            self.lane.offer(Epoch("shop.views", number, ranges), rows, held)
            self.lane.settle(Epoch("shop.views", number, ranges), rows)
        finally:
            held.let_go()


def wrote(*numbers: int) -> list[tuple[int, list[int]]]:
    return [(number, [number, number + 1, number + 2]) for number in numbers]


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flow]:
    monkeypatch.setattr(lanes, "TRY_S", 0.0)
    monkeypatch.setattr(lanes, "MOST_AGAIN_S", 0.1)
    made = Flow(spark, tmp_path)
    yield made
    made.sink.goes_on.set()
    made.lane.end()


def test_owed_epochs_are_written_in_order_and_once(flow: Flow, until: Callable[..., None], tmp_path: Path) -> None:
    flow.sink.opened.set()
    flow.epoch(0)
    assert flow.sink.given == wrote(0)
    flow.sink.opened.clear()
    for number in (1, 2, 2, 3):  # the second is done again after a crash
        flow.epoch(number)
    standing = flow.lane.standing()
    assert (standing.epoch, standing.owed_epochs) == (0, 3)
    assert standing.owed_bytes > 0
    assert "MR-SINK-UNREACHABLE" in (standing.trouble or "")
    with pytest.raises(EpochOther):
        flow.epoch(3, ranges="[1]")

    # They outlive the run.
    flow.lane.end()
    again = Flow(flow.spark, tmp_path)
    again.sink.opened.set()
    until(lambda: not again.lane.standing().owed_epochs, "what was owed")
    again.epoch(4)
    assert again.sink.given == wrote(1, 2, 3, 4)
    again.lane.end()


def test_epochs_that_at_most_once_gives_up_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> float:
        standing = Standing.new("views").delivering({"gate": flow.lane.standing()})
        found = re.search(r"millrace_sink_lost_epochs_total\{.*\} (\S+)", metrics("shop", [standing]))
        assert found is not None
        return float(found[1])

    monkeypatch.setattr(lanes, "TRY_S", 0.0)
    flow = Flow(spark, tmp_path, "at most once")
    for number, opened, count in ((0, True, 0), (1, False, 1), (2, False, 2), (2, True, 2), (3, True, 2)):
        flow.sink.opened.set() if opened else flow.sink.opened.clear()
        flow.epoch(number)
        assert lost() == count
    assert flow.sink.given == wrote(0, 3), "what was given up is not tried again"
    assert not flow.lane.standing().owed_epochs
    flow.lane.end()


def test_at_most_once_other_records_under_an_old_number_are_refused_and_not_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Flow(spark, tmp_path, "at most once")
    flow.sink.opened.set()
    for number in (0, 1, 5):  # in between somebody asked for at least once
        flow.epoch(number, f"[{number}]")
    # An older copy of the checkpoint, or a new one: its numbers are those of before, its records are not.
    with pytest.raises(EpochOther):
        flow.epoch(5, "[6]")
    with pytest.raises(EpochOlder):
        flow.epoch(1, "[1]")
    flow.epoch(5, "[5]")
    assert flow.sink.given == wrote(0, 1, 5)
    flow.lane.end()


def test_an_epoch_whose_removal_is_cut_off_by_a_crash_is_not_owed_any_more(
    flow: Flow, until: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    removed: list[Path] = []

    def cut_off(path: Path, **_: Any) -> None:
        if (path / "rows").exists():
            rmtree(path / "rows")
            removed.append(path)
            raise Killed

    rmtree = shutil.rmtree
    flow.epoch(0)
    monkeypatch.setattr("millrace.engine.owed.shutil.rmtree", cut_off)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    flow.sink.opened.set()
    until(lambda: bool(removed), "the removal")
    monkeypatch.undo()
    flow.lane.end()
    again = Flow(flow.spark, tmp_path)
    again.sink.opened.set()
    assert again.lane.standing().owed_epochs == 0
    again.epoch(1)
    assert again.sink.given == wrote(1)
    again.lane.end()


def test_a_sink_that_hangs_is_left_behind(
    flow: Flow, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "HANGS_S", 0.1)
    flow.sink.opened.set()
    flow.sink.goes_on.clear()
    flow.epoch(0)
    flow.epoch(1)
    assert flow.lane.standing().owed_epochs == 2
    assert flow.sink.given == []
    flow.sink.goes_on.set()
    until(lambda: not flow.lane.standing().owed_epochs, "what was owed")
    # The attempt that hung has written the first one at last; what was owed of it is not written again.
    assert flow.sink.given == wrote(0, 1)


def test_one_that_hangs_is_waited_for_by_the_next(flow: Flow, until: Callable[..., None], tmp_path: Path) -> None:
    """A flow that is started again while a sink of it still hangs at an epoch: two at once would write it twice, and
    the older one would put the ledger back when the other is further."""
    flow.epoch(0)  # owed, and then tried by a lane that hangs
    flow.sink.goes_on.clear()
    until(flow.sink.asked.is_set, "the lane at its server")
    flow.sink.opened.set()
    flow.lane.end(0.1)
    again = Flow(flow.spark, tmp_path)
    again.sink.opened.set()
    for number in (0, 1, 2):
        again.epoch(number)
    assert again.lane.standing().owed_epochs == 3
    assert again.sink.given == []
    flow.sink.goes_on.set()
    until(lambda: not again.lane.standing().owed_epochs, "what was owed")
    again.epoch(3)
    assert flow.sink.given + again.sink.given == wrote(0, 1, 2, 3)
    assert not flow.lane.is_alive()
    again.lane.end()
    Flow(flow.spark, tmp_path).lane.end()
    assert flow.owed.parent not in lanes._left_behind, "it has ended, and so has who waited for it"


def test_the_next_epoch_can_be_owed_while_the_last_is_paid(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the one that is paid go at a moment of their own."""
    owed = Owed(flow.owed, "gate", Where("shop.py", 1))
    rows = fed(flow.spark.range(3), flow.feed, 0)
    owed.put(Epoch("shop.views", 0, "[]"), rows)

    def meanwhile(path: Path, to: Path) -> Path:
        moved = rename(path, to)
        if path.name.isdecimal():
            monkeypatch.undo()
            owed.put(Epoch("shop.views", 1, "[]"), rows)
        return moved

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", meanwhile)
    owed.written(Epoch("shop.views", 0, "[]"))
    assert owed.first() == Epoch("shop.views", 1, "[]")
    assert owed.epochs == 1


def test_what_a_crash_left_of_an_owed_epoch_goes(flow: Flow, tmp_path: Path) -> None:
    flow.lane.end()
    for name in ("draft", "paid"):
        (flow.owed / name / "rows").mkdir(parents=True)
    Flow(flow.spark, tmp_path).lane.end()
    assert list(flow.owed.iterdir()) == []


def test_what_is_owed_is_given_in_the_types_that_its_columns_have_grown_to(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(-1, 0.5)], "id int, share float").withColumns({DIFF: F.lit(1), VERSION: F.lit(0)})
    owed, epoch = Owed(tmp_path / "owed", "gate", Where("shop.py", 1)), Epoch("shop.views", 0, "[]")
    owed.put(epoch, rows)
    grown = StructType().add("id", "long").add("share", "double").add("since", "string")
    found = owed.rows(spark, epoch, Feed(grown))
    assert found.drop(DIFF, VERSION).schema == grown
    assert [tuple(row) for row in found.collect()] == [(-1, 0.5, None, 1, 0)]


def test_at_the_limit_the_flow_waits(flow: Flow, until: Callable[..., None]) -> None:
    flow.lane.limit_bytes = 1
    flow.epoch(0)
    waiting = threading.Thread(target=flow.epoch, args=(1,), daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    assert flow.lane.standing().owed_epochs == 1
    flow.sink.opened.set()
    waiting.join(60)
    until(lambda: not flow.lane.standing().owed_epochs, "what was owed")
    assert flow.sink.given == wrote(0, 1)
