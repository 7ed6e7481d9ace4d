"""What is done beside a table's epochs: small files written together and versions let go, without an epoch noticing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millrace.config import Settings
from millrace.engine.plan import flows_of
from millrace.engine.running import TRIGGER, _pace
from millrace.errors import DurationInvalid, OptionInvalid
from millrace.flow import App
from millrace.lakehouse import Catalog, Committed, LakeTable, Note
from millrace.lakehouse.compacting import AT_ONCE_FILES, debt
from millrace.sinks.contract import Feed
from millrace.sinks.function import function
from millrace.sinks.lake import Lake, lake
from millrace.sinks.lake_keeping import Keeping
from tests.command import until
from tests.lakehouse.filled import COLUMNS, FORMATS, epoch, file_of, ids

PLACE = "flow.compacted"


def keeping(project: Settings, table: LakeTable, turn: Any = None, *, keyed: bool = False, **options: Any) -> Keeping:
    sink = replace(lake(table.name, format=table.format), **options)  # type: ignore[arg-type]
    assert isinstance(sink, Lake)
    return Keeping(sink, project, PLACE, turn or threading.Lock(), keyed=keyed)


@contextlib.contextmanager
def begun(found: Keeping) -> Iterator[None]:
    found.after(AT_ONCE_FILES)
    try:
        yield
    finally:
        found.end()
        assert not found.is_alive()


@pytest.mark.parametrize("kind", FORMATS)
def test_files_are_written_together_while_epochs_go_on(project: Settings, made: LakeTable) -> None:
    few = AT_ONCE_FILES - 1
    epoch(made, 0, [file_of(made, [n]) for n in range(few)])
    assert debt(made) == 0
    keeping(project, made).tend()
    assert made.load()
    assert len(made.files()) == few, "too few to be worth it"
    epoch(made, 1, [file_of(made, [few])])
    assert debt(made) == AT_ONCE_FILES
    for options in ({"compact": False}, {"keyed": True}):
        keeping(project, made, **options).tend()
        assert made.load()
        assert len(made.files()) == AT_ONCE_FILES

    # An epoch is being written, which holds the turn: what is written together waits, and then follows on it.
    turn = threading.Lock()
    with turn, begun(found := keeping(project, made, turn)):
        until(lambda: made.place.files(f"data/{PLACE}"), "files that were written together", 60)
        epoch(made, 2, [file_of(made, [100])])
        turn.release()
        try:
            until(lambda: made.load() and len(made.files()) == 2, "one file of many", 60)
            until(lambda: found.history_bytes is not None, "a look at what older versions have", 60)
        finally:
            turn.acquire()
    note = made.note()
    assert note is not None
    assert (note.epoch, note.own is not None) == (2, True)
    assert ids(project, made) == [*range(AT_ONCE_FILES), 100]
    assert found.history_bytes is not None
    assert len(made.place.names(f"data/{PLACE}")) == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_what_an_epoch_replaced_meanwhile_is_left_alone(
    project: Settings, made: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [file_of(made, [n]) for n in range(AT_ONCE_FILES)]
    epoch(made, 0, files)
    committed, beaten = type(made).commit, []

    def commit(table: LakeTable, what: Committed) -> None:
        if what.same and not beaten:
            beaten.append(1)
            with Catalog(project).opened(table.name) as other:
                epoch(other, 1, [file_of(other, [50, 51])], files[:2])
        committed(table, what)

    monkeypatch.setattr(type(made), "commit", commit)
    keeping(project, made).tend()
    assert beaten
    assert ids(project, made) == [*range(2, AT_ONCE_FILES), 50, 51]
    assert made.load()
    assert not made.place.names(f"data/{PLACE}"), "nothing came of it, and nothing is left"


@pytest.mark.parametrize("kind", ["delta"])
def test_who_is_left_behind_in_a_commit_finds_its_files(
    project: Settings, made: LakeTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A writer that cannot wait is followed by another, which removes what attempts left: not what may yet be named."""
    for number in range(AT_ONCE_FILES):
        path = file_of(made, [number])
        note = Note("flow", number, "[]", path.removeprefix("data/").rpartition("/")[0])
        made.commit(Committed(note, [path]))
    committed, came, goes_on = type(made).commit, threading.Event(), threading.Event()

    def commit(table: LakeTable, what: Committed) -> None:
        came.set()
        assert goes_on.wait(60)
        committed(table, what)

    monkeypatch.setattr(type(made), "commit", commit)
    monkeypatch.setattr("millrace.sinks.lake_keeping.END_S", 0.1)
    left = keeping(project, made)
    left.after(AT_ONCE_FILES)
    assert came.wait(60)
    left.end()
    sink = lake(made.name, format="delta")
    writer = sink.open(project, "flow", Feed(COLUMNS), tmp_path / "beside")
    goes_on.set()
    left.join(60)
    writer.close()
    assert made.load()
    assert len(made.files()) == 1
    assert ids(project, made) == [*range(AT_ONCE_FILES)]


@pytest.mark.parametrize("kind", ["delta"])
def test_versions_are_let_go_by_age_and_failures_are_not_the_streams(
    project: Settings, made: LakeTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = file_of(made, range(3))
    epoch(made, 0, [first])
    epoch(made, 1, [file_of(made, [9])], [first])
    keeping(project, made, keep=None).tend()
    keeping(project, made, keep=timedelta(hours=1)).tend()
    assert (made.folder / first).exists()
    (found := keeping(project, made, keep=timedelta(hours=-1))).tend()  # as if two hours had passed
    assert not (made.folder / first).exists()
    assert found.history_bytes == 0
    epoch(made, 2, [], [each.path for each in made.files()])
    found.tend()
    assert found.history_bytes == 0, "it does not look again so soon"

    def broken(_: Keeping) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Keeping, "tend", broken)
    with begun(keeping(project, made)):
        until(lambda: "No space left" in caplog.text, "a word about it", 30)


def test_how_often_a_flow_with_a_lake_makes_epochs() -> None:
    def pace(*sinks: Any, stream: bool = False) -> str:
        app = App("shop")
        items = app.table("items", "id long", key="id")
        if stream:
            app.stream(items, key="id", name="copied")(lambda rows: rows)
        items.to(*sinks)
        (flow,) = flows_of(app.graph())
        return _pace(flow)

    def write(rows: Any, epoch: int) -> None:
        raise AssertionError(rows, epoch)

    other = function(write, name="other")
    assert pace(lake("items")) == "5000 milliseconds"
    assert pace(lake("items"), stream=True) == TRIGGER, "somebody waits for the topic"
    assert pace(lake("items"), other) == TRIGGER
    assert pace(lake("items", every="1 minute"), lake("more"), other) == "60000 milliseconds"
    assert lake("items").keep == timedelta(days=1)
    assert lake("items", keep="forever").keep is None
    with pytest.raises(OptionInvalid, match="an hour at least"):
        lake("items", keep="59 minutes")
    with pytest.raises(DurationInvalid):
        lake("items", every="often")
